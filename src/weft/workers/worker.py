"""The worker: leases runs, executes each to its end, and reports how it ended.

User code never runs in this loop for long: executors start processes or wait on sockets. What ends while an earlier
report is still under way is reported together with the next: a busy worker writes in batches, an idle one at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.crawler.messages import NO_POLICY, CrawlPolicy
from weft.errors import BrokerDown, Invalid, WeftError
from weft.ports import Blobs, Breaker, Broker, Executor
from weft.runs.lanes import queues_for
from weft.runs.model import Ending, Lease
from weft.user_code import GRACE, GRACE_SECONDS, grace_of
from weft.workers.attempt import CodeProvider, ExecutionContext, RunningAttempt, ending_of, execute_attempt, no_code
from weft.workers.code_cache import CodePreparations
from weft.workers.heartbeat import Heartbeats
from weft.workers.item_delivery import ItemDelivery
from weft.workers.log_spool import StdoutLogs
from weft.workers.protocol import Heartbeat, HeartbeatReply, WorkerInfo, WorkerProtocol
from weft.workers.recovery import deliver_left_behind
from weft.workers.reports import EndingReports, ship_logs
from weft.workers.supervisor import interruptible_sleep
from weft.workers.work_dir import DiskCheck, DrainStatus, note_heartbeat, note_waiting

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def usage() -> dict[str, float]:
    """Processor time so far, with that of its commands that have ended, the load of its machine over the last minute,
    and memory now, where the system tells it."""
    times = os.times()
    spent = {"cpu_seconds": round(times.user + times.system + times.children_user + times.children_system, 2)}
    spent |= {"load": round(os.getloadavg()[0], 2), "cores": os.cpu_count() or 1}
    return spent | ({"memory_bytes": _resident_pages() * PAGE_BYTES} if STATM.exists() else {})


def _resident_pages() -> int:
    return int(STATM.read_text().split()[1])


log = logging.getLogger(__name__)


class ExecutorBreakers:
    """Asks the executors of the kinds that run now, and of those that had a breaker when they were last asked."""

    def __init__(self, executor: Callable[[str], Executor]) -> None:
        self._executor = executor
        self._kinds_with_breakers: set[str] = set()

    def rows(self, running: Collection[str]) -> list[dict[str, object]]:
        found = [(kind, self._of(kind)) for kind in {*running, *self._kinds_with_breakers}]
        self._kinds_with_breakers = {kind for kind, breakers in found if breakers}
        return [_row(breaker) for _, breakers in found for breaker in breakers]

    def _of(self, kind: str) -> list[Breaker]:
        try:
            return list(self._executor(kind).breakers())
        except Exception as problem:  # an executor is somebody's plug-in: its fault must not stop the heartbeats
            log.warning("breakers not told", extra={"kind": kind, "why": f"{type(problem).__name__}: {problem}"})
            return []


def _row(breaker: Breaker) -> dict[str, object]:
    told: dict[str, object] = {"target": breaker.target, "state": breaker.state, "failures": breaker.failures}
    return told | ({"project": breaker.project} if breaker.project else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker behaves."""

    poll_seconds: float = 1.0
    """How long it waits for a ring before it looks for itself, and after what went wrong."""
    listen_seconds: float = 0.0
    """How long it waits for a ring where somebody else looks meanwhile; 0: as long as ``poll_seconds``."""
    drain_seconds: float = 30.0
    """How long runs may go on after it was asked to stop."""
    ship_seconds: float = 0.5
    max_runs: int = 0
    """After so many runs it drains and ends, to be replaced; 0 means never."""
    echo: StdoutLogs | None = None
    policy: CrawlPolicy = NO_POLICY
    """What its machine allows those who crawl."""
    spider_env: tuple[str, ...] = ()
    """The variables of its environment that runs of every project see."""


