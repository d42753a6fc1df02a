"""The entries of a tar file, none of which is believed."""

from __future__ import annotations

import bz2
import gzip
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from weft.errors import NOT_SHOWN, Invalid
from weft.projects.zip_entries import Careful, Entry

LARGEST_HEADER = 1 << 20
FARTHEST_BACK = 1024
MOST_IN_A_ROW, MOST_EXTENDED_BYTES = 10, 16_000_000
"""Headers that extend the one after them: how many may follow each other, and how much all of an archive may have."""
EXTENDING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Forward(Careful):
    """A file that is read from its beginning to its end: a header that leads back would be read for ever."""

    _farthest = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        if place < self._farthest - FARTHEST_BACK:
            raise Invalid("the archive", NOT_SHOWN, "one of its headers leads back to what was read")
        self._farthest = max(self._farthest, place)
        return place


def careful_member() -> type[tarfile.TarInfo]:
    """What the library reads the headers of one archive with: it would follow and keep as many as there are."""
    in_a_row = extended_bytes = 0

    class Member(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Member:
            nonlocal in_a_row, extended_bytes
            found = super().frombuf(buf, encoding, errors)
            extends = found.type in EXTENDING
            in_a_row = in_a_row + 1 if extends else 0
            extended_bytes += found.size if extends else 0
            if in_a_row > MOST_IN_A_ROW or extended_bytes > MOST_EXTENDED_BYTES:
                raise Invalid("the archive", NOT_SHOWN, "it has too many headers that extend others")
            if found.type == tarfile.GNUTYPE_SPARSE:
                raise _sparse()
            return found

        def _proc_gnusparse_10(self, *_: object) -> None:
            """The library's own would read a list of holes that is as long as the archive."""
            raise _sparse()

    return Member


def _sparse() -> Invalid:
    return Invalid("the archive", NOT_SHOWN, "it has a file with holes in it; only plain files are allowed")


def plain_tar(file: Path) -> IO[bytes]:
    """The tar file inside a compressed one."""
    with file.open("rb") as opened:
        head = opened.read(3)
    if head[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.open(file, "rb"))
    return bz2.open(file, "rb") if head == b"BZh" else file.open("rb")


def tar_entries(file: Path) -> Iterator[Entry]:
    """The entries of a tar file that is not compressed, in their order; each is to be read before the next."""
    with (
        Forward(file, LARGEST_HEADER) as forward,
        tarfile.open(fileobj=forward, mode="r:", tarinfo=careful_member()) as archive,
    ):
        while (member := archive.next()) is not None:
            vars(archive)["members"] = []  # else it remembers all of them
            if member.isdir() and member.name in (".", "./"):
                continue
            _check(member)
            yield Entry(member.name, member.isdir(), _opener(archive, member))


def _opener(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    return lambda: cast(IO[bytes], archive.extractfile(member))


def _check(member: tarfile.TarInfo) -> None:
    name = member.name[:100]
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is a link or a device; only files are allowed")
    if member.size < 0:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} has a size below zero")
