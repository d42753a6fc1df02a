"""The worker protocol: all that a worker may ask of the control plane.

Seven calls, most for many runs at once. ``direct.py`` speaks it on the database, ``remote.py`` over HTTPS to a gateway.
Every write names the worker and the attempt; what the worker no longer holds is refused, call by call and run by run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from weft.crawls.model import CrawlTurn, CrawlTurned
from weft.items.model import Harvest
from weft.projects.model import Code
from weft.runs.model import Ending, Lease

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=-]{0,62}$(?!\n)")]
WorkerName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")]


class Card(msgspec.Struct, frozen=True):
    """Who a worker is."""

    name: WorkerName
    host: Annotated[str, Meta(max_length=255)]
    pid: Number
    version: Annotated[str, Meta(max_length=40)]
    capacity: Annotated[int, Meta(ge=1, le=10_000)]
    labels: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()


class Beat(msgspec.Struct, frozen=True):
    """How a worker is."""

    state: Annotated[str, Meta(pattern=r"^(online|busy|draining|offline)$(?!\n)")]
    """online, busy, draining, or offline as its last word."""
    running: Number
    done: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    stats: dict[str, Any] = {}


class Orders(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    lost: bool = False
    """The worker was silent for too long: it holds nothing any more and must stop everything and join anew."""
    held: tuple[tuple[int, int], ...] = ()
    """Run and attempt of every lease that it holds."""
    cancel: tuple[tuple[int, int], ...] = ()
    """Those of them that somebody wants stopped."""
    pause: tuple[tuple[int, int], ...] = ()
    """Those of them that somebody wants to go on later: they keep their place and are given back."""
    drain: bool = False
    """Somebody wants the worker to lease nothing more, to finish what it has, and to leave."""
    prepare: tuple[Code, ...] = ()
    """Code that was deployed just now, and that runs may soon ask for."""


class LogChunk(msgspec.Struct, frozen=True):
    """A numbered piece of the live log of a running attempt."""

    run_id: Id
    attempt: Number
    seq: Number
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

    async def collect(self, worker_id: int, harvests: Sequence[Harvest]) -> list[int]:
        """Store items, each once; answer for each harvest with the number of the item that is waited for next.

        That is behind ``first`` where earlier items did not arrive, and 0 where the attempt was never this worker's:
        what a dead worker has left behind is still taken when it is back under the same name.
        """

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurned:
        """Make a turn of a crawl for an attempt that the worker holds; raises ``LeaseLost`` where it does not."""

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        """End attempts; False for each that the worker no longer holds. May be repeated."""
