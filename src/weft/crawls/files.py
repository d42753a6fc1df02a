"""The WARC files of crawls, each with its CDXJ index, in the blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from weft.crawler.cdxj import merge_indexes, relocated
from weft.crawls.model import WarcFile
from weft.errors import NotFound
from weft.ports import Blobs

WARC, INDEX = ".warc.gz", ".cdxj"
PART = 4 << 20
INDEXES_AT_ONCE = 64 << 20
"""Bytes of all indexes together that are in memory while they are made one."""
LEAST_OF_INDEX = 16 << 10


class CrawlFiles:
    """What the workers of crawls have delivered."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def all(self, crawl_id: int) -> list[WarcFile]:
        """The files of a crawl, in the order of their names."""
        sizes = {key.rpartition("/")[2]: size for key, size in (await self._blobs.sizes(_folder(crawl_id))).items()}
        indexed = {name.removesuffix(INDEX) for name in sizes if name.endswith(INDEX)}
        return [
            WarcFile(name=name, has_index=name.removesuffix(WARC) in indexed, size=size)
            for name, size in sizes.items()
            if name.endswith(WARC)
        ]

    async def get(self, crawl_id: int, name: str) -> bytes:
        """One of these files, or an index, whole."""
        is_one = name.endswith((WARC, INDEX)) and "/" not in name
        found = await self._blobs.get(f"{_folder(crawl_id)}/{name}") if is_one else None
        if found is None:
            raise NotFound("file", f"{name} of crawl {crawl_id}")
        return found

    async def parts(self, crawl_id: int, name: str, length: int = 0) -> AsyncIterator[bytes]:
        """One of these files, piece by piece: it may be larger than anybody's memory."""
        is_one, start = name.endswith((WARC, INDEX)) and "/" not in name, 0
        while True:
            part = await self._blobs.get_part(f"{_folder(crawl_id)}/{name}", start, length or PART) if is_one else None
            if part is None:
                raise NotFound("file", f"{name} of crawl {crawl_id}")
            if not part:
                return
            yield part
            start += len(part)

    async def index(self, crawl_id: int, joined_as: str = "") -> AsyncIterator[bytes]:
        """The indexes of all files as one CDXJ, in order, piece by piece.

        Each line names the file that it is of; with ``joined_as``, one of that name which has all files one behind the
        other, in the order of ``all``.
        """
        files, before, indexes = await self.all(crawl_id), 0, []
        length = max(LEAST_OF_INDEX, min(PART, INDEXES_AT_ONCE // max(len(files), 1)))
        for each in files:
            if each.has_index:
                name = each.name.removesuffix(WARC) + INDEX
                indexes.append(_lines(self.parts(crawl_id, name, length), joined_as, before))
            before += each.size
        piece = bytearray()
        async for line in merge_indexes(indexes):
            piece += line
            if len(piece) >= LEAST_OF_INDEX:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)

    async def forget(self, crawl_id: int) -> None:
        """Also of files that have come in part only."""
        for key in await self._blobs.keys(f"crawls/{crawl_id}"):
            await self._blobs.delete(key)


async def _lines(parts: AsyncIterator[bytes], joined_as: str, before: int) -> AsyncIterator[list[bytes]]:
    """The whole lines of each part of an index, in order."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield _whole(lines, joined_as, before)
    yield _whole([rest], joined_as, before)


def _whole(lines: list[bytes], joined_as: str, before: int) -> list[bytes]:
    if not joined_as:
        return [line + b"\n" for line in lines if line]
    return sorted(line for line in (relocated(line, joined_as, before) for line in lines) if line)


def _folder(crawl_id: int) -> str:
    return f"crawls/{crawl_id}/warc"