async def wait_for_runs(
    tasks: Sequence[asyncio.Task[Any]], seconds: float, *, patient_until: asyncio.Event | None = None
) -> None:
    """Return when all have ended or the time is over, which begins only with ``patient_until`` where that is given."""
    if patient_until is not None:
        ended, asked = asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(patient_until.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        asked.cancel()
    await asyncio.wait(tasks, timeout=seconds)


TELL_SECONDS = 5.0
"""How much longer than its runs a draining worker may take to tell how they ended."""

GIVEN_BACK = frozenset({"crawl"})
"""Kinds whose runs are not waited for: another does the rest of a crawl, and nothing of it is lost."""

MOST_LEASED = 200
"""How many runs one lease may bring: larger batches cost more than they save."""


class Worker:
    """Leases as many runs as it has places for and sees them through."""

    def __init__(
        self,
        card: WorkerInfo,
        protocol: WorkerProtocol,
        heartbeats: Heartbeats,
        broker: Broker,
        blobs: Blobs,
        executor: Callable[[str], Executor],
        *,
        folder: Path,
        code: CodeProvider = no_code,
        options: WorkerOptions | None = None,
    ) -> None:
        self._card, self._protocol, self._heartbeats = card, protocol, heartbeats
        self._broker = broker
        self._delivery = ItemDelivery(protocol)
        chosen = options or WorkerOptions()
        self._disk = DiskCheck(folder)
        self._tools = ExecutionContext(
            executor,
            blobs,
            code,
            self._delivery,
            protocol,
            policy=chosen.policy,
            disk=self._disk,
            spider_env=chosen.spider_env,
        )
        self._preparations = CodePreparations(executor, code, folder, chosen.spider_env)
        self._folder, self._options = folder, options or WorkerOptions()
        self._running: dict[tuple[int, int], RunningAttempt] = {}
        self._id = 0
        self._started = self._done = 0
        self._is_unhealthy = False
        self._draining = asyncio.Event()
        self._hurried = asyncio.Event()
        self._ordered = False
        self._impatient = asyncio.Event()
        self._room = asyncio.Event()
        self._leases_begun = self._leases_ended = 0
        self._ends_at = 0.0
        """The moment at which it has ended at the latest, once it waits for its runs to end."""
        self._strange: dict[tuple[int, int], int] = {}
        self._breakers = ExecutorBreakers(executor)
        self._rejoining: asyncio.Task[bool] | None = None
        self._reports = EndingReports(protocol, self._room.set)

    async def run(self) -> None:
        """Join, work until drained, leave. Being cancelled gives every run back at once."""
        if not await self._join():
            return
        reporting = asyncio.create_task(self._reports.run_forever())
        shipping = asyncio.create_task(self._ship_forever())
        delivering = asyncio.create_task(self._delivery.run_forever())
        leftover = asyncio.create_task(self._deliver_left_behind())
        try:
            await self._lease_forever()
            await self._wait_for_running(self._options.drain_seconds)
        finally:
            await self._give_back()
            await self._reports.drain(self._hurried, self._options.drain_seconds + TELL_SECONDS)
            beside = [reporting, shipping, delivering, leftover, *([self._rejoining] if self._rejoining else [])]
            beside += self._preparations.under_way
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self._preparations.release()
            note_waiting(self._folder, None)
            await self._leave()

    def drain(self, *, ordered: bool = False) -> None:
        """Lease nothing more from now on; end once the runs have ended or the drain time is over.

        Where the control plane has ordered it, the drain time begins when the process itself is asked to stop.
        """
        if ordered and self._draining.is_set():
            return
        was_ordered, self._ordered = self._ordered, ordered
        if was_ordered:
            self._impatient.set()
        elif self._draining.is_set():  # asked twice: do not wait for runs, nor for a database that is away
            self._stop_all("drain", at_once=True)
            if not self._running:
                self._hurried.set()
        self._draining.set()
        self._room.set()

    async def _join(self) -> bool:
        """Join, however long that takes; False where it was asked to stop before."""
        while not self._draining.is_set():
            try:
                self._id = await self._protocol.join(self._card)
                break
            except WeftError as problem:
                log.warning("not joined yet", extra={"worker": self._card.name, "why": str(problem)})
            except Exception:  # one that does not join again would look alive and do nothing
                log.exception("not joined yet", extra={"worker": self._card.name})
            await interruptible_sleep(self._options.poll_seconds, self._draining)
        else:
            return False
        self._reports.worker_id = self._delivery.worker_id = self._id
        self._heartbeats.add(self._id, self._beat, self._obey)
        log.info("worker joined", extra={"worker": self._card.name, "worker_id": self._id})
        return True

    async def _leave(self) -> None:
        self._heartbeats.remove(self._id)
        try:
            await self._protocol.heartbeat(self._id, Heartbeat(state="offline", running=0, done=self._done))
        except WeftError as problem:
            log.warning("left without a word", extra={"worker": self._card.name, "why": str(problem)})

    async def _lease_forever(self) -> None:
        queues = queues_for(self._card.labels)
        while not self._draining.is_set():
            want = self._places()
            if want <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            if not await self._can_write():
                await interruptible_sleep(self._options.poll_seconds, self._draining)
                continue
            try:
                leases = await self._lease(want)
            except WeftError as problem:
                log.warning("nothing leased", extra={"worker": self._card.name, "why": str(problem)})
                await interruptible_sleep(self._options.poll_seconds, self._draining)
                continue
            except Exception:  # a worker goes on, whatever one lease ran into
                log.exception("nothing leased", extra={"worker": self._card.name})
                await interruptible_sleep(4 * self._options.poll_seconds, self._draining)
                continue
            if len(leases) < want:  # that was all; what comes meanwhile rings
                await self._listen(queues)

    async def _can_write(self) -> bool:
        """Whether runs can be executed here at all; tells of each change."""
        before = self._disk.problem
        can_write = await self._disk.is_writable()
        if not can_write and not self._is_unhealthy:
            log.error("worker leases nothing", extra={"worker": self._card.name, "why": self._disk.problem})
        elif can_write and self._is_unhealthy:
            log.info("worker leases again", extra={"worker": self._card.name, "after": before})
        self._is_unhealthy = not can_write
        return can_write

    def _places(self) -> int:
        want = min(
            self._card.capacity - len(self._running), MOST_LEASED, 4 * self._card.capacity - self._reports.backlog
        )
        if self._options.max_runs:
            want = min(want, self._options.max_runs - self._started)
            if want <= 0 and self._started >= self._options.max_runs:
                self.drain_once()
        return want

    def drain_once(self) -> None:
        if not self._draining.is_set():
            log.info("worker has done its share", extra={"worker": self._card.name, "runs": self._started})
            self.drain()

    async def _lease(self, want: int) -> list[Lease]:
        self._leases_begun += 1
        try:
            leases = await self._protocol.lease(self._id, want, hesitant=True)
            for lease in leases:
                self._start(lease)
            return leases
        finally:
            self._leases_ended = self._leases_begun

    def _start(self, lease: Lease) -> None:
        self._started += 1
        self._preparations.used(lease.spec.code, lease.spec.spider_env, lease.spec.ports)
        running = RunningAttempt(lease, self._folder, self._options.echo)
        key = (lease.run_id, lease.attempt)
        self._running[key] = running
        running.task = asyncio.create_task(execute_attempt(running, self._tools))
        running.task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: tuple[int, int]) -> None:
        running = self._running.pop(key)
        self._done += 1
        self._room.set()
        if self._ends_at:
            self._note_waiting()
        if (ending := ending_of(running)) is not None:
            self._reports.add(ending)

    async def _listen(self, queues: list[str]) -> None:
        """Wait for a ring, the end of the poll interval or the word to drain, whichever comes first."""
        seconds = self._options.listen_seconds or self._options.poll_seconds
        ringing = asyncio.ensure_future(self._broker.wait(queues, seconds))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            done, _ = await asyncio.wait({ringing, draining}, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also where this worker is stopped meanwhile: nobody would look at what becomes of the call
            ringing.cancel()
            draining.cancel()
        if ringing in done and (problem := ringing.exception()) is not None:
            if not isinstance(problem, BrokerDown):  # a broker is somebody's plug-in: without it we poll
                log.error("the broker failed", extra={"worker": self._card.name, "why": repr(problem)})
            await interruptible_sleep(self._options.poll_seconds, self._draining)

    async def _deliver_left_behind(self) -> None:
        await deliver_left_behind(self._folder, self._delivery, self._tools.blobs, self._reports.add)

    async def _ship_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.ship_seconds)
            await ship_logs(self._protocol, self._id, self._running.values())

    async def _wait_for_running(self, seconds: float) -> None:
        for running in list(self._running.values()):
            if running.lease.kind in GIVEN_BACK:
                running.stop("drain")
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            most = seconds + max(_grace(running.lease) for running in self._running.values())
            told = {"worker": self._card.name, "runs": self._names(), "at_most_seconds": most}
            log.info("worker waits for its runs; a second signal ends it now", extra=told)
            if not self._ordered:
                self._ends_at = time.monotonic() + most
                self._note_waiting()
            await wait_for_runs(tasks, seconds, patient_until=self._impatient if self._ordered else None)

    async def _give_back(self) -> None:
        """Stop what still runs and hand it back unharmed."""
        self._stop_all("drain")
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _stop_all(self, why: str, *, at_once: bool = False) -> None:
        for running in list(self._running.values()):
            running.stop(why, at_once=at_once)

    def _names(self) -> list[str]:
        """The runs of this worker, for people."""
        leases = [running.lease for running in self._running.values()]
        return [f"{lease.project}/{lease.task} (run {lease.run_id})" for lease in leases]

    def _note_waiting(self) -> None:
        try:
            note_waiting(self._folder, DrainStatus(self._ends_at, self._names()))
        except OSError as problem:  # a full disk, for one
            log.warning("what the worker waits for was not noted", extra={"why": str(problem)})

    def _beat(self) -> Heartbeat:
        problem = self._disk.problem
        state = "unhealthy" if problem else "busy" if len(self._running) >= self._card.capacity else "online"
        kinds = {running.lease.kind for running in list(self._running.values())}
        stats = {**usage(), "breakers": self._breakers.rows(kinds)}
        stats |= {"limiter_degraded": 1} if self._protocol.permits_degraded else {}
        stats |= {"problem": problem} if problem else {}
        state = "draining" if self._draining.is_set() else state
        return Heartbeat(state=state, running=len(self._running), done=self._done, stats=stats)

    def _obey(self, orders: HeartbeatReply) -> None:
        """Act on the answer to a heartbeat."""
        if orders.lost:
            log.error("worker was given up for lost; its runs are stopped", extra={"worker": self._card.name})
            self._stop_all("lost")
            self._heartbeats.remove(self._id)
            if not self._draining.is_set():
                self._rejoining = asyncio.create_task(self._join())
            return
        note_heartbeat(self._folder)
        for why, keys in (("cancel", orders.cancel), ("pause", orders.pause)):
            for key in self._running.keys() & set(keys):
                self._running[key].stop(why)
        if orders.drain:
            self.drain(ordered=True)
        self._settle_differences(set(orders.held))
        self._preparations.begin(orders.prepare)

    def _settle_differences(self, held: set[tuple[int, int]]) -> None:
        """Give back leases that never reached us, and stop runs that are no longer ours.

        A difference counts once it was seen at two beats and the lease that was under way at the first is over: until
        then it may be a lease or a report that is on its way.
        """
        known = set(self._running) | self._reports.keys
        strange = held ^ known
        certain = {key for key in strange if self._strange.get(key, self._leases_begun + 1) <= self._leases_ended}
        self._strange = {key: self._strange.get(key, self._leases_begun) for key in strange}
        for key in certain & held:
            self._reports.add(
                Ending(run_id=key[0], attempt=key[1], outcome="released", reason="the lease was not received")
            )
        for key in certain - held:
            if key in self._running:
                self._running[key].stop("lost")


def _grace(lease: Lease) -> float:
    """How long a run may take to end that is stopped."""
    settings = lease.spec.spec.get("settings")
    own = None
    with suppress(Invalid):  # then it does not start
        own = grace_of(settings.get(GRACE)) if isinstance(settings, dict) else None
    of_task = lease.spec.grace_seconds
    return own if own is not None else GRACE_SECONDS if of_task is None else of_task
