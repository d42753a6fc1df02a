"""What a blob's key may be, whatever keeps it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from weft.errors import Invalid

SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,200}")
LONGEST_KEY = 1000


def checked(key: str) -> str:
    """The key, where it is one: names of plain characters, joined by slashes."""
    if len(key) > LONGEST_KEY or not all(SEGMENT.fullmatch(part) and part.strip(".") for part in key.split("/")):
        raise Invalid("a blob key", key, "it must be names of letters, digits, . _ and -, joined by /")
    return key


REMOVED_FOLDERS = 10
COPIED_AT_ONCE = 1 << 20
INCOMING = "~"
"""Begins the name of a file that is being written; no key can hold it."""


class FileBlobs:
    """Opened with ``file:/absolute/path`` or ``file:relative/path``. The directory is made when it is first needed."""

    def __init__(self, url: str) -> None:
        path = url.removeprefix("file:")
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            path = "" if host not in ("", "localhost") else slash + rest
        if not path or "\0" in path:
            raise Invalid("the blobs URL", url, "it must be file: and a path, such as file:./weft-data")
        self._root = Path(path)

    async def put(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(_put, self._path(key), lambda file: file.write(data), self._root)

    async def put_file(self, key: str, path: Path) -> None:
        await asyncio.to_thread(_put, self._path(key), lambda file: _copy(path, file), self._root)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(_get, self._path(key))

    async def get_part(self, key: str, start: int, length: int) -> bytes | None:
        return await asyncio.to_thread(_get_part, self._path(key), start, length)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(_delete, self._path(key), self._root)

    async def keys(self, folder: str) -> list[str]:
        return await asyncio.to_thread(_keys, self._path(folder), self._root)

    async def sizes(self, folder: str) -> dict[str, int]:
        return await asyncio.to_thread(_sizes, self._path(folder), self._root)

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*checked(key).split("/"))


def _put(path: Path, write: Callable[[BinaryIO], object], root: Path) -> None:
    """Write beside, then rename: a reader finds the old bytes or the new ones."""
    try:
        for _ in range(REMOVED_FOLDERS):
            try:
                _make_folder(path.parent)
                return _replace(path, write)
            except FileNotFoundError:
                continue  # The folder was empty, and somebody's delete has just removed it.
        _make_folder(path.parent)
        _replace(path, write)
    except (NotADirectoryError, IsADirectoryError) as taken:
        key = path.relative_to(root).as_posix()
        raise Invalid("a blob key", key, "it may not lie below another key, nor another below it") from taken


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    handle, name = tempfile.mkstemp(prefix=INCOMING, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _fsync_folder(path.parent)


def _copy(path: Path, into: BinaryIO) -> None:
    with open(path, "rb") as file:
        shutil.copyfileobj(file, into, COPIED_AT_ONCE)


def _get_part(path: Path, start: int, length: int) -> bytes | None:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(length)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _get(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _delete(path: Path, root: Path) -> None:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return
    for folder in path.parents:
        if folder == root or not _removed(folder):
            return


def _keys(folder: Path, root: Path) -> list[str]:
    files = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    return sorted(file.relative_to(root).as_posix() for file in files if not file.name.startswith(INCOMING))


def _sizes(folder: Path, root: Path) -> dict[str, int]:
    found = {}
    for key in _keys(folder, root):
        with suppress(FileNotFoundError):  # It was deleted meanwhile.
            found[key] = (root / key).stat().st_size
    return found


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False  # Not empty, or already gone.
    return True


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, for us alone, so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass  # Made by another put meanwhile. Where it is a file, the next step says so.
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
