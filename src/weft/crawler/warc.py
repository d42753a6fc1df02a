"""Writes the raw exchanges of a crawl as WARC 1.1 and repairs the files of dead processes.

Each record is a gzip member of its own. A body that the origin has compressed stays as it came, in a member that only
stores it: that costs a hundredth of the CPU time.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from pathlib import Path

from isal import isal_zlib

from weft import __version__
from weft.clock import now
from weft.crawler.cdxj import index_line
from weft.crawler.messages import WARC_FOLDER, WARC_OPEN_SUFFIX
from weft.crawler.requests import without_secrets
from weft.fetching.model import Exchange

MOST_DIGESTS = 20_000
"""Payloads that are remembered."""
MOST_RECORDS = 50_000
"""Exchanges of one file: their lines of the index wait in memory."""
PROFILES = "http://netpreserve.org/warc/1.1/revisit/"
PACKED = (b"image/", b"video/", b"audio/", b"font/", b"application/zip", b"application/gzip", b"application/x-gzip")
"""Types that compressing does not make smaller."""

_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_BLOCK = 65_535
_CHUNKED = re.compile(rb"(\n)(transfer-encoding[ \t]*:)", re.IGNORECASE)


def stored(data: bytes) -> bytes:
    """A gzip member that holds the data as it is."""
    parts = [_HEAD]
    size = len(data)
    for start in range(0, size or 1, _BLOCK):
        length = min(_BLOCK, size - start)
        parts.append(struct.pack("<BHH", start + length >= size, length, length ^ 0xFFFF))
        parts.append(data[start : start + length])
    parts.append(struct.pack("<II", isal_zlib.crc32(data), size & 0xFFFFFFFF))
    return b"".join(parts)


def packed(data: bytes) -> bytes:
    """A gzip member that is smaller than the data."""
    return bytes(isal_zlib.compress(data, 1, 31))


def digest_of(data: bytes, more: bytes = b"") -> bytes:
    digest = sha1(data, usedforsecurity=False)
    if more:
        digest.update(more)
    return b"sha1:" + base64.b32encode(digest.digest())


class WarcWriteError(Exception):
    """There is no room for a raw page, or it cannot be written for another reason."""


class WarcWriter:
    """Writes the files of one attempt. They are in ``warc/<crawl>`` of its folder; ``crawl`` is told before the first.

    What was written survives the death of this process: no record waits in its memory.
    """

    def __init__(self, folder: Path, largest: int) -> None:
        self.crawl = 0
        self._folder, self._largest = folder, largest
        self._number = 0
        self._name = ""
        self._file: int | None = None
        self._offset = 0
        self._index: list[bytes] = []
        self._digests: dict[bytes, tuple[bytes, bytes]] = {}
        self._ids, self._count = str(uuid.uuid4())[:24], 0

    def write(self, exchange: Exchange, digest: str = "") -> None:
        """Keep an exchange: what was sent, and what came back. Raises ``WarcWriteError``.

        ``digest`` tells nothing that is needed here.
        """
        try:
            self._write(exchange)
        except OSError as problem:
            if self._file is not None:
                os.ftruncate(self._file, self._offset)  # half a record would spoil those after it
            raise WarcWriteError(f"raw pages cannot be kept: {problem.strerror or problem}") from problem

    def _write(self, exchange: Exchange) -> None:
        if self._file is None or self._offset >= self._largest or len(self._index) >= MOST_RECORDS:
            self._begin()
        at, payload = _date(exchange.began_at), digest_of(exchange.raw_body)
        about = b"WARC-Date: %b\r\nWARC-Target-URI: %b\r\nWARC-IP-Address: %b\r\n" % (
            at,
            exchange.url.encode(),
            exchange.address.encode(),
        )
        ours = self._id()
        record = self._response(exchange, about, ours, payload)
        asked = _record(
            b"request",
            b"WARC-Record-ID: %b\r\n%bWARC-Concurrent-To: %b\r\n" % (self._id(), about, ours),
            b"application/http; msgtype=request",
            without_secrets(exchange.request),
        )
        self._note(exchange, record, payload)
        self._append(record + packed(asked))

    def close(self) -> None:
        """Finish the file that is open. Nothing is written any more after that, unless another is begun."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        finish_file(self._place(), self._name, self._index)
        self._index = []

    def _response(self, exchange: Exchange, about: bytes, ours: bytes, payload: bytes) -> bytes:
        """The record of what came back, or of that it is the same as before."""
        head, body = _head(exchange), exchange.raw_body
        told = b"WARC-Record-ID: %b\r\n%b" % (ours, about)
        if exchange.status == 304:
            told += b"WARC-Profile: %bserver-not-modified\r\n" % PROFILES.encode()
            return packed(_record(b"revisit", told, b"application/http; msgtype=response", head))
        told += b"WARC-Payload-Digest: %b\r\n" % payload
        if body and (before := self._seen(payload, exchange)) is not None:
            told += b"WARC-Profile: %bidentical-payload-digest\r\n" % PROFILES.encode()
            told += b"WARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: %b\r\n" % before
            return packed(_record(b"revisit", told, b"application/http; msgtype=response", head))
        record = _record(b"response", told, b"application/http; msgtype=response", head, body)
        return stored(record) if _is_packed(exchange) else packed(record)

    def _seen(self, payload: bytes, exchange: Exchange) -> tuple[bytes, bytes] | None:
        """Where this payload was written before."""
        before = self._digests.get(payload)
        if before is None:
            if len(self._digests) >= MOST_DIGESTS:
                del self._digests[next(iter(self._digests))]
            self._digests[payload] = exchange.url.encode(), _date(exchange.began_at)
        return before

    def _begin(self) -> None:
        self.close()
        place = self._place()
        place.mkdir(parents=True, exist_ok=True)
        self._name = f"weft-{self.crawl}-{self._folder.name}-{self._number:05d}"
        self._number += 1
        self._file = os.open(
            place / f"{self._name}.warc.gz{WARC_OPEN_SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._offset = os.fstat(self._file).st_size
        about = b"WARC-Record-ID: %b\r\nWARC-Date: %b\r\nWARC-Filename: %b.warc.gz\r\n" % (
            self._id(),
            _date(now()),
            self._name.encode(),
        )
        told = (
            f"software: weft/{__version__}\r\nformat: WARC File Format 1.1\r\n"
            "conformsTo: http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n"
            f"isPartOf: crawl {self.crawl}\r\ndescription: run and attempt {self._folder.name}\r\n"
        )
        self._append(packed(_record(b"warcinfo", about, b"application/warc-fields", told.encode())))

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self._offset += len(data)

    def _note(self, exchange: Exchange, record: bytes, payload: bytes) -> None:
        self._index.append(
            index_line(
                exchange.url,
                _stamp(exchange.began_at // 1_000_000),
                status=exchange.status,
                mime=mime_of(exchange.header(b"content-type")),
                digest=payload.decode(),
                offset=self._offset,
                length=len(record),
                filename=f"{self._name}.warc.gz",
            )
        )

    def _place(self) -> Path:
        return self._folder / WARC_FOLDER / str(self.crawl)

    def _id(self) -> bytes:
        self._count += 1
        return b"<urn:uuid:%b%012x>" % (self._ids.encode(), self._count)


def finish_file(place: Path, name: str, index: list[bytes]) -> None:
    """Write the index of a file, then give the file its last name: one that has it is whole."""
    written = place / f"{name}.cdxj"
    written.unlink(missing_ok=True)  # it may be a link to somebody else's file
    with open(written, "xb") as file:
        file.write(b"".join(sorted(index)))
    os.replace(place / f"{name}.warc.gz{WARC_OPEN_SUFFIX}", place / f"{name}.warc.gz")


def mime_of(content_type: bytes) -> str:
    return content_type.partition(b";")[0].strip().lower().decode("latin-1") or "unk"


def _record(kind: bytes, told: bytes, content_type: bytes, head: bytes, body: bytes = b"") -> bytes:
    return b"".join(
        (
            b"WARC/1.1\r\nWARC-Type: %b\r\n" % kind,
            told,
            b"WARC-Block-Digest: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
            % (digest_of(head, body), content_type, len(head) + len(body)),
            head,
            body,
            b"\r\n\r\n",
        )
    )


def _head(exchange: Exchange) -> bytes:
    """As it came, except that a body which came in chunks is kept without them: there the header has another name."""
    if not exchange.header(b"transfer-encoding"):
        return exchange.head
    return _CHUNKED.sub(rb"\1X-Crawler-\2", exchange.head)


def _is_packed(exchange: Exchange) -> bool:
    """Whether compressing the body would gain nothing."""
    if exchange.header(b"content-encoding").lower() not in (b"", b"identity"):
        return True
    return exchange.header(b"content-type").lower().startswith(PACKED)


def _date(at: int) -> bytes:
    whole, rest = divmod(at, 1_000_000)
    return b"%b.%06dZ" % (_second(whole), rest)


@lru_cache(1_000)
def _second(whole: int) -> bytes:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


@lru_cache(1_000)
def _stamp(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y%m%d%H%M%S")


READ_AT_ONCE = 1 << 18
HEADS = 1 << 16
"""Bytes of a record that its headers, and those of the answer in it, are looked for in."""


@dataclass(frozen=True, slots=True)
class GzipMember:
    """One record in its file."""

    offset: int
    length: int
    start: bytes
    """The first bytes of what it holds."""


def repair_all(folder: Path) -> int:
    """Every file in the folder of a run that was still written; how many there were."""
    left = [
        file for file in sorted((folder / WARC_FOLDER).glob(f"*/*.warc.gz{WARC_OPEN_SUFFIX}")) if not _is_led_to(file)
    ]
    for file in left:
        repair(file)
    return len(left)


def _is_led_to(file: Path) -> bool:
    """Whether a link leads to it, so that it is somebody else's."""
    return file.is_symlink() or file.parent.is_symlink() or file.parent.parent.is_symlink()


def repair(file: Path) -> None:
    """Cut it, index it, and let it be a finished one; a file without a whole record is removed."""
    name, lines, end = file.name.removesuffix(f".warc.gz{WARC_OPEN_SUFFIX}"), [], 0
    for member in gzip_members(file):
        end = member.offset + member.length
        if (line := _index_line(member, f"{name}.warc.gz")) is not None:
            lines.append(line)
    if not end:
        file.unlink()
        return
    os.truncate(file, end)
    finish_file(file.parent, name, lines)


def gzip_members(file: Path) -> Iterator[GzipMember]:
    """The whole gzip members of a file, from its begin to the first that is not."""
    with open(file, "rb") as opened:
        offset, rest = 0, b""
        while True:
            unpack, start, length = zlib.decompressobj(31), b"", 0
            while not unpack.eof:
                data = rest or opened.read(READ_AT_ONCE)
                if not data:
                    return
                try:
                    out = unpack.decompress(data)
                except zlib.error:
                    return
                start += out[: HEADS - len(start)]
                rest = unpack.unused_data
                length += len(data) - len(rest)
            yield GzipMember(offset, length, start)
            offset += length


def _index_line(member: GzipMember, filename: str) -> bytes | None:
    """What the index says of a record; None where it says nothing."""
    head, _, block = member.start.partition(b"\r\n\r\n")
    told = _headers(head)
    if told.get(b"warc-type") not in (b"response", b"revisit") or b"warc-target-uri" not in told:
        return None
    answer = block.partition(b"\r\n\r\n")[0]
    status = answer.partition(b" ")[2][:3]
    return index_line(
        told[b"warc-target-uri"].decode(),
        "".join(filter(str.isdecimal, told.get(b"warc-date", b"").decode()))[:14],
        status=int(status) if status.isdigit() else 0,
        mime=mime_of(_headers(answer).get(b"content-type", b"")),
        digest=told.get(b"warc-payload-digest", b"").decode(),
        offset=member.offset,
        length=member.length,
        filename=filename,
    )


def _headers(head: bytes) -> dict[bytes, bytes]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon}
