"""The worker protocol on the database; leases get the secrets that their runs ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from weft import events
from weft.access.secrets import Secrets, filled, names_in
from weft.clock import Clock
from weft.crawler.messages import CrawlTurn, CrawlTurnReply, PermitRequest
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, LeaseLost, Unopened
from weft.events import Fact
from weft.items.collector import Collector
from weft.items.model import ItemBatch
from weft.ports import Grant
from weft.projects.pinning import RecentDeploys
from weft.runs import lease_store
from weft.runs.leases import Leases
from weft.runs.model import Ending, Lease
from weft.workers import store
from weft.workers.permits import Permits
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo

if TYPE_CHECKING:
    from weft.crawls.coordinator import CrawlCoordinator


async def with_secrets(leases: Sequence[Lease], secrets: Secrets) -> list[Lease]:
    """The leases with every ``{{secret:NAME}}`` filled in from the run's own project; what is stored stays as it is.

    One that asks for what is not there comes with the ``problem``, which ends the attempt.
    """
    if not any(lease.asks_for_secrets for lease in leases):
        return list(leases)
    wanted = {lease.run_id: _secret_names(lease) for lease in leases if lease.asks_for_secrets}
    names = {(lease.project, name) for lease in leases for name in _known_names(wanted.get(lease.run_id))}
    values: dict[tuple[str, str], str] | str
    try:
        values = await secrets.open(names)
    except Unopened as problem:
        values = str(problem)
    return [_with_secrets(lease, wanted[lease.run_id], values) if lease.asks_for_secrets else lease for lease in leases]


def _secret_names(lease: Lease) -> set[str] | str:
    try:
        return names_in(lease.spec.spec) | names_in(lease.spec.params)
    except Invalid as problem:
        return str(problem)


def _known_names(wanted: set[str] | str | None) -> set[str]:
    return wanted if isinstance(wanted, set) else set()


def _with_secrets(lease: Lease, wanted: set[str] | str, values: dict[tuple[str, str], str] | str) -> Lease:
    if isinstance(wanted, str) or isinstance(values, str):
        return replace(lease, problem=wanted if isinstance(wanted, str) else str(values))
    if missing := sorted(name for name in wanted if (lease.project, name) not in values):
        return replace(lease, problem=f"project {lease.project} has no secret {', '.join(missing)}")
    mine: dict[str, Any] = {name: values[lease.project, name] for name in wanted}
    spec = replace(lease.spec, spec=filled(lease.spec.spec, mine), params=filled(lease.spec.params, mine))
    return replace(lease, spec=spec, secrets=tuple(mine.values()))


MOST_WORKERS = 10_000
"""How many workers one process speaks for; of more than that, the oldest are asked for again."""


class CoordinatorProvider(Protocol):
    """Has the desk of crawls, and opens it when it is first asked for."""

    @property
    def desk(self) -> CrawlCoordinator: ...


class DirectProtocol:
    """Speaks for workers that may reach the database themselves."""

    def __init__(
        self,
        db: Database,
        leases: Leases,
        secrets: Secrets,
        collector: Collector,
        crawling: CoordinatorProvider,
        permits: Permits,
        clock: Clock,
        *,
        min_isolation: str = "",
    ) -> None:
        """``min_isolation`` is the least isolation of every project, which may demand more for itself."""
        self.permits = permits
        self._db, self._leases, self._secrets, self._clock = db, leases, secrets, clock
        self._collector, self._crawling, self._fresh = collector, crawling, RecentDeploys(clock, min_isolation)
        self._cards: dict[int, WorkerInfo] = {}
        self._projects: dict[int, str] = {}

    async def join(self, card: WorkerInfo, *, key_id: int | None = None, request_id: str | None = None) -> int:
        """Enter the worker; for one that comes through a gateway, under its key and once for each request."""
        worker_id = await self._db.transact(lambda tx: self._join(tx, card, key_id, request_id), urgent=True)
        self.remember(worker_id, card)
        return worker_id

    def remember(self, worker_id: int, card: WorkerInfo) -> None:
        """Speak for a worker that may have joined through another process."""
        self._cards[worker_id] = card
        if len(self._cards) > MOST_WORKERS:
            del self._cards[next(iter(self._cards))]

    async def lease(self, worker_id: int, want: int, *, hesitant: bool = False) -> list[Lease]:
        card = self._card(worker_id)
        leases = await self._leases.lease(worker_id, card.name, card.labels, want, hesitant=hesitant)
        return await with_secrets(leases, self._secrets)

    async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        return (await self._db.transact(lambda tx: self.beat_all(tx, [(worker_id, beat)]), urgent=True))[0]

    def beat_all(self, tx: Transaction, beats: Sequence[tuple[int, Heartbeat]]) -> list[HeartbeatReply]:
        """The beats of several workers in one transaction, which locks them in the order of their ids."""
        orders = {worker_id: self._beat(tx, worker_id, beat) for worker_id, beat in sorted(beats, key=_worker_id)}
        return [orders[worker_id] for worker_id, _ in beats]

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        if lost := await self.ship_held(worker_id, chunks):
            raise LeaseLost(str(worker_id), lost)

    async def ship_held(self, worker_id: int, chunks: Sequence[LogChunk]) -> set[tuple[int, int]]:
        """Deliver pieces of live logs; return run and attempt of those that the worker does not hold."""
        return await self._leases.ship(worker_id, [msgspec.structs.asdict(chunk) for chunk in chunks])

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        return await self._collector.collect(worker_id, self._card(worker_id).name, harvests)

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        return await self._crawling.desk.turn(worker_id, run_id, attempt, asked)

    async def permit(self, worker_id: int, run_id: int, attempt: int, asked: PermitRequest) -> Grant:
        return await self.permits.ask(run_id, asked, await self.project_of(run_id))

    async def project_of(self, run_id: int) -> str:
        """Whose run it is; empty where nobody holds it."""
        if run_id not in self._projects:
            row = (await self._db.read(lambda tx: lease_store.held(tx, [run_id]))).get(run_id)
            if row is None:
                return ""
            if len(self._projects) >= MOST_WORKERS:
                self._projects.clear()
            self._projects[run_id] = str(row.project)
        return self._projects[run_id]

    @property
    def permits_degraded(self) -> bool:
        return self.permits.degraded

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        return await self._leases.finish(worker_id, endings)

    def _card(self, worker_id: int) -> WorkerInfo:
        try:
            return self._cards[worker_id]
        except KeyError:
            raise LeaseLost(str(worker_id)) from None

    def _join(self, tx: Transaction, card: WorkerInfo, key_id: int | None, request_id: str | None) -> int:
        if request_id is not None and (joined := store.joined(tx, request_id)) is not None:
            worker_id, joined_with = joined
            if joined_with != key_id:
                raise Conflict("this request_id was used by another worker; make another")
            return worker_id
        at = self._clock()
        row = msgspec.structs.asdict(card) | {"labels": msgspec.json.encode(card.labels).decode()}
        row |= {"running": 0, "done": 0, "state": "online", "beats": 0, "started_at": at, "seen_at": at, "stats": "{}"}
        row |= {"key_id": key_id, "request_id": request_id}
        worker_id = store.add(tx, row)
        events.append(tx, [Fact("worker_joined", "", data={"worker": card.name, "worker_id": worker_id})], at)
        return worker_id

    def _beat(self, tx: Transaction, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        at = self._clock()
        values = {"seen_at": at, "state": beat.state, "running": beat.running, "done": beat.done}
        known = store.beat(tx, worker_id, values | {"stats": msgspec.json.encode(beat.stats).decode()})
        if known is None:
            return HeartbeatReply(lost=True)
        if beat.state == store.GONE:
            name = self._card(worker_id).name
            events.append(tx, [Fact("worker_left", "", data={"worker": name, "worker_id": worker_id})], at)
        held = lease_store.leases_of(tx, worker_id)
        return HeartbeatReply(
            held=tuple((row.id, row.attempt) for row in held),
            cancel=tuple((row.id, row.attempt) for row in held if row.cancel_requested),
            pause=tuple((row.id, row.attempt) for row in held if row.pause_requested),
            drain=known == store.DRAINING,
            prepare=self._fresh.codes(tx),
        )


def _worker_id(beat: tuple[int, Heartbeat]) -> int:
    return beat[0]
