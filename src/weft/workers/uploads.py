"""Logs that arrive in pieces. A piece is a segment of the kept log at once, so that the next one may come through
another gateway, and a long log need not fit into anybody's memory."""

from __future__ import annotations

import msgspec

from weft.errors import Conflict, Invalid
from weft.ports import Blobs
from weft.runs.log_shelf import Segment, forget_log, index_of, keep_index, keep_log, keep_segment, open_log, segment_key
from weft.workers.wire import LARGEST_LOG, PIECE, log_key

BEGUN = "uploads"
"""Where each log is noted until it is whole, with what its pieces hold. What is noted here for long was left behind."""

Attempt = tuple[int, int]
"""A run, and which of its attempts."""


class Uploads:
    """Puts the pieces of a log together. Sending a piece again changes nothing."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def received(self, run_id: int, attempt: int) -> int:
        """How many bytes are there, from the start."""
        whole = await open_log(self._blobs, log_key(run_id, attempt))
        if whole is not None:
            return whole.size
        return PIECE * await self._pieces(run_id, attempt)

    async def take(self, run_id: int, attempt: int, data: bytes, *, offset: int, total: int) -> int:
        """Keep the bytes from ``offset`` on; with the last of ``total`` the log is whole."""
        _check(len(data), offset, total)
        key, number = log_key(run_id, attempt), offset // PIECE
        if len(data) == total:
            await keep_log(self._blobs, key, total, lambda start, size: data[start : start + size])
            return total
        if number and await self._blobs.get(segment_key(key, number - 1)) is None:
            raise Conflict(f"the log of run {run_id} has no bytes before {offset} yet; ask how far it is")
        if await index_of(self._blobs, key) is not None:  # the answer to its last piece was lost
            return total
        known = await self._noted(run_id, attempt)
        if not known:
            await self._note(run_id, attempt, [])
        segment = await keep_segment(self._blobs, key, number, data)
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
        if await index_of(self._blobs, key) is None:
            await forget_log(self._blobs, key)
        await self._blobs.delete(_note(run_id, attempt))

    async def _complete(self, run_id: int, attempt: int, total: int) -> None:
        key = log_key(run_id, attempt)
        sizes, known = (
            [min(PIECE, total - offset) for offset in range(0, total, PIECE)],
            await self._noted(run_id, attempt),
        )
        counted = [each.size for each in known] == sizes
        await keep_index(self._blobs, key, known if counted else [Segment(size) for size in sizes])
        await self._blobs.delete(_note(run_id, attempt))

    async def _noted(self, run_id: int, attempt: int) -> list[Segment]:
        note = await self._blobs.get(_note(run_id, attempt))
        return msgspec.json.decode(note, type=list[Segment]) if note else []

    async def _note(self, run_id: int, attempt: int, segments: list[Segment]) -> None:
        await self._blobs.put(_note(run_id, attempt), msgspec.json.encode(segments))

    async def _pieces(self, run_id: int, attempt: int) -> int:
        """How many are there one after another."""
        key, count = log_key(run_id, attempt), 0
        there = set(await self._blobs.keys(key.removesuffix(".log")))
        while segment_key(key, count) in there:
            count += 1
        return count


def _check(size: int, offset: int, total: int) -> None:
    if not 0 < total <= LARGEST_LOG:
        raise Invalid("total", total, f"a log must have from 1 to {LARGEST_LOG} bytes")
    if offset % PIECE or offset + size > total or (size != PIECE and offset + size != total):
        raise Invalid("offset", offset, f"each piece but the last must have {PIECE} bytes and begin at a multiple")


def _note(run_id: int, attempt: int) -> str:
    return f"{BEGUN}/{run_id}/{attempt}"


def _split(key: str) -> list[str]:
    return key.split("/")
