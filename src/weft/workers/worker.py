"""The worker: leases runs, sees each to its end, and says how it ended.

User code never runs in this loop for long: executors start processes or wait on sockets. What ends while an earlier
report is still under way is reported together with the next: a busy worker writes in batches, an idle one at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from weft.errors import BrokerDown, WeftError
from weft.ports import Blobs, Broker, Executor
from weft.runs.lanes import queues_for
from weft.runs.model import Ending, Lease
from weft.workers.attempt import Codes, Running, Tools, ending_of, no_code, see_through
from weft.workers.breakers import Breakers
from weft.workers.delivery import Delivery
from weft.workers.folder import note_heartbeat
from weft.workers.habits import Habits
from weft.workers.heart import Heart
from weft.workers.leaving import wait_for_runs
from weft.workers.left_behind import deliver_left_behind
from weft.workers.log_shipping import ship_all
from weft.workers.pausing import pause
from weft.workers.preparing import Preparations
from weft.workers.protocol import Beat, Card, Orders, WorkerProtocol
from weft.workers.reports import Reports
from weft.workers.usage import usage

log = logging.getLogger(__name__)

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
        card: Card,
        protocol: WorkerProtocol,
        heart: Heart,
        broker: Broker,
        blobs: Blobs,
        executor: Callable[[str], Executor],
        *,
        folder: Path,
        code: Codes = no_code,
        habits: Habits | None = None,
    ) -> None:
        self._card, self._protocol, self._heart = card, protocol, heart
        self._broker = broker
        self._delivery = Delivery(protocol)
        chosen = habits or Habits()
        self._tools = Tools(executor, blobs, code, self._delivery, protocol, chosen.policy, chosen.limiter)
        self._preparations = Preparations(executor, code, folder)
        self._folder, self._habits = folder, habits or Habits()
        self._running: dict[tuple[int, int], Running] = {}
        self._id = 0
        self._started = self._done = 0
        self._draining = asyncio.Event()
        self._hurried = asyncio.Event()
        self._ordered = False
        self._impatient = asyncio.Event()
        self._room = asyncio.Event()
        self._leases_begun = self._leases_ended = 0
        self._strange: dict[tuple[int, int], int] = {}
        self._breakers = Breakers(executor)
        self._rejoining: asyncio.Task[bool] | None = None
        self._reports = Reports(protocol, self._room.set)

    async def run(self) -> None:
        """Join, work until drained, leave. Being cancelled gives every run back at once."""
        if not await self._join():
            return
        reporting = asyncio.create_task(self._reports.run_forever())
        shipping = asyncio.create_task(self._ship_forever())
        delivering = asyncio.create_task(self._delivery.run_forever())
        leftover = asyncio.create_task(deliver_left_behind(self._folder, self._delivery, self._tools.blobs))
        try:
            await self._lease_forever()
            await self._wait_for_running(self._habits.drain_seconds)
        finally:
            await self._give_back()
            await self._reports.drain(self._hurried, self._habits.drain_seconds + TELL_SECONDS)
            beside = [reporting, shipping, delivering, leftover, *([self._rejoining] if self._rejoining else [])]
            beside += self._preparations.under_way
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self._preparations.release()
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
            self._stop_all("drain")
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
            await pause(self._habits.poll_seconds, self._draining)
        else:
            return False
        self._reports.worker_id = self._delivery.worker_id = self._id
        self._heart.add(self._id, self._beat, self._obey)
        log.info("worker joined", extra={"worker": self._card.name, "worker_id": self._id})
        return True

    async def _leave(self) -> None:
        self._heart.remove(self._id)
        try:
            await self._protocol.heartbeat(self._id, Beat(state="offline", running=0, done=self._done))
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
            try:
                leases = await self._lease(want)
            except WeftError as problem:
                log.warning("nothing leased", extra={"worker": self._card.name, "why": str(problem)})
                await pause(self._habits.poll_seconds, self._draining)
                continue
            except Exception:  # a worker goes on, whatever one lease ran into
                log.exception("nothing leased", extra={"worker": self._card.name})
                await pause(4 * self._habits.poll_seconds, self._draining)
                continue
            if len(leases) < want:  # that was all; what comes meanwhile rings
                await self._listen(queues)

    def _places(self) -> int:
        want = min(
            self._card.capacity - len(self._running), MOST_LEASED, 4 * self._card.capacity - self._reports.backlog
        )
        if self._habits.max_runs:
            want = min(want, self._habits.max_runs - self._started)
            if want <= 0 and self._started >= self._habits.max_runs:
                self.drain_once()
        return want

    def drain_once(self) -> None:
        if not self._draining.is_set():
            log.info("worker has done its share", extra={"worker": self._card.name, "runs": self._started})
            self.drain()

    async def _lease(self, want: int) -> list[Lease]:
        self._leases_begun += 1
        try:
            leases = await self._protocol.lease(self._id, want)
            for lease in leases:
                self._start(lease)
            return leases
        finally:
            self._leases_ended = self._leases_begun

    def _start(self, lease: Lease) -> None:
        self._started += 1
        self._preparations.used(lease.spec.code)
        running = Running(lease, self._folder, self._habits.echo)
        key = (lease.run_id, lease.attempt)
        self._running[key] = running
        running.task = asyncio.create_task(see_through(running, self._tools))
        running.task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: tuple[int, int]) -> None:
        running = self._running.pop(key)
        self._done += 1
        self._room.set()
        if (ending := ending_of(running)) is not None:
            self._reports.add(ending)

    async def _listen(self, queues: list[str]) -> None:
        """Wait for a ring, the end of the poll interval or the word to drain, whichever comes first."""
        seconds = self._habits.listen_seconds or self._habits.poll_seconds
        ringing = asyncio.ensure_future(self._broker.wait(queues, seconds))
        draining = asyncio.ensure_future(self._draining.wait())
        done, pending = await asyncio.wait({ringing, draining}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if ringing in done and (problem := ringing.exception()) is not None:
            if not isinstance(problem, BrokerDown):  # a broker is somebody's plug-in: without it we poll
                log.error("the broker failed", extra={"worker": self._card.name, "why": repr(problem)})
            await pause(self._habits.poll_seconds, self._draining)

    async def _ship_forever(self) -> None:
        while True:
            await asyncio.sleep(self._habits.ship_seconds)
            await ship_all(self._protocol, self._id, self._running.values())

    async def _wait_for_running(self, seconds: float) -> None:
        for running in list(self._running.values()):
            if running.lease.kind in GIVEN_BACK:
                running.stop("drain")
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            log.info("worker drains", extra={"worker": self._card.name, "runs": len(tasks)})
            await wait_for_runs(tasks, seconds, patient_until=self._impatient if self._ordered else None)

    async def _give_back(self) -> None:
        """Stop what still runs and hand it back unharmed."""
        self._stop_all("drain")
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _stop_all(self, why: str) -> None:
        for running in list(self._running.values()):
            running.stop(why)

    def _beat(self) -> Beat:
        busy = len(self._running) >= self._card.capacity
        state = "draining" if self._draining.is_set() else "busy" if busy else "online"
        kinds = {running.lease.kind for running in list(self._running.values())}
        limiter = self._habits.limiter
        stats = {**usage(), "breakers": self._breakers.rows(kinds)}
        stats |= {"limiter_degraded": 1} if limiter is not None and limiter.degraded else {}
        return Beat(state=state, running=len(self._running), done=self._done, stats=stats)

    def _obey(self, orders: Orders) -> None:
        """Act on the answer to a heartbeat."""
        if orders.lost:
            log.error("worker was given up for lost; its runs are stopped", extra={"worker": self._card.name})
            self._stop_all("lost")
            self._heart.remove(self._id)
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
