"""The worker protocol: all that a worker may ask of the control plane.

Eight calls, most for many runs at once. ``direct.py`` speaks it on the database, ``remote/protocol.py`` over HTTPS to a
gateway. Every write names the worker and the attempt; what the worker no longer holds is refused, call by call and run
by run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from weft.crawler.messages import CrawlTurn, CrawlTurnReply, PermitRequest
from weft.items.model import ItemBatch
from weft.ports import Grant
from weft.projects.model import FreshCode
from weft.runs.model import Ending, Lease

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=-]{0,62}$(?!\n)")]
WorkerName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")]


class WorkerInfo(msgspec.Struct, frozen=True):
    """Who a worker is."""

    name: WorkerName
    host: Annotated[str, Meta(max_length=255)]
    pid: Number
    version: Annotated[str, Meta(max_length=40)]
    capacity: Annotated[int, Meta(ge=1, le=10_000)]
    labels: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()


class Heartbeat(msgspec.Struct, frozen=True):
    """How a worker is."""

    state: Annotated[str, Meta(pattern=r"^(online|busy|unhealthy|draining|offline)$(?!\n)")]
    """online, busy, unhealthy where it can execute nothing now (``problem`` in its stats), draining, or offline as its
    last word."""
    running: Number
    done: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    stats: dict[str, Any] = {}


class HeartbeatReply(msgspec.Struct, frozen=True):
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
    prepare: tuple[FreshCode, ...] = ()
    """Code that was deployed just now, and that runs may soon ask for."""


class LogChunk(msgspec.Struct, frozen=True):
    """A numbered piece of the live log of a running attempt."""

    run_id: Id
    attempt: Number
    seq: Number
    data: bytes


class WorkerProtocol(Protocol):
    @property
    def permits_degraded(self) -> bool:
        """Whether the limiter was not reached when a permit was last asked for."""

    async def join(self, card: WorkerInfo) -> int:
        """Enter the worker under a new id."""

    async def lease(self, worker_id: int, want: int, *, hesitant: bool = False) -> list[Lease]:
        """Lease up to ``want`` ready runs.

        Where ``hesitant``, runs are left to less busy workers, and taken if they are still there a moment later.
        """

    async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        """Keep every lease of the worker for another while; learn what to stop."""

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        """Deliver pieces of live logs; a piece delivered twice counts once.

        Raises ``LeaseLost`` where the worker does not hold one of the attempts; those of the others are kept.
        """

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        """Store items, each once; answer for each harvest with the number of the item that is waited for next.

        That is behind ``first`` where earlier items did not arrive, and 0 where the attempt was never this worker's:
        what a dead worker has left behind is still taken when it is back under the same name.
        """

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        """Make a turn of a crawl for an attempt that the worker holds; raises ``LeaseLost`` where it does not."""

    async def permit(self, worker_id: int, run_id: int, attempt: int, asked: PermitRequest) -> Grant:
        """Ask for a place in line at the limiter of the control plane, or tell it who is not to be asked for a while.

        An answer that is lost costs the place, and nothing else. Rates and penalties are taken for attempts that the
        worker holds; raises ``LeaseLost`` where it does not.
        """

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        """End attempts; False for each that the worker no longer holds. May be repeated.

        Of an attempt that the worker was given up as lost with, the log is kept, marked late, and nothing else.
        """
