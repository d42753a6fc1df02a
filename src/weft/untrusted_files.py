"""Files in a folder that foreign code may write to: what lies there may be a link, a pipe or without end.

Whoever reads for others with rights of its own follows no link, waits for no writer and takes no more than it wants.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

LARGEST_FILE = 16_000_000
"""Bytes of a file that a person names: tasks, a spec, a plan."""

REMOVED_WITHIN_SECONDS = 60.0
"""After so long a folder is left as it is: somebody fills it as fast as it is emptied."""


@contextmanager
def folder_at(path: Path | str, folder: int | None = None) -> Iterator[int | None]:
    """A descriptor of a folder, in ``folder`` where given; None where there is none, or another thing in its place."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | CAREFULLY, dir_fd=folder)
    except OSError as problem:
        if not _is_nothing(problem):
            raise
        yield None
        return
    try:
        yield found
    finally:
        os.close(found)


@contextmanager
def file_at(path: Path | str, folder: int | None = None) -> Iterator[int | None]:
    """A descriptor to read a regular file, in ``folder`` where given; None where there is no such."""
    try:
        file = os.open(path, os.O_RDONLY | CAREFULLY, dir_fd=folder)
    except OSError as problem:
        if not _is_nothing(problem):
            raise
        yield None
        return
    try:
        yield file if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)


def read_at_most(path: Path, most: int) -> bytes | None:
    """What a regular file holds; None where there is no such, or where it is longer than ``most`` bytes."""
    with file_at(path) as file:
        if file is None or os.fstat(file).st_size > most:
            return None
        with open(file, "rb", buffering=0, closefd=False) as opened:
            return opened.read(most)


def read_named(path: Path, most: int) -> bytes:
    """What a file holds that a person has named, maybe by a link; ``OSError`` where it is none or has more bytes.

    A pipe is none: nobody may ever write to it.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file, but a folder, a pipe or a device", str(path))
        data = file.read(most + 1) if found.st_size <= most else b""
    if found.st_size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def create(path: Path) -> int:
    """A descriptor of a new file, for its owner alone. What lay in its place is gone; what it led to is as it was."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o600)


def remove(path: Path) -> None:
    """Remove a folder and all in it, as far as that is allowed: however deep it is, and whatever was locked.

    A folder inside another is moved up before it is emptied, so that no depth is too deep.
    """
    try:
        with folder_at(path) as top:
            if top is not None:
                _empty(top, time.monotonic() + REMOVED_WITHIN_SECONDS)
        path.rmdir()
    except OSError:
        return


def _empty(top: int, until: float) -> None:
    names = (f"~{number}" for number in itertools.count())
    while (folders := _without_files(top)) and time.monotonic() < until:
        for folder in folders:
            _unlock(folder, top)
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CAREFULLY, dir_fd=top)
            try:
                for deeper in _without_files(inner):
                    _unlock(deeper, inner)
                    os.rename(deeper, _free(names, top), src_dir_fd=inner, dst_dir_fd=top)
            finally:
                os.close(inner)
            os.rmdir(folder, dir_fd=top)


def _without_files(folder: int) -> list[str]:
    """Remove everything that is no folder; returns the folders."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _unlock(name: str, folder: int) -> None:
    os.chmod(name, 0o700, dir_fd=folder)


def _free(names: Iterator[str], folder: int) -> str:
    """A name that nothing in the folder has."""
    for name in names:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise AssertionError("names have no end")


def _is_nothing(problem: OSError) -> bool:
    """Whether the error says that no such file or folder is there, rather than that it cannot be had now."""
    return problem.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES, errno.EPERM)
