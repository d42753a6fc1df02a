"""Scales crawls over workers: queues further partitions while workers are free and hosts wait."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from weft import events
from weft.clock import SECOND, Clock, Moment
from weft.crawler.messages import ACTIVE, PAUSED
from weft.crawls import store
from weft.crawls.crawls import Crawls
from weft.crawls.model import Crawl, CrawlPartition
from weft.db.database import Database, Transaction
from weft.errors import FrontierElsewhere
from weft.events import Fact
from weft.ports import Frontier
from weft.runs.model import UNLEASED

MOST_AT_ONCE = 200
"""Crawls that are looked at with one question."""
AFTER_FAILURE: Moment = 60 * SECOND
"""How long a partition that failed beside others is not replaced: its worker is free and would take the next."""
log = logging.getLogger(__name__)

HOSTS_A_PAGE, HOST_PAGES = 100, 10
"""How far it is looked for hosts that wait: a crawl with so many has enough for everybody."""
HEARD_OF: Moment = 60 * SECOND
"""How long ago a worker may have been heard of last."""
SETTLED: Moment = 5 * SECOND
"""How long a crawl is looked after once its last partition has ended, which may be telling that it is over."""


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """How many partitions a crawl should have."""

    count: int
    by_worker: bool
    """Each on a worker of its own. Any worker may take a partition, so that more may be needed, up to twice as many."""

    def missing(self, live: Sequence[CrawlPartition]) -> int:
        count = max(self.count, 1)
        if not self.by_worker:
            return max(0, count - len(live))
        waiting = sum(partition.state in UNLEASED for partition in live)  # one that was paused keeps its place
        covered = len({partition.worker for partition in live if partition.state not in UNLEASED})
        return max(0, min(count - covered - waiting, 2 * count - len(live)))


class CrawlAutoscaler:
    """One process is enough; where two do it, the rows decide."""

    def __init__(self, db: Database, crawls: Crawls, frontier: Frontier, clock: Clock) -> None:
        self._db, self._crawls, self._frontier, self._clock = db, crawls, frontier, clock

    async def tick(self) -> int:
        """Look after every crawl that is going on; return how many partitions were queued."""
        after, queued = 0, 0
        while going_on := await self._going_on(after):
            for crawl in going_on:
                queued += await self._looked_after(crawl)
            after = going_on[-1].id
        return queued

    async def _going_on(self, after: int) -> list[Crawl]:
        return await self._db.read(lambda tx: store.active(tx, after, MOST_AT_ONCE))

    async def _looked_after(self, crawl: Crawl) -> int:
        try:
            return await self._look_after(crawl)
        except FrontierElsewhere as problem:  # the others are looked after all the same
            log.warning("crawl is not spread", extra={"crawl": crawl.id, "why": str(problem)})
            return 0

    async def _look_after(self, crawl: Crawl) -> int:
        spread, workers = crawl.spec.spread, await self._workers()
        wanted = spread or workers
        if wanted > 1 and crawl.seeded:
            wanted = min(wanted, max(1, await self._waiting_hosts(crawl.id, wanted)))
        aim = ScaleTarget(wanted if crawl.seeded else 1, by_worker=not spread)
        return await self._db.transact(lambda tx: self._see_to(tx, crawl.id, aim))

    async def _workers(self) -> int:
        since = self._clock() - HEARD_OF
        return await self._db.glance(lambda tx: store.live_workers(tx, since))

    async def _waiting_hosts(self, crawl_id: int, enough: int) -> int:
        """How many hosts have addresses in line, as far as that matters."""
        count, after = 0, ""
        for _ in range(HOST_PAGES):
            hosts = await self._frontier.hosts(crawl_id, after, HOSTS_A_PAGE)
            count += sum(host.counts.queued > 0 or host.counts.leased > 0 for host in hosts)
            if count >= enough or len(hosts) < HOSTS_A_PAGE:
                return count
            after = hosts[-1].host
        return enough

    def _see_to(self, tx: Transaction, crawl_id: int, aim: ScaleTarget) -> int:
        """Queue what is missing of the partitions that are wanted; a crawl whose partitions all failed is paused."""
        crawl = store.lock(tx, crawl_id)
        if crawl is None or crawl.state != ACTIVE or not store.is_crawl(tx, crawl):
            return 0
        partitions = store.partitions(tx, crawl)
        live = [partition for partition in partitions if partition.finished_at is None]
        if not live and partitions and not self._may_go_on(tx, crawl, partitions[0]):
            return 0
        if live and any(self._has_just_failed(partition) for partition in partitions):
            return 0
        missing = aim.missing(live)
        for _ in range(missing):
            self._crawls.queue_partition(tx, crawl, f"crawl:{crawl_id}")
        return missing

    def _has_just_failed(self, partition: CrawlPartition) -> bool:
        return partition.state == "failed" and self._clock() - (partition.finished_at or 0) < AFTER_FAILURE

    def _may_go_on(self, tx: Transaction, crawl: Crawl, last: CrawlPartition) -> bool:
        """Whether a crawl without a partition gets one: not where the last failed, or a person cancelled it."""
        at = self._clock()
        if last.finished_at is None or at - last.finished_at < SETTLED:
            return False
        if last.state == "succeeded":
            return True
        reason = f"run {last.run_id} {last.state}: {last.reason or last.outcome}"
        if store.change_state(tx, crawl.id, [ACTIVE], PAUSED, reason, None):
            data = {"crawl": crawl.id, "reason": reason}
            events.append(tx, [Fact("crawl_paused", crawl.project, crawl.run_id, None, data)], at)
        return False
