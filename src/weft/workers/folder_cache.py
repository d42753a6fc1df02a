"""Folders that are made once and shared by every process of this machine; those long unused are dropped.

Beside each folder ``name`` stands the file ``name~``: who holds it shared uses the folder, who holds it alone makes or
drops it. The kernel gives a dead process's holds back. The stamp in a folder is written last: without it, the folder
does not count.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import CodeNotReady

STAMP = ".complete"
LOOK_SECONDS = 0.05
"""How often a folder that another process makes is looked at."""

T = TypeVar("T")
Make = Callable[[Path], Awaitable[None]]
"""Fills a folder that is not there yet, and writes it through to the disk."""


class FolderCache:
    """The folders below one, at most ``most`` of them and ``most_bytes`` together, besides those in use."""

    def __init__(self, folder: Path, *, most: int, most_bytes: int) -> None:
        self._folder, self._most, self._most_bytes = folder, most, most_bytes
        self._making: dict[str, asyncio.Task[int]] = {}
        self._locks: dict[str, int] = {}
        self._uses: dict[str, int] = {}

    async def take(self, name: str, make: Make) -> Path:
        """The whole folder, made where it is missing; it stays until it was given back as often as it was taken."""
        self._uses[name] = self._uses.get(name, 0) + 1
        try:
            while name not in self._locks:
                await self._hold(name, make)
        except BaseException:
            self.give_back(name)
            raise
        return self._folder / name

    def give_back(self, name: str) -> None:
        """Say that one use is over."""
        self._uses[name] -= 1
        if self._uses[name]:
            return
        del self._uses[name]
        if name in self._locks:
            lock = self._locks.pop(name)
            os.utime(lock)
            os.close(lock)

    async def _hold(self, name: str, make: Make) -> None:
        """Have the folder once, however many wait; what goes wrong is told to all of them, and then forgotten."""
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = asyncio.create_task(self._made(name, make))
            making.add_done_callback(lambda done: self._keep(name, done))
        await asyncio.shield(making)  # being cancelled ends this wait, not the work that others wait for
        await asyncio.sleep(0)  # one that is done has told nobody yet, and waiting for it alone lets nobody else run

    def _keep(self, name: str, done: asyncio.Task[int]) -> None:
        del self._making[name]
        if done.cancelled() or done.exception() is not None:
            return
        if name in self._uses:
            self._locks[name] = done.result()
        else:
            os.close(done.result())

    async def _made(self, name: str, make: Make) -> int:
        """A shared hold of the whole folder."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            while True:
                lock = self._lock(name, fcntl.LOCK_SH)
                if lock is not None and self._size(name) is not None:
                    os.utime(lock)
                    return lock
                if lock is not None:
                    os.close(lock)
                if not await self._make(name, make):
                    await asyncio.sleep(LOOK_SECONDS)
        except OSError as problem:
            raise CodeNotReady(problem.strerror or str(problem)) from problem

    async def _make(self, name: str, make: Make) -> bool:
        """Make the folder unless somebody is at it; False where somebody is."""
        lock = self._lock(name, fcntl.LOCK_EX)
        if lock is None:
            return False
        try:
            if self._size(name) is None:
                path = self._folder / name
                await in_thread(remove, path)
                try:
                    await make(path)
                    await in_thread(stamp, path)
                except BaseException:
                    self._forget(name)
                    raise
                os.utime(lock)
                await in_thread(self._drop_oldest, name)
        finally:
            os.close(lock)
        return True

    def _lock(self, name: str, how: int) -> int | None:
        """The file beside a folder, locked; None while others have it, or where it was just removed."""
        path = self._folder / f"{name}~"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(lock)
        return None

    def _size(self, name: str) -> int | None:
        """How much a whole folder holds; None where it is not whole."""
        try:
            return int((self._folder / name / STAMP).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _drop_oldest(self, but: str) -> None:
        """Drop what was not used for longest, until the rest is within bounds or in use."""
        by_age = sorted(self._folder.glob("*~"), key=_used_at)
        sizes = {path.name[:-1]: self._size(path.name[:-1]) or 0 for path in by_age}
        for name in [name for name in sizes if name != but]:
            if len(sizes) <= self._most and sum(sizes.values()) <= self._most_bytes:
                return
            if self._drop(name):
                del sizes[name]

    def _drop(self, name: str) -> bool:
        lock = self._lock(name, fcntl.LOCK_EX)
        if lock is None:
            return False
        try:
            self._forget(name)
        finally:
            os.close(lock)
        return True

    def _forget(self, name: str) -> None:
        """Remove a folder that is held alone, and the file beside it."""
        remove(self._folder / name)
        (self._folder / f"{name}~").unlink(missing_ok=True)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do ``work`` in a thread; whoever is cancelled meanwhile waits for it, so that nothing is written unheld."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _used_at(lock: Path) -> float:
    try:
        return lock.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def stamp(path: Path) -> None:
    """Say that the folder is whole, and how large it is."""
    size = sum(os.lstat(Path(folder) / file).st_size for folder, _, files in os.walk(path) for file in files)
    with (path / STAMP).open("w") as file:
        file.write(str(size))
        file.flush()
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a folder, also one that nobody may write to; without its stamp first, so that it is never half."""
    if not path.exists():
        return
    path.chmod(0o700)
    (path / STAMP).unlink(missing_ok=True)
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o700)
    shutil.rmtree(path)
