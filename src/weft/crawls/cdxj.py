"""The index of a WARC file: a line for each record that has a page, in the order of addresses."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

_encode = msgspec.json.Encoder().encode


def line_of(
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


def merged(indexes: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of several indexes as one, in order. Each of them is in order itself."""
    return heapq.merge(*indexes)


class Place(msgspec.Struct, frozen=True):
    """Where a record is, as its line says."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str


def places_of(index: bytes, url: str) -> list[Place]:
    """Every record of an address in an index, oldest first."""
    wanted = surt(url).encode() + b" "
    return [
        place
        for line in index.splitlines()
        if line.startswith(wanted) and (place := msgspec.json.decode(line.split(b" ", 2)[2], type=Place)).url == url
    ]
