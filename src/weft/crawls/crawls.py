"""The front door to crawls: create, list, pause, resume, stop, explain; and how fast they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from weft import events
from weft.access.audit import record_change
from weft.address_guard import Guard
from weft.clock import SECOND, Clock, Moment
from weft.crawl_spec import CrawlSpec
from weft.crawler.messages import ACTIVE, FINISHED, NO_POLICY, PAUSED, STOPPED, CrawlPolicy, Skip
from weft.crawls import lifecycle, store
from weft.crawls.files import CrawlFiles
from weft.crawls.lifecycle import add_urls
from weft.crawls.model import IN_DATABASE, Crawl, CrawlPartition, CrawlReport, ThroughputSpan, UrlExplanation
from weft.crawls.project_scope import host_for
from weft.crawls.validation import check_address, check_name, check_reason, crawl_name, partition_spec, validated_spec
from weft.db.database import Database, Transaction
from weft.errors import Conflict, FrontierElsewhere, Invalid, NotFound
from weft.events import Fact
from weft.items.model import TimelineSample
from weft.ports import FAILED, SKIPPED, STATES, Blobs, Counts, Frontier, Known, KnownHost
from weft.proxies.proxies import check_plan
from weft.runs import store as run_store
from weft.runs.model import UNLEASED, NewRun, Retry, RunSpec
from weft.runs.runs import Runs

POINTS = 60
"""Into how many parts the time of a crawl is divided."""
RECENT: Moment = 10 * SECOND
"""How far back one looks for the speed of now."""
SILENT_AFTER: Moment = 25 * SECOND
"""A run that has told nothing for so long does nothing, as far as anybody knows; they tell every ten seconds."""

RunTimeline = Sequence[TimelineSample]
RunAttempt = tuple[int, int]
"""A run, and which attempt of it."""


def current_throughput(
    partitions: Sequence[CrawlPartition], courses: Mapping[RunAttempt, RunTimeline], at: Moment
) -> float:
    """Pages a second of all that runs, in its last seconds; of what has just begun, since then."""
    running = [partition for partition in partitions if partition.state == "running"]
    return sum(
        _current_rate(partition, courses.get((partition.run_id, partition.attempt), ()), at) for partition in running
    )


def _current_rate(partition: CrawlPartition, course: RunTimeline, at: Moment) -> float:
    if not course or at - course[-1].at > SILENT_AFTER:
        return 0.0
    last = course[-1]
    before = next((each for each in reversed(course) if last.at - each.at >= RECENT), None)
    since, had = (partition.started_at or last.at, 0) if before is None else (before.at, before.requests)
    return max(0.0, (last.requests - had) * SECOND / max(last.at - since, SECOND))


def measured_until(courses: Iterable[RunTimeline], at: Moment) -> Moment:
    """Up to when it is known how fast a crawl is that goes on: when its runs last told, or now if that is long ago."""
    last = max((course[-1].at for course in courses if course), default=0)
    return last if at - last <= SILENT_AFTER else at


def average_throughput(crawl: Crawl, counts: Counts) -> float:
    """Pages a second from the begin of a crawl until its end; 0 where it has not ended."""
    passed = 0 if crawl.ended_at is None else crawl.ended_at - crawl.created_at
    return (counts.done + counts.failed) * SECOND / passed if passed >= SECOND else 0.0


def throughput_over_time(
    courses: Iterable[RunTimeline], begin: Moment, end: Moment, points: int = POINTS
) -> list[ThroughputSpan]:
    """Pages a second in equal parts of the time; what came between two samples is spread evenly over their time."""
    width = max((end - begin) // points, SECOND)
    count = max(1, -(-(end - begin) // width))
    pages = [0.0] * count
    for course in courses:
        for earlier, later in pairwise(course):
            _spread(pages, (earlier.at - begin) / width, (later.at - begin) / width, later.requests - earlier.requests)
    return [
        ThroughputSpan(at=begin + place * width, pages_per_second=round(each * SECOND / width, 3))
        for place, each in enumerate(pages)
    ]


def _spread(pages: list[float], since: float, until: float, amount: int) -> None:
    """Add an amount that came between two places, to each part of the time as much as lies in it."""
    if until <= since or amount <= 0:
        return
    for place in range(max(0, int(since)), min(len(pages), int(until) + 1)):
        inside = min(until, place + 1) - max(since, place)
        pages[place] += amount * max(0.0, inside) / (until - since)


FRESH_SECONDS = 1.0
"""How long the counts of a crawl that is not over are told again."""
MOST_CACHED = 1_000


@dataclass(frozen=True, slots=True)
class _CachedCounts:
    counts: Counts
    at: float
    ended_at: Moment | None


class CountCache:
    """Remembers counts: of a crawl that is done until it goes on, of others for a moment."""

    def __init__(self, frontier: Frontier, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._frontier, self._monotonic = frontier, monotonic
        self._counted: dict[int, _CachedCounts] = {}

    async def here(self, crawl: Crawl) -> Counts | None:
        """The same for lists; None where its URLs are in another frontier."""
        try:
            return await self.of(crawl)
        except FrontierElsewhere:
            return None

    async def of(self, crawl: Crawl) -> Counts:
        known, at = self._counted.get(crawl.id), self._monotonic()
        is_over = crawl.state == FINISHED and crawl.ended_at is not None
        if known is not None and (at - known.at < FRESH_SECONDS or (is_over and known.ended_at == crawl.ended_at)):
            return known.counts
        counts = await self._frontier.counts(crawl.id)
        if len(self._counted) >= MOST_CACHED:
            del self._counted[next(iter(self._counted))]
        self._counted[crawl.id] = _CachedCounts(counts, at, crawl.ended_at if is_over else None)
        return counts


MOST_TRAPS = 100
"""Patterns of traps that a report has."""
PARTITION_RETRY = Retry(count=3, delay_seconds=5.0)
"""A partition that fails is tried again: what it held goes back in line by itself."""
FILLING = "it is being filled"


class Crawls:
    """Every crawl there is. Each is done by runs, its partitions; what is known of addresses is in the frontier."""

    def __init__(
        self,
        db: Database,
        runs: Runs,
        frontier: Frontier,
        blobs: Blobs,
        clock: Clock,
        policy: CrawlPolicy = NO_POLICY,
        *,
        place: str = IN_DATABASE,
    ) -> None:
        self._db, self._runs, self._frontier, self._clock = db, runs, frontier, clock
        self.files, self.counting = CrawlFiles(blobs), CountCache(frontier)
        self._policy, self._place = policy, place

    async def create(
        self,
        project: str,
        spec: Mapping[str, Any] | CrawlSpec,
        *,
        name: str = "",
        labels: Sequence[str] = (),
        by: str = "",
        paused: bool = False,
    ) -> Crawl:
        """Begin a crawl: its partitions are queued with it. One that is begun ``paused`` waits for ``resume``."""
        check_name("project", project)
        read = validated_spec(spec, self._policy)
        name = crawl_name(name, read)

        def work(tx: Transaction) -> int:
            at = self._clock()
            check_plan(tx, project, read.fetching.proxies)
            row = {"project": project, "name": name, "run_id": None, "spec": read, "created_at": at, "created_by": by}
            crawl_id = store.add(tx, row | {"frontier": self._place})
            if paused:
                store.change_state(tx, crawl_id, [ACTIVE], PAUSED, FILLING, None)
            partitions = 0 if paused else max(read.spread, 1)  # what is to be spread by itself begins with one
            queued = [self._queue(tx, crawl_id, (project, name, read), labels, by) for _ in range(partitions)]
            run_id = queued[0] if queued else None
            events.append(tx, [Fact("crawl_started", project, run_id, None, {"crawl": crawl_id})], at)
            record_change(tx, after={"crawl": crawl_id, "name": name, "urls": list(read.urls[:10])})
            return crawl_id

        return await self.get(await self._db.transact(work))

    def _queue(
        self, tx: Transaction, crawl_id: int, what: tuple[str, str, CrawlSpec], labels: Sequence[str], by: str
    ) -> int:
        """Queue one more partition in the caller's transaction."""
        project, name, spec = what
        run = NewRun(
            project=project,
            task=name,
            kind=store.KIND,
            spec=RunSpec(spec=partition_spec(spec, crawl_id), labels=tuple(labels), retry=PARTITION_RETRY),
            correlation_id=store.correlation(crawl_id),
            by=by,
        )
        run_id = self._runs.admit(tx, [run])[0].run_id
        store.set_run(tx, crawl_id, run_id)
        return run_id

    def queue_partition(self, tx: Transaction, crawl: Crawl, by: str = "") -> int:
        """Queue one more run that does a partition of a crawl, like its first."""
        spider = store.spider_run(tx, crawl)
        if spider is not None:
            return self._runs.admit(tx, [replace(spider, by=by)])[0].run_id
        labels = store.labels(tx, crawl)
        return self._queue(tx, crawl.id, (crawl.project, crawl.name, crawl.spec), labels, by)

    async def get(self, crawl_id: int) -> Crawl:
        found = await self._db.glance(lambda tx: store.get(tx, crawl_id))
        if found is None:
            raise NotFound("crawl", crawl_id)
        return found

    async def project_of(self, crawl_id: int) -> str:
        found = await self._db.glance(lambda tx: store.project_of(tx, crawl_id))
        if found is None:
            raise NotFound("crawl", crawl_id)
        return found

    async def all(
        self,
        projects: Collection[str] | None = None,
        *,
        state: str | None = None,
        name: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Crawl]:
        """Crawls, newest first."""
        wanted = {"projects": projects, "state": state, "name": name, "run_id": run_id, "before": before}
        return await self._db.read(lambda tx: store.page(tx, limit=limit, **wanted))  # type: ignore[arg-type]

    async def counted(
        self, projects: Collection[str] | None = None, *, state: str | None = None, limit: int = 50
    ) -> list[tuple[Crawl, Counts | None]]:
        """Crawls, newest first, and the counts of each; None where its URLs are in another frontier."""
        found = await self.all(projects, state=state, limit=limit)
        return [(each, await self.counting.here(each)) for each in found]

    async def states(self) -> dict[str, int]:
        """How many crawls are in each state; of those that have ended, the newest thousand."""
        return await self._db.read(store.count_states)

    async def counts(self, crawl_id: int) -> Counts:
        return await self._frontier.counts(crawl_id)

    async def report(self, crawl_id: int) -> CrawlReport:
        """A crawl, how far it is, who does it, and what was left out."""
        crawl, counts = await self.get(crawl_id), await self.counts(crawl_id)

        def look(tx: Transaction) -> CrawlReport:
            partitions = store.partitions(tx, crawl)
            courses = store.timelines(
                tx, [partition.run_id for partition in partitions if partition.finished_at is None]
            )
            return CrawlReport(
                crawl=crawl,
                counts=counts,
                pages_per_second=current_throughput(partitions, courses, self._clock())
                or average_throughput(crawl, counts),
                partitions=partitions,
                skips=store.skip_sums(tx, crawl_id),
                traps=store.skips_of(tx, crawl_id, traps=True, limit=MOST_TRAPS),
            )

        return await self._db.read(look)

    async def pace(self, crawl_id: int) -> list[ThroughputSpan]:
        """How fast the crawl was from its begin until now."""
        crawl = await self.get(crawl_id)

        def look(tx: Transaction) -> list[ThroughputSpan]:
            partitions = store.partitions(tx, crawl)
            courses = store.timelines(tx, [partition.run_id for partition in partitions])
            end = crawl.ended_at or measured_until(courses.values(), self._clock())
            return throughput_over_time(courses.values(), crawl.created_at, end)

        return await self._db.read(look)

    async def pause(self, crawl_id: int, reason: str = "paused by a person") -> Crawl:
        """Let a crawl rest: its partitions give back what they hold and end; nothing is lost."""
        return await self._change(crawl_id, [ACTIVE], PAUSED, reason)

    async def stop(self, crawl_id: int, reason: str = "stopped by a person") -> Crawl:
        """End a crawl for good, whatever is left; what it has found stays."""
        return await self._change(crawl_id, [ACTIVE, PAUSED], STOPPED, reason)

    async def _change(self, crawl_id: int, before: Sequence[str], state: str, reason: str) -> Crawl:
        def work(tx: Transaction) -> None:
            crawl, at = _held(tx, crawl_id), self._clock()
            ended_at = at if state == STOPPED else None
            if not store.change_state(tx, crawl_id, before, state, reason, ended_at):
                may = f"only one that is {lifecycle.joined_with_or(before)} can be {state}"
                raise Conflict(f"crawl {crawl_id} is {lifecycle.state_text(crawl)}; {may}")
            kind = "crawl_paused" if state == PAUSED else "crawl_finished"
            data = {"crawl": crawl_id, "reason": reason}
            events.append(tx, [Fact(kind, crawl.project, crawl.run_id, None, data)], at)
            for partition in store.live_partitions(tx, crawl):
                if partition.state in UNLEASED:
                    self._runs.cancel_in(tx, partition.run_id, f"crawl {crawl_id} is {state}")
                else:
                    run_store.withdraw_pause(tx, partition.run_id)  # it ends, and nobody would let it go on
            record_change(tx, before={"state": crawl.state}, after={"state": state})

        await self._db.transact(work)
        return await self.get(crawl_id)

    async def resume(self, crawl_id: int, by: str = "") -> Crawl:
        """Let a crawl go on that rests, or was stopped: it begins where it was."""

        def work(tx: Transaction) -> None:
            crawl, at = _held(tx, crawl_id), self._clock()
            if not store.change_state(tx, crawl_id, [PAUSED, STOPPED], ACTIVE, "", None):
                raise Conflict(
                    f"crawl {crawl_id} is {lifecycle.state_text(crawl)}; only one paused or stopped can go on"
                )
            self.go_on(tx, crawl, by)
            events.append(tx, [Fact("crawl_resumed", crawl.project, crawl.run_id, None, {"crawl": crawl_id})], at)
            record_change(tx, before={"state": crawl.state}, after={"state": ACTIVE})

        await self._db.transact(work)
        return await self.get(crawl_id)

    def go_on(self, tx: Transaction, crawl: Crawl, by: str = "") -> None:
        """See to it that somebody does a crawl: queue a partition unless one waits already."""
        if not any(partition.state == "queued" for partition in store.live_partitions(tx, crawl)):
            self.queue_partition(tx, crawl, by)

    async def urls(
        self, crawl_id: int, *, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        """Addresses that the crawl knows."""
        if state and state not in STATES:
            raise Invalid("state", state, f"it must be {lifecycle.joined_with_or(STATES)}")
        await self.get(crawl_id)
        return await self._frontier.urls(crawl_id, state, host, after, limit)

    async def hosts(self, crawl_id: int, *, after: str = "", limit: int = 100) -> list[KnownHost]:
        crawl = await self.get(crawl_id)
        found = await self._frontier.hosts(crawl_id, after, limit)
        return [host_for(crawl.project, each, self._clock()) for each in found]

    async def skips(
        self, crawl_id: int, *, reason: str | None = None, traps: bool = False, limit: int = 100
    ) -> list[Skip]:
        """What was left out, by reason, host and pattern, the most first."""
        await self.get(crawl_id)

        def look(tx: Transaction) -> list[Skip]:
            found = store.skips_of(tx, crawl_id, reason=reason, traps=traps, limit=limit)
            if not found and reason:
                check_reason(reason, crawl_id, [each.reason for each in store.skip_sums(tx, crawl_id)])
            return found

        return await self._db.read(look)

    async def why(self, crawl_id: int, url: str) -> UrlExplanation:
        """Why an address is not crawled, in one sentence."""
        from weft.crawls import why  # it reads pages, which nobody else here does

        return await why.explain(self._frontier, await self.get(crawl_id), url, self._clock())

    async def feed(self, crawl_id: int, urls: Sequence[str]) -> int:
        """Add addresses to a crawl and tell how many it did not know; one that is over goes on with them."""
        crawl, guard = await self.get(crawl_id), Guard(self._policy.allowed_networks)
        spelled = [check_address(f"urls[{place}]", url, guard) for place, url in enumerate(urls)]
        if crawl.state == STOPPED:
            raise Conflict(f"crawl {crawl_id} is {lifecycle.state_text(crawl)}; let it go on before you give it more")
        await lifecycle.check_budget(self._frontier, crawl, self._clock())
        new = await add_urls(self._frontier, crawl, spelled, "fed")
        if crawl.state == FINISHED and new:
            await self._reopen(crawl)
        return new

    async def requeue(self, crawl_id: int, state: str = FAILED) -> int:
        """Put every address that failed, or was skipped, back in line; a crawl that is over goes on with them."""
        if state not in (FAILED, SKIPPED):
            raise Invalid("state", state, f"it must be {FAILED} or {SKIPPED}")
        crawl = await self.get(crawl_id)
        await lifecycle.check_budget(self._frontier, crawl, self._clock(), known_hosts=True)
        count = await self._frontier.requeue(crawl_id, state)
        await self._db.transact(lambda tx: store.forget_skips(tx, crawl_id, state))
        if crawl.state == FINISHED and count:
            await self._reopen(crawl)
        return count

    async def _reopen(self, crawl: Crawl) -> None:
        def work(tx: Transaction) -> None:
            if store.change_state(tx, crawl.id, [FINISHED], ACTIVE, "", None):
                self.go_on(tx, crawl)
                data = {"crawl": crawl.id}
                events.append(tx, [Fact("crawl_resumed", crawl.project, crawl.run_id, None, data)], self._clock())
            record_change(tx, after={"state": ACTIVE})

        await self._db.transact(work)

    async def delete(self, crawl_id: int) -> None:
        """Forget a crawl that is over, with all that it knows and its raw files; its items stay in their dataset."""

        def work(tx: Transaction) -> Crawl:
            crawl = _held(tx, crawl_id)
            if crawl.state in (ACTIVE, PAUSED):
                raise Conflict(f"crawl {crawl_id} is {lifecycle.state_text(crawl)}; stop it first")
            store.forget(tx, crawl_id)
            record_change(tx, before={"name": crawl.name, "urls": list(crawl.spec.urls[:10])})
            return crawl

        await self._db.transact(work)
        await self._frontier.forget(crawl_id)
        await self.files.forget(crawl_id)


def _held(tx: Transaction, crawl_id: int) -> Crawl:
    found = store.lock(tx, crawl_id)
    if found is None:
        raise NotFound("crawl", crawl_id)
    return found
