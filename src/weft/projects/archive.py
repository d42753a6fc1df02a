"""Unpacks untrusted zip and tar archives.

What is in an archive is looked at before anything is written, and counted again while it is: size, number, names,
kinds and how far it inflates. Nothing is believed because a header says so. Files go into a new folder, which gets its
name when all of them are there; memory stays the same whatever the archive holds.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from weft.errors import NOT_SHOWN, Invalid
from weft.projects.model import ArchiveLimits

ENTRY_BYTES = 400
"""Of the directory of a zip file, for one entry with a long name."""
END_BYTES = 22
"""Of the record at the end of a zip file, before its comment."""
SUPPORTED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file or a folder in an archive."""

    name: str
    is_folder: bool
    open: Callable[[], IO[bytes]]


class BoundedFile(io.FileIO):
    """A file of which nobody reads more at once than is allowed."""

    def __init__(self, file: Path, most: int) -> None:
        super().__init__(file, "rb")
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most:
            raise Invalid("the archive", NOT_SHOWN, "it has too many entries, or one of its headers is too long")
        return super().read(self._most if size is None or size < 0 else size)


def zip_entries(file: Path, most: int, largest: int) -> Iterator[ArchiveEntry]:
    """The entries; refused before the first where any of them says what it may not."""
    with BoundedFile(file, max(most * ENTRY_BYTES, 1 << 17)) as careful, zipfile.ZipFile(careful) as archive:
        found = archive.infolist()
        if len(found) > most:
            raise Invalid("the archive", NOT_SHOWN, f"it has {len(found)} entries; {most} are allowed")
        if (said := sum(info.file_size for info in found)) > largest:
            raise Invalid("the archive", NOT_SHOWN, f"it says that it inflates to {said} bytes; {largest} are allowed")
        for info in found:
            _check_zip_entry(info)
        _check_ends(careful, archive, found)
        for info in found:
            yield ArchiveEntry(info.orig_filename, info.is_dir(), _zip_opener(archive, info))


