"""WARC files that a dead process has left: cut after the last record that is whole, indexed, and given their name."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.crawls.cdxj import line_of
from weft.crawls.warc import finish, mime_of
from weft.crawls.warc_names import FOLDER, OPEN

READ_AT_ONCE = 1 << 18
HEADS = 1 << 16
"""Bytes of a record that its headers, and those of the answer in it, are looked for in."""


@dataclass(frozen=True, slots=True)
class Member:
    """One record in its file."""

    offset: int
    length: int
    start: bytes
    """The first bytes of what it holds."""


def mend_all(folder: Path) -> int:
    """Every file in the folder of a run that was still written; how many there were."""
    left = [file for file in sorted((folder / FOLDER).glob(f"*/*.warc.gz{OPEN}")) if not _is_led_to(file)]
    for file in left:
        mend(file)
    return len(left)


def _is_led_to(file: Path) -> bool:
    """Whether a link leads to it, so that it is somebody else's."""
    return file.is_symlink() or file.parent.is_symlink() or file.parent.parent.is_symlink()


def mend(file: Path) -> None:
    """Cut it, index it, and let it be a finished one; a file without a whole record is removed."""
    name, lines, end = file.name.removesuffix(f".warc.gz{OPEN}"), [], 0
    for member in members(file):
        end = member.offset + member.length
        if (line := _line(member, f"{name}.warc.gz")) is not None:
            lines.append(line)
    if not end:
        file.unlink()
        return
    os.truncate(file, end)
    finish(file.parent, name, lines)


def members(file: Path) -> Iterator[Member]:
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
            yield Member(offset, length, start)
            offset += length


def _line(member: Member, filename: str) -> bytes | None:
    """What the index says of a record; None where it says nothing."""
    head, _, block = member.start.partition(b"\r\n\r\n")
    told = _headers(head)
    if told.get(b"warc-type") not in (b"response", b"revisit") or b"warc-target-uri" not in told:
        return None
    answer = block.partition(b"\r\n\r\n")[0]
    status = answer.partition(b" ")[2][:3]
    return line_of(
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
