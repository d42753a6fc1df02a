"""Unpacks archives that strangers send.

What is in an archive is looked at before anything is written, and counted again while it is: size, number, names, kinds
and how far it inflates. Nothing is believed because a header says so. Files go into a new folder, which gets its name
when all of them are there; memory stays the same whatever the archive holds.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from weft.errors import NOT_SHOWN, Invalid
from weft.projects.model import Limits
from weft.projects.tar_entries import plain_tar, tar_entries
from weft.projects.zip_entries import Entry, zip_entries

CHUNK = 1 << 16
LONGEST_PATH, LONGEST_NAME, DEEPEST = 1000, 200, 40
DRIVE = re.compile(r"[A-Za-z]:")
ALWAYS_ALLOWED = 10_000_000
"""Bytes that may be inflated whatever the archive's size: a small text may well shrink to a thousandth."""
WRONG = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError, ValueError)
"""What the libraries raise where an archive is broken; ``OSError`` is looked at twice."""


@dataclass(slots=True)
class _Count:
    """What was inflated so far."""

    limits: Limits
    packed: int
    inflated: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, size: int) -> None:
        self.inflated += size
        if self.inflated > self.limits.inflated_bytes:
            raise refused(f"it inflates to more than {self.limits.inflated_bytes} bytes")
        if self.inflated > max(ALWAYS_ALLOWED, self.packed * self.limits.ratio):
            raise refused(f"it inflates to more than {self.limits.ratio} times its size")

    def see(self, name: str) -> None:
        if name in self.names:
            raise refused(f"it has two entries of the name {name!r}")
        self.names.add(name)
        if len(self.names) > self.limits.entries:
            raise refused(f"it has more than {self.limits.entries} entries")


def kind_of(file: Path) -> str:
    """``zip`` or ``tar``, by what the file begins with."""
    with file.open("rb") as opened:
        head = opened.read(512)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head[:2] == b"\x1f\x8b" or head[:3] == b"BZh" or head[257:262] == b"ustar":
        return "tar"
    raise refused("it must be an egg, a wheel or a zip file, or an sdist (.tar.gz, .tar.bz2)")


def unpack(file: Path, folder: Path, limits: Limits | None = None) -> None:
    """Unpack an archive as ``folder``, which is there whole or not at all.

    Where it is already there it stays as it is. Raises ``Invalid`` where the archive is not what it may be.
    """
    limits = limits or Limits()
    size = file.stat().st_size
    if size > limits.archive_bytes:
        raise refused(f"it has {size} bytes; {limits.archive_bytes} are allowed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        with _explained():
            _fill(file, beside / "files", _Count(limits, size))
        _name(beside / "files", folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def refused(why: str) -> Invalid:
    return Invalid("the archive", NOT_SHOWN, why)


def _name(files: Path, folder: Path) -> None:
    """Give what was unpacked its name. A folder that somebody else has just finished is as good."""
    try:
        os.rename(files, folder)
    except OSError:
        if not folder.is_dir():
            raise


def _fill(file: Path, folder: Path, count: _Count) -> None:
    folder.mkdir(mode=0o755)
    for entry in _entries(file, folder.parent, count):
        place = folder.joinpath(*_parts(entry.name))
        count.see(str(place))
        if entry.is_folder:
            _make_folder(place)
            continue
        _make_folder(place.parent)
        with entry.open() as source, _new_file(place) as target:
            _copy(source, target, count)


def _entries(file: Path, beside: Path, count: _Count) -> Iterator[Entry]:
    if kind_of(file) == "zip":
        yield from zip_entries(file, count.limits.entries, count.limits.inflated_bytes)
    else:
        tar = beside / "whole.tar"
        with plain_tar(file) as source, tar.open("xb") as target:
            _copy(source, target, _Count(count.limits, count.packed))
        yield from tar_entries(tar)


def _copy(source: IO[bytes], target: IO[bytes], count: _Count) -> None:
    while piece := source.read(CHUNK):
        count.add(len(piece))
        target.write(piece)


def _parts(name: str) -> tuple[str, ...]:
    """The name of an entry, part by part; refused where it could lead anywhere but below the folder."""
    if not name.isprintable() or "\\" in name or len(name) > LONGEST_PATH:
        raise refused(f"the name of an entry is {name[:100]!r}; it must be printable, without \\ and not too long")
    parts = tuple(name.rstrip("/").removeprefix("./").split("/"))
    if DRIVE.match(name) or any(part in ("", ".", "..") for part in parts):
        raise refused(f"the name of an entry is {name[:100]!r}; it must lead to a place inside the archive")
    if len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise refused(f"the name of an entry is {name[:100]!r}; it is too long or too deep")
    return parts


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise refused(f"{place.name!r} is a file and a folder at once") from None


def _new_file(place: Path) -> IO[bytes]:
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except (FileExistsError, IsADirectoryError):
        raise refused(f"{place.name!r} is there twice") from None
    return io.FileIO(handle, "wb")


@contextmanager
def _explained() -> Iterator[None]:
    """What a library raises over broken bytes, as our own sentence; what the disk says stays as it is."""
    try:
        yield
    except WRONG as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise refused(f"it is broken ({str(problem)[:100] or type(problem).__name__})") from problem
