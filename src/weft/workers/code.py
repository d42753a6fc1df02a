"""The shelf: deployed code on this machine, unpacked once, read-only, with the environment that it needs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from weft.errors import CodeNotReady, Invalid
from weft.ports import Blobs, ReadyCode
from weft.projects.model import Code, Limits, code_key
from weft.workers.environments import Environments
from weft.workers.shared_folders import SharedFolders, in_thread

MOST, MOST_BYTES = 100, 4 << 30
DIGEST = re.compile(r"[0-9a-f]{64}")
ALLOWED = Limits(archive_bytes=1 << 40)
"""Whoever deployed it was asked about its size."""
FILES = "files"
"""What was in the archive, inside the folder of its digest."""


class Shelf:
    """Makes the code of runs ready; several workers of one machine share the folder."""

    def __init__(
        self,
        folder: Path,
        blobs: Blobs,
        environments: Environments,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._blobs, self._environments = blobs, environments
        self._folders = SharedFolders(folder, most=most, most_bytes=most_bytes)

    async def ready(self, code: Code) -> ReadyCode:
        """The code on this machine, fetched and unpacked where it is not; it stays until ``done`` was called as often.

        Raises ``CodeNotReady`` with the reason; the next call tries afresh.
        """
        if not DIGEST.fullmatch(code.digest):
            raise CodeNotReady(f"its digest is {code.digest[:80]!r}; it must be a SHA-256 in hexadecimal")
        folder = await self._folders.take(code.digest, partial(self._unpack, code.digest)) / FILES
        try:
            requirements = _inside(folder, code.requirements) if code.requirements else None
            return ReadyCode(
                digest=code.digest,
                version=code.version,
                folder=_inside(folder, code.root),
                settings=code.settings,
                python=await self._environments.python_for(requirements, code.lock),
            )
        except BaseException:
            self._folders.give_back(code.digest)
            raise

    def done(self, code: Code) -> None:
        """Say that one use of the code is over: where no other is left, it may be dropped."""
        self._folders.give_back(code.digest)
        self._environments.done(code.lock if code.requirements else "")

    @asynccontextmanager
    async def using(self, code: Code) -> AsyncIterator[ReadyCode]:
        """The code, ready for as long as the block lasts."""
        ready = await self.ready(code)
        try:
            yield ready
        finally:
            self.done(code)

    async def _unpack(self, digest: str, folder: Path) -> None:
        data = await self._blobs.get(code_key(digest))
        if data is None:
            raise CodeNotReady(f"the blob {code_key(digest)} is not there; deploy the version again")
        try:
            await in_thread(_write, data, digest, folder)
        except Invalid as problem:
            raise CodeNotReady(str(problem)) from problem


def _write(data: bytes, digest: str, folder: Path) -> None:
    """Unpack an archive for everybody to read and nobody to write."""
    from weft.projects.archive import unpack  # what knows archives is loaded with the first one

    if hashlib.sha256(data).hexdigest() != digest:
        raise CodeNotReady(f"the blob {code_key(digest)} does not have that digest; deploy the version again")
    folder.mkdir(mode=0o755)
    archive = folder / "archive"
    archive.write_bytes(data)
    unpack(archive, folder / FILES, ALLOWED)
    archive.unlink()
    for place, _, names in os.walk(folder / FILES, topdown=False):
        for name in names:
            _keep(Path(place) / name, 0o444)
        _keep(Path(place), 0o555)


def _keep(path: Path, mode: int) -> None:
    """Write through to the disk, so that a machine that loses power has it whole or without its stamp."""
    path.chmod(mode)
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _inside(folder: Path, name: str) -> Path:
    """A place in the code; never one outside of it."""
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()) or not place.exists():
        raise CodeNotReady(f"{name!r} is not in its archive")
    return place
