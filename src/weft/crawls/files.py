"""The raw exchanges of crawls that are kept: WARC files, each with its index, in the blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from weft.crawls.cdxj import merged
from weft.crawls.report import WarcFile
from weft.errors import NotFound
from weft.ports import Blobs

WARC, INDEX = ".warc.gz", ".cdxj"
PART = 4 << 20


class CrawlFiles:
    """What the workers of crawls have delivered."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def all(self, crawl_id: int) -> list[WarcFile]:
        """The files of a crawl, in the order of their names."""
        names = [key.rpartition("/")[2] for key in await self._blobs.keys(_folder(crawl_id))]
        indexed = {name.removesuffix(INDEX) for name in names if name.endswith(INDEX)}
        files = [name for name in names if name.endswith(WARC)]
        return [WarcFile(name=name, has_index=name.removesuffix(WARC) in indexed) for name in files]

    async def get(self, crawl_id: int, name: str) -> bytes:
        """One of these files, or an index, whole."""
        is_one = name.endswith((WARC, INDEX)) and "/" not in name
        found = await self._blobs.get(f"{_folder(crawl_id)}/{name}") if is_one else None
        if found is None:
            raise NotFound("file", f"{name} of crawl {crawl_id}")
        return found

    async def parts(self, crawl_id: int, name: str) -> AsyncIterator[bytes]:
        """One of these files, piece by piece: it may be larger than anybody's memory."""
        is_one, start = name.endswith((WARC, INDEX)) and "/" not in name, 0
        while True:
            part = await self._blobs.get_part(f"{_folder(crawl_id)}/{name}", start, PART) if is_one else None
            if part is None:
                raise NotFound("file", f"{name} of crawl {crawl_id}")
            if not part:
                return
            yield part
            start += len(part)

    async def index(self, crawl_id: int) -> bytes:
        """The indexes of all files as one CDXJ, in order."""
        names = [each.name.removesuffix(WARC) + INDEX for each in await self.all(crawl_id) if each.has_index]
        return b"".join(merged([(await self.get(crawl_id, name)).splitlines(keepends=True) for name in names]))

    async def forget(self, crawl_id: int) -> None:
        """Also of files that have come in part only."""
        for key in await self._blobs.keys(f"crawls/{crawl_id}"):
            await self._blobs.delete(key)


def _folder(crawl_id: int) -> str:
    return f"crawls/{crawl_id}/warc"
