"""Files in a folder that foreign code may write to: what lies there may be a link, a pipe or without end.

Whoever reads for others with rights of its own follows no link, waits for no writer and takes no more than it wants.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def folder_at(path: Path) -> Iterator[int | None]:
    """A descriptor of the folder; None where there is none, or something else lies in its place."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | CAREFULLY)
    except OSError as problem:
        if not _is_nothing(problem):
            raise
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


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


def create(path: Path) -> int:
    """A descriptor of a new file, for its owner alone. What lay in its place is gone; what it led to is as it was."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o600)


def _is_nothing(problem: OSError) -> bool:
    """Whether the error says that no such file or folder is there, rather than that it cannot be had now."""
    return problem.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES, errno.EPERM)
