"""Uploads of remote workers that arrive in pieces: logs, and files of crawls.

A piece of a log is a segment of the stored log at once, a piece of a file is a blob until the last has come; so the
next one may come through another gateway, and neither needs to fit into anybody's memory.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

from weft.errors import Conflict, Invalid
from weft.logs.storage import LogSegment, delete_log, read_index, segment_key, store_index, store_log, store_segment
from weft.ports import Blobs
from weft.workers.remote.wire import FILE_PIECE, LARGEST_FILE, LARGEST_LOG, PIECE, log_key
from weft.workers.warc_delivery import key_of

BEGUN = "uploads"
"""Where each log is noted until it is whole, with what its pieces hold. What is noted here for long was left behind."""

Attempt = tuple[int, int]
"""A run, and which of its attempts."""


class LogUploads:
    """Puts the pieces of a log together. Sending a piece again changes nothing."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def received(self, run_id: int, attempt: int) -> int:
        """How many bytes are there, from the start."""
        key = log_key(run_id, attempt)
        if (short := await self._blobs.get(key)) is not None:
            return len(short)
        if (index := await read_index(self._blobs, key)) is not None:
            return sum(each.size for each in index.segments)
        return PIECE * await self._pieces(run_id, attempt)

    async def take(self, run_id: int, attempt: int, data: bytes, *, offset: int, total: int) -> int:
        """Keep the bytes from ``offset`` on; with the last of ``total`` the log is whole."""
        _check_log_piece(len(data), offset, total)
        key, number = log_key(run_id, attempt), offset // PIECE
        if len(data) == total:
            await store_log(self._blobs, key, total, lambda start, size: data[start : start + size])
            return total
        if number and await self._blobs.get(segment_key(key, number - 1)) is None:
            raise Conflict(f"the log of run {run_id} has no bytes before {offset} yet; ask how far it is")
        if await read_index(self._blobs, key) is not None:  # the answer to its last piece was lost
            return total
        known = await self._noted(run_id, attempt)
        if not known:
            await self._note(run_id, attempt, [])
        segment = await store_segment(self._blobs, key, number, data)
        await self._note(run_id, attempt, [*known[:number], segment, *known[number + 1 :]])
        if offset + len(data) == total:
            await self._complete(run_id, attempt, total)
        return offset + len(data)

    async def begun(self) -> list[Attempt]:
        """Those whose log is not whole."""
        return [(int(run_id), int(attempt)) for _, run_id, attempt in map(_split, await self._blobs.keys(BEGUN))]

    async def forget(self, run_id: int, attempt: int) -> None:
        """Drop the pieces of a log that will not be whole; one that is whole stays."""
        key = log_key(run_id, attempt)
        if await read_index(self._blobs, key) is None:
            await delete_log(self._blobs, key)
        await self._blobs.delete(_note_key(run_id, attempt))

    async def _complete(self, run_id: int, attempt: int, total: int) -> None:
        key = log_key(run_id, attempt)
        sizes, known = (
            [min(PIECE, total - offset) for offset in range(0, total, PIECE)],
            await self._noted(run_id, attempt),
        )
        counted = [each.size for each in known] == sizes
        await store_index(self._blobs, key, known if counted else [LogSegment(size) for size in sizes])
        await self._blobs.delete(_note_key(run_id, attempt))

    async def _noted(self, run_id: int, attempt: int) -> list[LogSegment]:
        note = await self._blobs.get(_note_key(run_id, attempt))
        return msgspec.json.decode(note, type=list[LogSegment]) if note else []

    async def _note(self, run_id: int, attempt: int, segments: list[LogSegment]) -> None:
        await self._blobs.put(_note_key(run_id, attempt), msgspec.json.encode(segments))

    async def _pieces(self, run_id: int, attempt: int) -> int:
        """How many are there one after another."""
        key, count = log_key(run_id, attempt), 0
        there = set(await self._blobs.keys(key.removesuffix(".log")))
        while segment_key(key, count) in there:
            count += 1
        return count


def _check_log_piece(size: int, offset: int, total: int) -> None:
    if not 0 < total <= LARGEST_LOG:
        raise Invalid("total", total, f"a log must have from 1 to {LARGEST_LOG} bytes")
    if offset % PIECE or offset + size > total or (size != PIECE and offset + size != total):
        raise Invalid("offset", offset, f"each piece but the last must have {PIECE} bytes and begin at a multiple")


def _note_key(run_id: int, attempt: int) -> str:
    return f"{BEGUN}/{run_id}/{attempt}"


def _split(key: str) -> list[str]:
    return key.split("/")


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
        _check_file_piece(len(data), offset, total)
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


def _check_file_piece(size: int, offset: int, total: int) -> None:
    if not 0 < total <= LARGEST_FILE:
        raise Invalid("total", total, f"a file must have from 1 to {LARGEST_FILE} bytes")
    if offset % FILE_PIECE or offset + size > total or (size != FILE_PIECE and offset + size != total):
        raise Invalid("offset", offset, f"each piece but the last must have {FILE_PIECE} bytes and begin at a multiple")


def _folder(crawl_id: int, name: str) -> str:
    return f"crawls/{crawl_id}/incoming/{name}"


def _piece(crawl_id: int, name: str, number: int) -> str:
    return f"{_folder(crawl_id, name)}/{number:05d}"
