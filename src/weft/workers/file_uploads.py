"""Files of crawls that arrive in pieces, from workers that reach weft through a gateway.

Each piece is a blob until the last has come, so that the next one may come through another gateway.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from weft.errors import Conflict, Invalid
from weft.ports import Blobs
from weft.workers.file_delivery import key_of
from weft.workers.wire import FILE_PIECE, LARGEST_FILE


class FileUploads:
    """Puts the pieces of a file together. Sending a piece again changes nothing."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def received(self, crawl_id: int, name: str) -> int:
        """How many bytes of it are there, from the start, of those that wait for the rest."""
        there, count = set(await self._blobs.keys(_folder(crawl_id, name))), 0
        while _piece(crawl_id, name, count) in there:
            count += 1
        return count * FILE_PIECE

    async def take(self, crawl_id: int, name: str, data: bytes, *, offset: int, total: int) -> int:
        """Keep the bytes from ``offset`` on; with the last of ``total`` the file is whole."""
        _check(len(data), offset, total)
        number = offset // FILE_PIECE
        is_last = offset + len(data) == total
        if is_last and not number:
            await self._blobs.put(key_of(crawl_id, name), data)
            return total
        if number and not await self._has(crawl_id, name, number - 1):
            if await self._blobs.get_part(key_of(crawl_id, name), 0, 1) is not None:
                return total  # it is whole: the answer to its last piece was lost
            raise Conflict(f"the file {name} has no bytes before {offset} yet; ask how far it is")
        await self._blobs.put(_piece(crawl_id, name, number), data)
        if is_last:
            await self._complete(crawl_id, name, number + 1)
        return offset + len(data)

    async def _has(self, crawl_id: int, name: str, number: int) -> bool:
        return await self._blobs.get_part(_piece(crawl_id, name, number), 0, 1) is not None

    async def _complete(self, crawl_id: int, name: str, pieces: int) -> None:
        with tempfile.TemporaryDirectory(prefix="weft-") as folder:
            path = Path(folder) / "file"
            for number in range(pieces):
                await self._append(path, _piece(crawl_id, name, number))
            await self._blobs.put_file(key_of(crawl_id, name), path)
        for number in reversed(range(pieces)):  # the first goes last: while it is there, the others are as well
            await self._blobs.delete(_piece(crawl_id, name, number))

    async def _append(self, path: Path, key: str) -> None:
        data = await self._blobs.get(key)
        if data is None:
            raise Conflict("a piece of the file has gone; send it again from its start")
        await asyncio.to_thread(_append, path, data)


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def _check(size: int, offset: int, total: int) -> None:
    if not 0 < total <= LARGEST_FILE:
        raise Invalid("total", total, f"a file must have from 1 to {LARGEST_FILE} bytes")
    if offset % FILE_PIECE or offset + size > total or (size != FILE_PIECE and offset + size != total):
        raise Invalid("offset", offset, f"each piece but the last must have {FILE_PIECE} bytes and begin at a multiple")


def _folder(crawl_id: int, name: str) -> str:
    return f"crawls/{crawl_id}/incoming/{name}"


def _piece(crawl_id: int, name: str, number: int) -> str:
    return f"{_folder(crawl_id, name)}/{number:05d}"
