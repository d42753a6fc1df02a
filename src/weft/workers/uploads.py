"""Logs that arrive in pieces. Pieces are blobs, so that the next one may come through another gateway."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import Conflict, Invalid
from weft.ports import Blobs
from weft.workers.wire import LARGEST_LOG, PIECE, log_key

PIECES = "uploads"
"""Where pieces are until their log is whole. What lies here for long was left behind."""

Attempt = tuple[int, int]
"""A run, and which of its attempts."""


class Uploads:
    """Puts the pieces of a log together. Sending a piece again changes nothing."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def received(self, run_id: int, attempt: int) -> int:
        """How many bytes are there, from the start."""
        whole = await self._blobs.get(log_key(run_id, attempt))
        if whole is not None:
            return len(whole)
        return sum([len(piece) for piece in await self._pieces(run_id, attempt)])

    async def take(self, run_id: int, attempt: int, data: bytes, *, offset: int, total: int) -> int:
        """Keep the bytes from ``offset`` on; with the last of ``total`` the log is whole."""
        _check(len(data), offset, total)
        if len(data) == total:
            await self._blobs.put(log_key(run_id, attempt), data)
            return total
        number = offset // PIECE
        if number and await self._blobs.get(_piece_key(run_id, attempt, number - 1)) is None:
            raise Conflict(f"the log of run {run_id} has no bytes before {offset} yet; ask how far it is")
        await self._blobs.put(_piece_key(run_id, attempt, number), data)
        if offset + len(data) == total:
            await self._join(run_id, attempt, total)
        return offset + len(data)

    async def begun(self) -> dict[Attempt, list[str]]:
        """The keys of the pieces of each log that is not whole."""
        found: dict[Attempt, list[str]] = {}
        for key in await self._blobs.keys(PIECES):
            _, run_id, attempt, _ = key.split("/")
            found.setdefault((int(run_id), int(attempt)), []).append(key)
        return found

    async def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            await self._blobs.delete(key)

    async def _join(self, run_id: int, attempt: int, total: int) -> None:
        pieces = await self._pieces(run_id, attempt)
        whole = b"".join(pieces)
        if len(whole) != total:
            raise Conflict(f"the log of run {run_id} has {len(whole)} of {total} bytes; ask how far it is")
        await self._blobs.put(log_key(run_id, attempt), whole)
        await self.forget(_piece_key(run_id, attempt, number) for number in range(len(pieces)))

    async def _pieces(self, run_id: int, attempt: int) -> list[bytes]:
        pieces: list[bytes] = []
        while (piece := await self._blobs.get(_piece_key(run_id, attempt, len(pieces)))) is not None:
            pieces.append(piece)
        return pieces


def _check(size: int, offset: int, total: int) -> None:
    if not 0 < total <= LARGEST_LOG:
        raise Invalid("total", total, f"a log must have from 1 to {LARGEST_LOG} bytes")
    if offset % PIECE or offset + size > total or (size != PIECE and offset + size != total):
        raise Invalid("offset", offset, f"each piece but the last must have {PIECE} bytes and begin at a multiple")


def _piece_key(run_id: int, attempt: int, number: int) -> str:
    return f"{PIECES}/{run_id}/{attempt}/{number}"
