"""The gateway's side of remote workers: what they may do, and the long polls in which they wait for work.

Each has a key of its own, made with a join token that is good for one. A key speaks only for workers that joined with
it, and a worker touches only the leases that it holds. A wake-up wakes one that waits; underneath, one poll of the
database serves them all.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from weft import __version__
from weft.access import store as access_store
from weft.access.audit import record_change
from weft.access.model import Caller
from weft.clock import Clock
from weft.crawler.messages import CrawlTurn, CrawlTurnReply, PermitRequest
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.errors import NOT_SHOWN, BrokerDown, Conflict, Invalid, LeaseLost, NotAllowed, NotFound, Unknown
from weft.items.model import ItemBatch
from weft.loops import every, repeat
from weft.ports import Blobs, Broker, Grant
from weft.projects.model import code_key
from weft.runs import lease_store
from weft.runs import store as run_store
from weft.runs.lanes import Lane, queues_for
from weft.runs.model import Lease
from weft.workers import store
from weft.workers.direct import DirectProtocol
from weft.workers.permits import Permits
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo
from weft.workers.remote.uploads import FileUploads, LogUploads
from weft.workers.remote.wire import PROTOCOL, EndingReport, EnrolRequest, WorkerKeyInfo, ending_of
from weft.workers.warc_delivery import name_pattern

log = logging.getLogger(__name__)

MOST_LANES = 200

PollingWorker = asyncio.Future[bool]


class LongPolls:
    """The calls that wait here. However many there are, the database is looked at once in ``look_seconds``."""

    def __init__(self, db: Database, broker: Broker, look_seconds: float) -> None:
        self._db, self._broker, self._look_seconds = db, broker, look_seconds
        self._waiting: dict[PollingWorker, frozenset[str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, labels: Collection[str], seconds: float) -> bool:
        """Return True once there may be work for ``labels``, False after ``seconds`` or when closed."""
        if self._closed:
            return False
        found: PollingWorker = asyncio.get_running_loop().create_future()
        ringing = asyncio.ensure_future(self._hear(labels, seconds))
        self._enter(found, labels)
        try:
            done, _ = await asyncio.wait({found, ringing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return any(task.result() for task in done)
        finally:
            self._leave(found)
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)

    async def tick(self) -> int:
        """Wake one waiter for each lane that has ready runs: no ring may have told of them."""
        woken = 0
        for lane in await self._db.read(_ready_lanes):
            able = (each for each, labels in self._waiting.items() if not each.done() and lane.may_be_served_by(labels))
            if (waiter := next(able, None)) is not None:
                waiter.set_result(True)
                woken += 1
        return woken

    def close(self) -> None:
        """Let everyone go; nobody waits here any more."""
        self._closed = True
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_result(False)

    async def _hear(self, labels: Collection[str], seconds: float) -> bool:
        try:
            return await self._broker.wait(queues_for(labels), seconds)
        except BrokerDown as problem:
            log.debug("no rings for remote workers", extra={"why": str(problem)})
            await asyncio.sleep(seconds)
            return False

    def _enter(self, waiter: PollingWorker, labels: Collection[str]) -> None:
        self._waiting[waiter] = frozenset(labels)
        if self._looking is None:
            self._looking = asyncio.create_task(
                repeat("look for work of remote workers", self.tick, every(self._look_seconds))
            )

    def _leave(self, waiter: PollingWorker) -> None:
        del self._waiting[waiter]
        if not self._waiting and self._looking is not None:
            self._looking.cancel()
            self._looking = None


def _ready_lanes(tx: Transaction) -> list[Lane]:
    ids, _ = lease_store.ready_lanes(tx, 0, MOST_LANES)
    return list(run_store.lanes_by_id(tx, ids).values()) if ids else []


MOST_OWNERS = 10_000
MOST_ALERTS = 3
"""How many alerts one call may leave."""

MOST_HARVESTS, MOST_LINES = 10_000, 100_000
"""What one call may give; workers send far less."""

BEATS_APART_SECONDS = 0.1
"""A beat may wait that long for others, so that hundreds of workers cost a few commits a second and not one each."""


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """Whose a worker is."""

    key_id: int | None
    card: WorkerInfo


class WorkerGateway:
    """Speaks the worker protocol for callers that are not trusted with the database."""

    def __init__(
        self,
        db: Database,
        protocol: DirectProtocol,
        broker: Broker,
        blobs: Blobs,
        permits: Permits,
        clock: Clock,
        look_seconds: float,
    ) -> None:
        self.permits = permits
        self._db, self._protocol, self._blobs, self._clock = db, protocol, blobs, clock
        self._waits, self._uploads = LongPolls(db, broker, look_seconds), LogUploads(blobs)
        self._files = FileUploads(blobs)
        self._beat_together = Batched(db, protocol.beat_all, apart_seconds=BEATS_APART_SECONDS, urgent=True)
        self._owners: dict[int, WorkerOwner] = {}
        self._uploaded: dict[tuple[int, int], int] = {}
        """How much there was of logs that were not whole yet, when that was asked last."""

    @property
    def waiting(self) -> int:
        """How many workers wait for work here."""
        return len(self._waits)

    async def enrol(self, caller: Caller, asked: EnrolRequest) -> WorkerKeyInfo:
        """Use up a join token: from here on the key that the worker has made counts, and the token does not."""
        await self._db.transact(lambda tx: self._enrol(tx, caller, asked))
        log.info("worker enrolled", extra={"worker": asked.name, "token": caller.name})
        return WorkerKeyInfo(asked.name, __version__, PROTOCOL)

    async def join(self, caller: Caller, card: WorkerInfo, request_id: str) -> int:
        if card.name != caller.name:
            self._alert(caller, f"join as {card.name}")
            raise NotAllowed(f"the key of worker {caller.name} may not join as {card.name}")
        await self._check_labels(caller, card)
        worker_id = await self._protocol.join(card, key_id=caller.id, request_id=request_id)
        self._remember(worker_id, WorkerOwner(caller.id, card))
        return worker_id

    async def lease(self, caller: Caller, worker_id: int, want: int, *, hesitant: bool = False) -> list[Lease]:
        await self._own(caller, worker_id)
        return await self._protocol.lease(worker_id, want, hesitant=hesitant)

    async def wait(self, caller: Caller, worker_id: int, seconds: float) -> bool:
        """Return True once there may be work for the worker, False after ``seconds``."""
        owner = await self._own(caller, worker_id)
        if owner is None:
            raise LeaseLost(str(worker_id))
        return await self._waits.wait(owner.card.labels, seconds)

    async def heartbeat(self, caller: Caller, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        """What was deployed lately is not told: a worker gets code with the first run of it, and no sooner."""
        await self._own(caller, worker_id)
        return msgspec.structs.replace(await self._beat_together((worker_id, beat)), prepare=())

    async def ship(self, caller: Caller, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        await self._own(caller, worker_id)
        refused = await self._protocol.ship_held(worker_id, chunks)
        await self._watch(caller, worker_id, refused, "ship to")
        if refused:
            raise LeaseLost(str(worker_id), refused)

    async def collect(self, caller: Caller, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        if await self._own(caller, worker_id) is None:
            raise LeaseLost(str(worker_id))
        if len(harvests) > MOST_HARVESTS or sum(each.lines.count(b"\n") for each in harvests) > MOST_LINES:
            raise Invalid("harvests", NOT_SHOWN, f"they may be {MOST_HARVESTS}, and of {MOST_LINES} lines in all")
        awaited = await self._protocol.collect(worker_id, harvests)
        refused = {(each.run_id, each.attempt) for each, next_ in zip(harvests, awaited, strict=True) if next_ == 0}
        await self._watch(caller, worker_id, refused, "give items to")
        return awaited

    async def frontier(
        self, caller: Caller, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn
    ) -> CrawlTurnReply:
        """Make a turn of a crawl, for an attempt that the worker holds."""
        if await self._own(caller, worker_id) is None:
            raise LeaseLost(str(worker_id))
        return await self._protocol.frontier(worker_id, run_id, attempt, asked)

    async def permit(self, caller: Caller, worker_id: int, run_id: int, attempt: int, asked: PermitRequest) -> Grant:
        """A place in line at this gateway's limiter. What changes the line for others must be of an attempt that the
        worker holds, and the rate of an address of a crawl's."""
        if await self._own(caller, worker_id) is None:
            raise LeaseLost(str(worker_id))
        says_rates = bool(self.permits.unsaid(run_id, asked))
        if asked.penalty or says_rates:
            kind = await self._check_held(caller, worker_id, run_id, attempt)
            if says_rates and kind != "crawl":
                raise NotAllowed(f"run {run_id} is no crawl, and only crawls say how often an address may be asked")
        return await self.permits.ask(run_id, asked, await self._protocol.project_of(run_id))

    async def finish(self, caller: Caller, worker_id: int, endings: Sequence[EndingReport]) -> list[bool]:
        await self._own(caller, worker_id)
        accepted = await self._protocol.finish(worker_id, [ending_of(each) for each in endings])
        refused = {(each.run_id, each.attempt) for each, ok in zip(endings, accepted, strict=True) if not ok}
        await self._watch(caller, worker_id, refused, "end")
        return accepted

    async def received(self, caller: Caller, worker_id: int, run_id: int, attempt: int) -> int:
        """How much of a log was uploaded."""
        await self._check_log(caller, worker_id, run_id, attempt)
        return await self._uploads.received(run_id, attempt)

    async def upload(
        self, caller: Caller, worker_id: int, run_id: int, attempt: int, *, data: bytes, offset: int, total: int
    ) -> int:
        """Keep a piece of the log of an attempt that the worker holds, or was lost with; return how much is there."""
        await self._check_log(caller, worker_id, run_id, attempt)
        return await self._uploads.take(run_id, attempt, data, offset=offset, total=total)

    async def received_file(self, caller: Caller, worker_id: int, run_id: int, attempt: int, name: str) -> int:
        """How much of a file of a crawl was uploaded."""
        crawl_id = await self._crawl_of(caller, worker_id, run_id, attempt, name)
        return await self._files.received(crawl_id, name)

    async def upload_file(
        self,
        caller: Caller,
        worker_id: int,
        run_id: int,
        attempt: int,
        name: str,
        *,
        data: bytes,
        offset: int,
        total: int,
    ) -> int:
        """Keep a piece of a file of an attempt that the worker holds or has executed; return how much is there."""
        crawl_id = await self._crawl_of(caller, worker_id, run_id, attempt, name)
        return await self._files.take(crawl_id, name, data, offset=offset, total=total)

    async def code(self, caller: Caller, worker_id: int, digest: str) -> bytes:
        """The archive that a run which the worker holds is pinned to."""
        await self._own(caller, worker_id)
        if digest not in await self._db.read(lambda tx: lease_store.pins_of(tx, worker_id)):
            raise NotAllowed(f"worker {worker_id} holds no run of the code {digest}")
        archive = await self._blobs.get(code_key(digest))
        if archive is None:
            raise NotFound("code", digest)
        return archive

    async def forget_uploads(self) -> int:
        """Drop the pieces of logs of which no other piece is to be expected; a worker that was lost begins again.

        Those are the logs of attempts that nobody holds any more, but for those that grew since this was asked last.
        """
        begun = await self._uploads.begun()
        held = await self._db.read(lambda tx: _holders(tx, [run_id for run_id, _ in begun]))
        sizes = {attempt: await self._uploads.received(*attempt) for attempt in begun}
        left = [each for each in begun if each not in held and self._uploaded.get(each) == sizes[each]]
        self._uploaded = sizes
        for run_id, number in left:
            await self._uploads.forget(run_id, number)
        return len(left)

    def close(self) -> None:
        """Answer those who wait, so that the gateway can end."""
        self._waits.close()

    def _enrol(self, tx: Transaction, caller: Caller, asked: EnrolRequest) -> None:
        at = self._clock()
        if not access_store.revoke_key(tx, caller.id, at):
            raise Unknown("the join token was used already, and is good for one worker")
        if access_store.key_by_prefix(tx, asked.prefix) is not None:
            raise Conflict(f"there is a key with the prefix {asked.prefix} already; make another")
        token = access_store.key_by_id(tx, caller.id)
        if token is None:
            raise Unknown("the join token is not known")
        token.check_labels(asked.name, asked.labels)
        row = {"kind": "worker", "prefix": asked.prefix, "digest": asked.digest, "name": asked.name}
        access_store.add_key(tx, row | {"created_by": caller.name, "created_at": at, "labels": token.labels})
        record_change(tx)

    async def _check_labels(self, caller: Caller, card: WorkerInfo) -> None:
        key = await self._db.read(lambda tx: access_store.key_by_id(tx, caller.id))
        if key is None:
            raise Unknown("the key is not known")
        try:
            key.check_labels(card.name, card.labels)
        except NotAllowed:
            self._alert(caller, f"claim {', '.join(card.labels)}")
            raise

    async def _own(self, caller: Caller, worker_id: int) -> WorkerOwner | None:
        """Whose the worker is; None where there is none. Refuses a caller that it did not join with."""
        owner = self._owners.get(worker_id) or await self._find(worker_id)
        if owner is None:
            return None
        if owner.key_id != caller.id:
            self._alert(caller, f"speak for worker {owner.card.name} ({worker_id})")
            raise NotAllowed(f"the key of worker {caller.name} may not speak for worker {worker_id}")
        self._protocol.remember(worker_id, owner.card)
        return owner

    async def _find(self, worker_id: int) -> WorkerOwner | None:
        row = await self._db.read(lambda tx: store.entered(tx, worker_id))
        if row is None:
            return None
        fields = {name: getattr(row, name) for name in WorkerInfo.__struct_fields__ if name != "labels"}
        owner = WorkerOwner(row.key_id, WorkerInfo(**fields, labels=tuple(msgspec.json.decode(row.labels))))
        self._remember(worker_id, owner)
        return owner

    def _remember(self, worker_id: int, owner: WorkerOwner) -> None:
        if len(self._owners) >= MOST_OWNERS:
            self._owners.clear()
        self._owners[worker_id] = owner

    async def _check_log(self, caller: Caller, worker_id: int, run_id: int, attempt: int) -> None:
        """Refuse a log of an attempt that the worker does not hold, unless it executed it and its log is missing."""
        owner, place = await self._own(caller, worker_id), (run_id, attempt)
        holders = await self._db.read(lambda tx: _holders(tx, [run_id]))
        holder = holders.get(place)
        if holder == worker_id:
            return
        if owner is not None:
            name = owner.card.name
            if await self._db.read(lambda tx: lease_store.awaits_late_log(tx, place, worker_id, name)):
                return
        if holder is None:
            raise LeaseLost(str(worker_id))
        self._alert(caller, f"write to run {run_id} of worker {holder}")
        raise NotAllowed(f"worker {worker_id} does not hold run {run_id}")

    async def _check_held(self, caller: Caller, worker_id: int, run_id: int, attempt: int) -> str:
        """Refuse a caller whose worker does not hold the attempt; return the kind of its run."""
        await self._own(caller, worker_id)
        row = (await self._db.read(lambda tx: lease_store.held(tx, [run_id]))).get(run_id)
        if row is None or row.attempt != attempt:
            raise LeaseLost(str(worker_id))
        if row.lease_worker != worker_id:
            self._alert(caller, f"write to run {run_id} of worker {row.lease_worker}")
            raise NotAllowed(f"worker {worker_id} does not hold run {run_id}")
        return str(row.kind)

    async def _crawl_of(self, caller: Caller, worker_id: int, run_id: int, attempt: int, name: str) -> int:
        """The crawl that an attempt of the worker does a share of; its files are named by all three."""
        owner = await self._own(caller, worker_id)
        if owner is None:
            raise LeaseLost(str(worker_id))
        place, worker = (run_id, attempt), owner.card.name
        from weft.crawls.store import crawl_of_attempt  # with the first file

        crawl_id = await self._db.read(lambda tx: crawl_of_attempt(tx, place, worker_id, worker))
        if crawl_id is None:
            self._alert(caller, f"write to run {run_id}")
            raise NotAllowed(
                f"worker {worker_id} has executed no share of a crawl as attempt {attempt} of run {run_id}"
            )
        if not re.fullmatch(name_pattern(crawl_id, run_id, attempt), name, re.ASCII):
            raise Invalid("name", name, f"it must be that of a WARC file of crawl {crawl_id}, or of its index")
        return crawl_id

    async def _watch(self, caller: Caller, worker_id: int, refused: Collection[tuple[int, int]], what: str) -> None:
        """Refuse a call that wrote to attempts which a worker of another key holds now, and tell people of it.

        An attempt has one worker in its life, so no honest one can be that far behind. What it holds itself of
        that call was taken. A call that names many leaves a few alerts; they are enough to revoke the key.
        """
        if not refused:
            return
        holders = await self._db.read(lambda tx: _holders(tx, {run_id for run_id, _ in refused}))
        others = {holders[each] for each in refused if holders.get(each, worker_id) != worker_id}
        foreign = {each for each in others if not await self._is_of(caller, each)}
        forged = sorted(each for each in refused if holders.get(each) in foreign)
        for run_id, _ in forged[:MOST_ALERTS]:
            self._alert(caller, f"{what} run {run_id}")
        if forged:
            raise NotAllowed(f"worker {worker_id} may not {what} run {forged[0][0]}, which another worker holds")

    async def _is_of(self, caller: Caller, worker_id: int) -> bool:
        """Whether the worker joined with this key: who was given up for lost and joined again is still itself."""
        owner = self._owners.get(worker_id) or await self._find(worker_id)
        return owner is not None and owner.key_id == caller.id

    def _alert(self, caller: Caller, what: str) -> None:
        extra = {"worker": caller.name, "key_id": caller.id, "address": caller.address, "what": what}
        log.warning("a worker's key was used for what is not its own", extra=extra)


def _holders(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], int]:
    """Which worker holds each of the runs now, by run and attempt."""
    return {(run_id, row.attempt): row.lease_worker for run_id, row in lease_store.held(tx, run_ids).items()}
