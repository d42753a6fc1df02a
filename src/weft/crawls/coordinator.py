"""Coordinates the runs of a crawl: the control plane's side of a turn.

It knows which crawl a run is a partition of, begins it when its first run asks, and ends it when nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from weft import crawl_spec, events
from weft.access.secrets import Secrets
from weft.clock import SECOND, Clock, Moment
from weft.crawl_spec import PAGE_KEY, CrawlSpec
from weft.crawler.messages import ACTIVE, FINISHED, PAUSED, CrawlTurn, CrawlTurnReply
from weft.crawler.reasons import links_not_kept, skipped_on_suspicion
from weft.crawler.steady_clock import clock_offset, shifted_turn
from weft.crawls import lifecycle, store
from weft.crawls.model import IN_DATABASE, Crawl, is_spider_crawl, not_kept, suspected_count
from weft.crawls.project_scope import turn_of_code, turn_of_project, turned_for, without_states
from weft.db.database import Database, Transaction
from weft.errors import FrontierLost, Invalid, LeaseLost
from weft.events import Fact
from weft.items import item_store
from weft.ports import Frontier, Kept, Turn, Turned
from weft.projects import store as projects
from weft.proxies.model import ProxyTurn, ProxyTurnReply

HUNGRY: Moment = 2 * SECOND
"""For how long others hear of a partition that has nothing to do."""

SPENT_EVERY: Moment = 2 * SECOND
"""How often it is looked whether the budget of a crawl is used up."""


@dataclass(frozen=True, slots=True)
class _Partition:
    """A run that asks, and the crawl that it is a partition of."""

    crawl: Crawl
    holder: str


class CrawlCoordinator:
    """Any number of them may work at once: the frontier and the database decide."""

    def __init__(
        self, db: Database, frontier: Frontier, secrets: Secrets, clock: Clock, *, place: str = IN_DATABASE
    ) -> None:
        self._db, self._frontier, self._secrets, self._clock, self._place = db, frontier, secrets, clock, place
        self._looked_at: dict[int, Moment] = {}

    async def turn(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        """Make a turn for a run that the worker holds. Raises ``LeaseLost`` where it does not."""
        if by := clock_offset(asked.at, self._clock()):
            asked = replace(asked, turn=shifted_turn(asked.turn, by))
        return replace(await self._turn(worker_id, run_id, attempt, asked), at=self._clock())

    async def _turn(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        if asked.proxies is not None:
            project = await self._db.glance(lambda tx: _project_of(tx, worker_id, run_id, attempt))
            return CrawlTurnReply(0, proxies=await self._ways(project, asked.proxies))
        partition = await self._partition(worker_id, run_id, attempt, asked.crawl)
        crawl = partition.crawl
        if crawl.state == ACTIVE and not crawl.seeded:
            await self._seed(crawl)
        stop, reason = await self._must_stop(crawl)
        turn = asked.turn if not stop else _giving_back(asked.turn)
        try:
            if asked.feed and not await self._feed(crawl, asked.feed):
                stop, reason = PAUSED, await self._pause(crawl, _nobody_to_feed(crawl))
                turn = _taken_back(asked.turn)
            turned = await self._turn_of(crawl, partition.holder, turn)
        except FrontierLost as lost:
            return CrawlTurnReply(crawl.id, _nothing(asked.turn), PAUSED, await self._pause(crawl, str(lost)))
        if asked.skips:
            await self._db.transact(
                lambda tx: store.count_skips(tx, crawl.id, asked.skips, partition.holder, asked.number)
            )
        if not stop and _is_over(crawl, turn, turned):
            stop, reason = FINISHED, await self._with_missing(crawl, await self._why_over(crawl))
            await self._end(crawl, reason)
        hungry = await self._others_hungry(crawl, asked, turned)
        failure = await lifecycle.why_no_pages(self._frontier, crawl) if stop == FINISHED else ""
        return CrawlTurnReply(crawl.id, turned, stop, failure or reason, hungry, failed=bool(failure))

    async def _turn_of(self, crawl: Crawl, holder: str, turn: Turn) -> Turned:
        """Make a turn in the name of the crawl's project. What a spider tells is what its code says."""
        at = self._clock()
        if is_spider_crawl(crawl):
            return without_states(await self._frontier.turn(crawl.id, holder, turn_of_code(turn, at)))
        turned = await self._frontier.turn(crawl.id, holder, turn_of_project(turn, crawl.project))
        return turned_for(crawl.project, turned, at)

    async def _others_hungry(self, crawl: Crawl, asked: CrawlTurn, turned: Turned) -> bool:
        """Whether another partition has nothing to do; remembers where this one has not."""
        at = self._clock()
        is_old = crawl.hungry_at < at - HUNGRY
        if asked.hungry and not turned.leases and turned.next_at is not None and is_old:
            await self._db.transact(lambda tx: store.mark_hungry(tx, crawl.id, at))
        return not asked.hungry and not is_old

    async def _ways(self, project: str, asked: ProxyTurn) -> ProxyTurnReply:
        from weft.proxies.proxies import Proxies  # a process that uses none does not load it

        return await Proxies(self._db, self._secrets, self._clock).turn(project, asked)

    async def _partition(self, worker_id: int, run_id: int, attempt: int, asked: int) -> _Partition:
        holder = f"{run_id}:{attempt}"
        found = await self._db.glance(lambda tx: _crawl_of(tx, worker_id, run_id, attempt, asked))
        if found is None:
            found = await self._db.transact(lambda tx: self._begin(tx, worker_id, run_id, attempt))
        return _Partition(found, holder)

    def _begin(self, tx: Transaction, worker_id: int, run_id: int, attempt: int) -> Crawl:
        """Enter the crawl of a run that has none yet."""
        run = store.held_run(tx, run_id, attempt, worker_id)
        if run is None:
            raise LeaseLost(str(worker_id))
        projects.hold(tx, run.project)  # two runs of a spider may begin at once: the second finds the first's crawl
        found = _crawl_of(tx, worker_id, run_id, attempt)
        if found is not None:
            return found
        at, name, spec = self._clock(), _name_of(run), _spec_of(run)
        row = {"project": run.project, "name": name, "run_id": run_id, "spec": spec, "created_at": at}
        crawl_id = store.add(tx, row | {"created_by": f"task:{run.task}", "frontier": self._place})
        events.append(tx, [Fact("crawl_started", run.project, run_id, run.task_id, {"crawl": crawl_id})], at)
        begun = store.get(tx, crawl_id)
        assert begun is not None
        return begun

    async def _seed(self, crawl: Crawl) -> None:
        """Put the addresses that a crawl begins with into its frontier; more than once does no harm."""
        await lifecycle.add_urls(self._frontier, crawl, crawl.spec.urls, "seeds")
        await self._db.transact(lambda tx: self._make_room(tx, crawl))

    def _make_room(self, tx: Transaction, crawl: Crawl) -> None:
        """Have a dataset in which a page is known by its address, however often it is fetched."""
        name, at = crawl.spec.dataset, self._clock()
        brings_pages = crawl.spec.urls or crawl.spec.sitemaps or crawl.spec.tier == "fetch"  # a spider brings its own
        if brings_pages and item_store.dataset_named(tx, crawl.project, name) is None:
            item_store.add_dataset(tx, crawl.project, name, at, PAGE_KEY)
            events.append(tx, [Fact("dataset_created", crawl.project, crawl.run_id, None, {"dataset": name})], at)
        store.mark_seeded(tx, crawl.id)

    async def _feed(self, crawl: Crawl, urls: list[str]) -> bool:
        """Hand what one crawl discovers to another, before it counts as discovered; False where there is no other."""
        name = crawl.spec.feeds
        if not name:
            return True
        fed = await self._db.read(lambda tx: store.active_by_name(tx, crawl.project, name))
        if fed is None:
            return False
        await lifecycle.add_urls(self._frontier, fed, urls, f"crawl {crawl.id}")
        return True

    async def _pause(self, crawl: Crawl, reason: str) -> str:
        """Let a crawl rest that cannot go on, until somebody has mended what is wrong."""
        at = self._clock()

        def work(tx: Transaction) -> None:
            if store.change_state(tx, crawl.id, [ACTIVE], PAUSED, reason, None):
                data = {"crawl": crawl.id, "reason": reason}
                events.append(tx, [Fact("crawl_paused", crawl.project, crawl.run_id, None, data)], at)

        await self._db.transact(work)
        return reason

    async def _must_stop(self, crawl: Crawl) -> tuple[str, str]:
        """Whether the crawl is over or at rest, and why."""
        if crawl.state != ACTIVE:
            return crawl.state, crawl.reason
        reason = await self._spent(crawl)
        if reason:
            reason = await self._with_missing(crawl, reason)
            await self._end(crawl, reason)
            return FINISHED, reason
        return "", ""

    async def _spent(self, crawl: Crawl) -> str:
        """Which budget is used up, in words; that of pages is the frontier's own to keep."""
        at = self._clock()
        if crawl.spec.budget.bytes and not 0 <= at - self._looked_at.get(crawl.id, 0) <= SPENT_EVERY:
            self._looked_at[crawl.id] = at
            return lifecycle.time_used_up(crawl, at) or lifecycle.bytes_used_up(
                crawl, await self._frontier.counts(crawl.id)
            )
        return lifecycle.time_used_up(crawl, at)

    async def _with_missing(self, crawl: Crawl, reason: str) -> str:
        """Why it is over, and that pages are missing: on suspicion, or because links to them were dropped."""
        skips = await self._db.read(lambda tx: store.skip_sums(tx, crawl.id))
        parts = [reason]
        if suspected := suspected_count(skips):
            parts.append(skipped_on_suspicion(suspected))
        if dropped := sum(each.count for each in not_kept(skips, crawl.spec)):
            parts.append(links_not_kept(dropped))
        return "; ".join(parts)

    async def _why_over(self, crawl: Crawl) -> str:
        """In words: that all is done, that nothing came of it, or that the pages which it may have are used up."""
        if failure := await lifecycle.why_no_pages(self._frontier, crawl):
            return failure
        budget = crawl.spec.budget
        if not (budget.pages or budget.pages_per_host) or not (await self._frontier.counts(crawl.id)).queued:
            return "nothing is left"
        return lifecycle.pages_used_up(crawl)

    async def _end(self, crawl: Crawl, reason: str) -> None:
        at = self._clock()

        def work(tx: Transaction) -> None:
            if store.change_state(tx, crawl.id, [ACTIVE], FINISHED, reason, at):
                data = {"crawl": crawl.id, "reason": reason}
                events.append(tx, [Fact("crawl_finished", crawl.project, crawl.run_id, None, data)], at)

        await self._db.transact(work)


