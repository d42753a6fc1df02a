"""Folders in which an archive arrives, and is unpacked to be checked: gone with whoever made them.

Each is locked by its process from before anybody can see it, and the kernel takes the lock back from the dead. So the
next who takes a folder knows which were left behind, also where several processes share them.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.foreign_files import remove

HIDDEN = "."
"""Begins the name of a folder that is not locked yet."""

OLD_SECONDS = 86_400
"""What nobody has locked for so long was left behind before it could be."""


class Incoming:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[Path, int] = {}

    @contextmanager
    def place(self, purpose: str) -> Iterator[Path]:
        """A new folder, which is gone afterwards."""
        place = self.take(purpose)
        try:
            yield place
        finally:
            self.give_back(place)

    def take(self, purpose: str) -> Path:
        """A new folder, until it is given back or this process dies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        hidden = Path(tempfile.mkdtemp(prefix=f"{HIDDEN}{purpose}-", dir=self.folder))
        lock = _locked(hidden)
        place = hidden.rename(hidden.with_name(hidden.name.removeprefix(HIDDEN)))
        if lock is not None:
            self._locks[place] = lock
        return place

    def give_back(self, place: Path) -> None:
        remove(place)
        if (lock := self._locks.pop(place, None)) is not None:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove what the dead have left."""
        for each in list(self.folder.iterdir()):
            if each.name.startswith(HIDDEN) and not _is_old(each):
                continue
            if (lock := _locked(each)) is not None:
                remove(each)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """The folder, locked; None where another has it, or it is gone, or cannot be locked."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _is_old(folder: Path) -> bool:
    try:
        return folder.stat().st_mtime < time.time() - OLD_SECONDS
    except FileNotFoundError:
        return False
