"""The CDXJ index of a WARC file: a line for each record that has a page, sorted by URL."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache

import msgspec

_encode = msgspec.json.Encoder().encode


def index_line(
    url: str, stamp: str, *, status: int, mime: str, digest: str, offset: int, length: int, filename: str
) -> bytes:
    """``com,example)/page 20261116120000 {…}``."""
    told = {
        "url": url,
        "mime": mime,
        "status": str(status),
        "digest": digest,
        "length": str(length),
        "offset": str(offset),
        "filename": filename,
    }
    return b"%b %b %b\n" % (surt(url).encode(), stamp.encode(), _encode(told))


def surt(url: str) -> str:
    """An address with the name of its host turned round, so that what belongs together stands together."""
    host, _, path = url.partition("://")[2].partition("/")
    return f"{_turned(host)})/{path.lower()}"


@lru_cache(1_000)
def _turned(host: str) -> str:
    name, colon, port = host.lower().rpartition(":") if not host.endswith("]") else (host, "", "")
    if not name:
        name, port = port, ""
    if name.startswith("[") or name.replace(".", "").isdecimal():
        return f"{name}{colon}{port}"
    return ",".join(reversed(name.removeprefix("www.").split("."))) + colon + port


def relocated(line: bytes, filename: str, before: int) -> bytes:
    """The line of a record that is in another file, where so many bytes come before those of its own.

    Empty: the line leads nowhere, since whoever has made it did not follow the form.
    """
    try:
        place, (key, stamp, _) = location_of(line), line.split(b" ", 2)
        place = msgspec.structs.replace(place, offset=str(int(place.offset) + before), filename=filename)
    except (msgspec.MsgspecError, ValueError, IndexError):
        return b""
    return b"%b %b %b\n" % (key, stamp, _encode(place))


async def merge_indexes(indexes: Sequence[AsyncIterator[list[bytes]]]) -> AsyncIterator[bytes]:
    """The lines of several indexes as one, in order. Each of them comes in pieces, and is in order itself."""
    lines = [_one_by_one(index) for index in indexes]
    first = [(await anext(each, b""), number) for number, each in enumerate(lines)]
    waiting = [each for each in first if each[0]]
    heapq.heapify(waiting)
    while waiting:
        line, number = waiting[0]
        yield line
        if following := await anext(lines[number], b""):
            heapq.heapreplace(waiting, (following, number))
        else:
            heapq.heappop(waiting)


async def _one_by_one(index: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    async for lines in index:
        for line in lines:
            yield line


class RecordLocation(msgspec.Struct, frozen=True):
    """Where a record is, as its line says."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str


def location_of(line: bytes) -> RecordLocation:
    return msgspec.json.decode(line.split(b" ", 2)[2], type=RecordLocation)


def locations_of(index: bytes, url: str) -> list[RecordLocation]:
    """Every record of an address in an index, oldest first."""
    wanted = surt(url).encode() + b" "
    return [place for line in index.splitlines() if line.startswith(wanted) and (place := location_of(line)).url == url]
