"""The worker protocol: all that a worker may ask of the control plane.

Five calls, each for many runs at once. ``direct.py`` speaks it on the database; the gateway will speak it over HTTPS.
Every write names the worker and the attempt; what the worker no longer holds is refused, call by call and run by run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from weft.runs.model import Ending, Lease


class Card(msgspec.Struct, frozen=True):
    """Who a worker is."""

    name: str
    host: str
    pid: int
    version: str
    capacity: int
    labels: tuple[str, ...] = ()


class Beat(msgspec.Struct, frozen=True):
    """How a worker is."""

    state: str
    """online, busy, draining, or offline as its last word."""
    running: int
    done: int
    stats: dict[str, Any] = {}


class Orders(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    lost: bool = False
    """The worker was silent for too long: it holds nothing any more and must stop everything and join anew."""
    held: tuple[tuple[int, int], ...] = ()
    """Run and attempt of every lease that it holds."""
    cancel: tuple[tuple[int, int], ...] = ()
    """Those of them that somebody wants stopped."""


class LogChunk(msgspec.Struct, frozen=True):
    """A numbered piece of the live log of a running attempt."""

    run_id: int
    attempt: int
    seq: int
    data: bytes


class WorkerProtocol(Protocol):
    async def join(self, card: Card) -> int:
        """Enter the worker under a new id."""

    async def lease(self, worker_id: int, want: int) -> list[Lease]:
        """Lease up to ``want`` ready runs."""

    async def heartbeat(self, worker_id: int, beat: Beat) -> Orders:
        """Keep every lease of the worker for another while; learn what to stop."""

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        """Deliver pieces of live logs; a piece delivered twice counts once."""

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        """End attempts; False for each that the worker no longer holds. May be repeated."""
