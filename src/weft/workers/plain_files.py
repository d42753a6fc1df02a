"""Files that a process of somebody else's has left in its folder: read and removed where they are, never by a link.

Such a process may put a link where a file is looked for, or in place of a folder on the way, at any moment; so the way
is walked from one open folder to the next, and what is read is what was opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

FOLDER_ONLY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NO_PLAIN_FILE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""What is said of a name that is nothing, a link, beneath a file, or a socket."""


@contextmanager
def opened(folder: Path, names: Sequence[str]) -> Iterator[Path | None]:
    """By which path a file beneath ``folder`` can be read now; None where it is no plain one, or a link leads to it."""
    with ExitStack() as stack:
        place = _place(folder, names[:-1], stack)
        file = _open(names[-1], FILE_ONLY, place, stack) if place is not None else None
        if file is None or not stat.S_ISREG(os.fstat(file).st_mode):
            yield None
        else:
            short = Path(f"/proc/self/fd/{file}")
            yield short if short.exists() else Path(f"/dev/fd/{file}")


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove a file beneath ``folder``, or a link that is in its place."""
    with ExitStack() as stack, suppress(FileNotFoundError):
        place = _place(folder, names[:-1], stack)
        if place is not None:
            os.unlink(names[-1], dir_fd=place)


def _place(folder: Path, names: Sequence[str], stack: ExitStack) -> int | None:
    place = _open(str(folder), os.O_RDONLY | os.O_DIRECTORY, None, stack)
    for name in names:
        place = _open(name, FOLDER_ONLY, place, stack) if place is not None else None
    return place


def _open(name: str, flags: int, place: int | None, stack: ExitStack) -> int | None:
    try:
        found = os.open(name, flags | os.O_CLOEXEC, dir_fd=place)
    except OSError as problem:
        if problem.errno in NO_PLAIN_FILE:
            return None
        raise
    stack.callback(os.close, found)
    return found