def _is_over(crawl: Crawl, turn: Turn, turned: Turned) -> bool:
    """Whether nothing is left for anybody, asked only by one who was given nothing and holds nothing.

    A crawl that others feed is never over by itself.
    """
    if turned.leases or turned.next_at is not None or not turn.hosts or crawl.spec.tier == "fetch":
        return False
    return all(kept.held is False or report.release for kept, report in zip(turned.kept, turn.reports, strict=True))


def _giving_back(turn: Turn) -> Turn:
    """The same turn of one who is given nothing more."""
    return replace(turn, hosts=0, reports=[replace(each, want=0) for each in turn.reports])


def _taken_back(turn: Turn) -> Turn:
    """The same turn of one who has told nothing: what it was given stays with it, and comes back when it ends."""
    reports = [replace(each, outcomes=[], want=0) for each in turn.reports]
    return replace(turn, found=[], reports=reports, hosts=0)


def _nothing(turn: Turn) -> Turned:
    """The answer to one who holds nothing any more."""
    return Turned(kept=[Kept(False)] * len(turn.reports))


def _nobody_to_feed(crawl: Crawl) -> str:
    return f"it feeds the crawl {crawl.spec.feeds}, which does not go on; begin that one, then let this one go on"


def _project_of(tx: Transaction, worker_id: int, run_id: int, attempt: int) -> str:
    run = store.held_run(tx, run_id, attempt, worker_id)
    if run is None:
        raise LeaseLost(str(worker_id))
    return str(run.project)