def _check_ends(file: BoundedFile, archive: zipfile.ZipFile, found: list[zipfile.ZipInfo]) -> None:
    """Refuse what has more before its first entry or after its end: another reader might find another archive in it."""
    if min((info.header_offset for info in found), default=archive.start_dir):
        raise Invalid("the archive", NOT_SHOWN, "it has something before its first entry")
    length = len(archive.comment)
    file.seek(-END_BYTES - length, os.SEEK_END)
    end = file.read(END_BYTES)
    if not end.startswith(b"PK\x05\x06") or int.from_bytes(end[-2:], "little") != length:
        raise Invalid("the archive", NOT_SHOWN, "it has something after its end")


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _check_zip_entry(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename[:100]
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is a link or a device; only files are allowed")
    if info.flag_bits & 1:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is encrypted")
    if info.compress_type not in SUPPORTED_METHODS:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is compressed otherwise than by deflate")


LARGEST_HEADER = 1 << 20
FARTHEST_BACK = 1024
CHUNK = 1 << 16
NAME_BYTES = 100
MOST_IN_A_ROW, MOST_EXTENDED_BYTES = 10, 16_000_000
"""Headers that extend the one after them: how many may follow each other, and how much all of an archive may have."""
EXTENDING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class ForwardFile(BoundedFile):
    """A file that is read from its beginning to its end: a header that leads back would be read for ever."""

    _farthest = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        if place < self._farthest - FARTHEST_BACK:
            raise Invalid("the archive", NOT_SHOWN, "one of its headers leads back to what was read")
        self._farthest = max(self._farthest, place)
        return place


def bounded_member() -> type[tarfile.TarInfo]:
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
            if buf[:NAME_BYTES].rstrip(b"\0").count(b"\0"):
                raise _cut_name()
            return found

        def _proc_gnulong(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
            """The library's own takes the name up to the first NUL."""
            found: tarfile.TarInfo = super()._proc_gnulong(archive)  # type: ignore[misc]
            name = found.name if self.type == tarfile.GNUTYPE_LONGNAME else found.linkname
            if self.size - len(name.encode(archive.encoding or "utf-8", archive.errors or "strict")) > len("/\0"):
                raise _cut_name()
            return found

        def _proc_gnusparse_10(self, *_: object) -> None:
            """The library's own would read a list of holes that is as long as the archive."""
            raise _sparse()

    return Member


def _cut_name() -> Invalid:
    return Invalid("the archive", NOT_SHOWN, "the name of an entry has a NUL in it")


def _sparse() -> Invalid:
    return Invalid("the archive", NOT_SHOWN, "it has a file with holes in it; only plain files are allowed")


def uncompressed_tar(file: Path) -> IO[bytes]:
    """The tar file inside a compressed one."""
    with file.open("rb") as opened:
        head = opened.read(3)
    if head[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.open(file, "rb"))
    return cast(IO[bytes], Bzip2File(file)) if head == b"BZh" else file.open("rb")


class Bzip2File(io.FileIO):
    """What a file compresses, stream by stream; unlike in the library, what follows the last has to be another."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, "rb")
        self._stream = bz2.BZ2Decompressor()

    def read(self, size: int | None = -1, /) -> bytes:
        while True:
            if self._stream.eof:
                left = self._stream.unused_data or super().read(CHUNK)
                if not left:
                    return b""
                self._stream = bz2.BZ2Decompressor()
            else:
                left = super().read(CHUNK) if self._stream.needs_input else b""
                if self._stream.needs_input and not left:
                    raise EOFError("it ends too early")
            if found := self._stream.decompress(left, CHUNK):
                return found


def tar_entries(file: Path) -> Iterator[ArchiveEntry]:
    """The entries of a tar file that is not compressed, in their order; each is to be read before the next."""
    with (
        ForwardFile(file, LARGEST_HEADER) as forward,
        tarfile.open(fileobj=forward, mode="r:", tarinfo=bounded_member()) as archive,
    ):
        while (member := archive.next()) is not None:
            vars(archive)["members"] = []  # else it remembers all of them
            if member.isdir() and member.name in (".", "./"):
                continue
            _check_tar_entry(member)
            yield ArchiveEntry(member.name, member.isdir(), _tar_opener(archive, member))
        end = archive.offset
    with file.open("rb") as rest:
        rest.seek(end)
        while piece := rest.read(CHUNK):
            if piece.strip(b"\0"):
                raise Invalid("the archive", NOT_SHOWN, "it has something after its end, or a header that is broken")


def _tar_opener(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    return lambda: cast(IO[bytes], archive.extractfile(member))


def _check_tar_entry(member: tarfile.TarInfo) -> None:
    name = member.name[:100]
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is a link or a device; only files are allowed")
    if member.size < 0:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} has a size below zero")


LONGEST_PATH, LONGEST_NAME, DEEPEST = 1000, 200, 40
DRIVE = re.compile(r"[A-Za-z]:")
ALWAYS_ALLOWED_BYTES = 10_000_000
"""Bytes that may be inflated whatever the archive's size: a small text may well shrink to a thousandth."""
BROKEN_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError, ValueError)
"""What the libraries raise where an archive is broken; ``OSError`` is looked at twice."""


@dataclass(slots=True)
class _InflatedCount:
    """What was inflated so far."""

    limits: ArchiveLimits
    packed: int
    inflated: int = 0
    names: set[str] = field(default_factory=set)
    spellings: dict[str, str] = field(default_factory=dict)
    """Each name and folder as it is, by what a file system may take it for."""

    def add(self, size: int) -> None:
        self.inflated += size
        if self.inflated > self.limits.inflated_bytes:
            raise invalid_archive(f"it inflates to more than {self.limits.inflated_bytes} bytes")
        if self.inflated > max(ALWAYS_ALLOWED_BYTES, self.packed * self.limits.ratio):
            raise invalid_archive(f"it inflates to more than {self.limits.ratio} times its size")

    def see(self, parts: tuple[str, ...]) -> None:
        name = "/".join(parts)
        if name in self.names:
            raise invalid_archive(f"it has two entries of the name {name!r}")
        self.names.add(name)
        for end in range(1, 1 if self.limits.twins else len(parts) + 1):
            path = "/".join(parts[:end])
            twin = self.spellings.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
            if twin != path:
                raise invalid_archive(f"{twin!r} and {path!r} in it are one name where case does not count")
        if len(self.names) > self.limits.entries:
            raise invalid_archive(f"it has more than {self.limits.entries} entries")


def kind_of(file: Path) -> str:
    """``zip`` or ``tar``, by what the file begins with."""
    with file.open("rb") as opened:
        head = opened.read(512)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head[:2] == b"\x1f\x8b" or head[:3] == b"BZh" or head[257:262] == b"ustar":
        return "tar"
    raise invalid_archive("it must be an egg, a wheel or a zip file, or an sdist (.tar.gz, .tar.bz2)")


def unpack(file: Path, folder: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack an archive as ``folder``, which is there whole or not at all.

    Where it is already there it stays as it is. Raises ``Invalid`` where the archive is not what it may be.
    """
    limits = limits or ArchiveLimits()
    size = file.stat().st_size
    if size > limits.archive_bytes:
        raise invalid_archive(f"it has {size} bytes; {limits.archive_bytes} are allowed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        with _explain_errors():
            _fill(file, beside / "files", _InflatedCount(limits, size))
        _publish(beside / "files", folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def invalid_archive(why: str) -> Invalid:
    return Invalid("the archive", NOT_SHOWN, why)


def _publish(files: Path, folder: Path) -> None:
    """Give what was unpacked its name. A folder that somebody else has just finished is as good."""
    try:
        os.rename(files, folder)
    except OSError:
        if not folder.is_dir():
            raise


def _fill(file: Path, folder: Path, count: _InflatedCount) -> None:
    folder.mkdir(mode=0o755)
    for entry in _entries(file, folder.parent, count):
        parts = _parts(entry.name)
        place = folder.joinpath(*parts)
        count.see(parts)
        if entry.is_folder:
            _make_folder(place)
            continue
        _make_folder(place.parent)
        with entry.open() as source, _new_file(place) as target:
            _copy(source, target, count)


def _entries(file: Path, beside: Path, count: _InflatedCount) -> Iterator[ArchiveEntry]:
    if kind_of(file) == "zip":
        yield from zip_entries(file, count.limits.entries, count.limits.inflated_bytes)
    else:
        tar = beside / "whole.tar"
        with uncompressed_tar(file) as source, tar.open("xb") as target:
            _copy(source, target, _InflatedCount(count.limits, count.packed))
        yield from tar_entries(tar)


def _copy(source: IO[bytes], target: IO[bytes], count: _InflatedCount) -> None:
    while piece := source.read(CHUNK):
        count.add(len(piece))
        target.write(piece)


def _parts(name: str) -> tuple[str, ...]:
    """The name of an entry, part by part; refused where it could lead anywhere but below the folder."""
    if not name.isprintable() or "\\" in name or len(name) > LONGEST_PATH:
        raise invalid_archive(
            f"the name of an entry is {name[:100]!r}; it must be printable, without \\ and not too long"
        )
    parts = tuple(name.rstrip("/").removeprefix("./").split("/"))
    if DRIVE.match(name) or any(part in ("", ".", "..") for part in parts):
        raise invalid_archive(f"the name of an entry is {name[:100]!r}; it must lead to a place inside the archive")
    if len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise invalid_archive(f"the name of an entry is {name[:100]!r}; it is too long or too deep")
    return parts


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise invalid_archive(f"{place.name!r} is a file and a folder at once") from None


def _new_file(place: Path) -> IO[bytes]:
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except (FileExistsError, IsADirectoryError):
        raise invalid_archive(f"{place.name!r} is there twice") from None
    return io.FileIO(handle, "wb")


@contextmanager
def _explain_errors() -> Iterator[None]:
    """What a library raises over broken bytes, as our own sentence; what the disk says stays as it is."""
    try:
        yield
    except BROKEN_ARCHIVE as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise invalid_archive(f"it is broken ({str(problem)[:100] or type(problem).__name__})") from problem
