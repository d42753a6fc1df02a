"""The archives of deployed code, kept as blobs for as long as a version has them or a run may still execute them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from weft.db.database import Database
from weft.ports import Blobs
from weft.projects import store
from weft.projects.model import code_key


class Archives:
    """One archive at a time is in memory."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db, self._blobs = db, blobs
        self._turn = asyncio.Lock()
        self._dropped: set[str] = set()
        """Those that no version has, as far as a run may need them."""

    @asynccontextmanager
    async def keeping(self, digest: str, archive: Path) -> AsyncIterator[None]:
        """Keep an archive; inside, a version is made of it."""
        key = code_key(digest)
        async with self._turn:
            data = await asyncio.to_thread(archive.read_bytes)
            await self._blobs.put(key, data)
            yield
            if key not in await self._blobs.keys("code"):
                await self._blobs.put(key, data)  # a delete of the same code came in between

    async def forget(self, digests: Collection[str]) -> None:
        """Remove archives that no version has and no run needs; the others are looked at when this is called again."""
        self._dropped.update(digests)
        for digest in tuple(self._dropped):
            if not await self._is_needed(digest):
                self._dropped.discard(digest)
                await self._forget(digest)

    async def _is_needed(self, digest: str) -> bool:
        return await self._db.read(lambda tx: store.live_run(tx, None, digest)) is not None

    async def _forget(self, digest: str) -> None:
        """A deploy that has just kept the same one gets it back."""
        if await self._is_used(digest):
            return
        async with self._turn:
            data = await self._blobs.get(code_key(digest))
            await self._blobs.delete(code_key(digest))
            if data is not None and await self._is_used(digest):
                await self._blobs.put(code_key(digest), data)

    async def _is_used(self, digest: str) -> bool:
        return await self._db.read(lambda tx: store.is_used(tx, digest))