def _crawl_of(tx: Transaction, worker_id: int, run_id: int, attempt: int, asked: int = 0) -> Crawl | None:
    """The crawl that a run is a partition of; None where it has to be begun. Raises ``LeaseLost``."""
    run = store.held_run(tx, run_id, attempt, worker_id)
    if run is None:
        raise LeaseLost(str(worker_id))
    if run.kind != "crawl":
        return _shared_crawl(tx, run, asked)
    named = _spec_of(run).crawl
    found = store.get(tx, named) if named else store.by_run(tx, run_id)
    if named and (found is None or found.project != run.project):
        raise Invalid("crawl.crawl", named, f"there must be a crawl of that number in project {run.project}")
    return found


def _shared_crawl(tx: Transaction, run: Any, asked: int) -> Crawl | None:
    """The crawl of a spider that shares its frontier: the one that it was told, that it began, or that is going on."""
    name = _name_of(run)
    told = store.get(tx, asked) if asked else store.by_run(tx, run.id)
    if told is not None and (told.project, told.name) == (run.project, name) and is_spider_crawl(told):
        return told
    return next(filter(is_spider_crawl, store.all_active_by_name(tx, run.project, name)), None)


class _SpiderRun(msgspec.Struct):
    spec: dict[str, Any]


def _own_spec(run: Any) -> dict[str, Any]:
    return msgspec.json.decode(run.spec, type=_SpiderRun).spec


def _spec_of(run: Any) -> CrawlSpec:
    """What a run of the kind ``crawl`` is to do; a spider that shares its frontier brings its own addresses."""
    return crawl_spec.read(_own_spec(run)) if run.kind == "crawl" else CrawlSpec(tier="both", follow=True)


def _name_of(run: Any) -> str:
    """What a crawl is called: like its task, or as a spider's spec says."""
    shared = _own_spec(run).get("frontier") if run.kind == "spider" else None
    return str(shared)[:100] if isinstance(shared, str) and shared else str(run.task)
