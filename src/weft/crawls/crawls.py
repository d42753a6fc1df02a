"""The front door to crawls: begin, look, pause, let go on, stop, and ask why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from weft import events
from weft.access.witness import tell
from weft.addresses import Guard
from weft.clock import Clock
from weft.crawl_ports import FAILED, SKIPPED, STATES, Counts, Frontier, Known, KnownHost
from weft.crawl_spec import CrawlSpec
from weft.crawls import list_store, pace, standing, store
from weft.crawls.checking import check_address, check_name, check_reason, checked, name_of, share_spec
from weft.crawls.counting import Counting
from weft.crawls.feeding import give
from weft.crawls.files import CrawlFiles
from weft.crawls.model import ACTIVE, FINISHED, NO_POLICY, PAUSED, STOPPED, Crawl, Policy, Skip
from weft.crawls.report import Beat, Report, Why
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound
from weft.events import Fact
from weft.fetching.proxies import check_plan
from weft.ports import Blobs
from weft.runs.model import NewRun, Retry, RunSpec
from weft.runs.runs import Runs

MOST_TRAPS = 100
"""Patterns of traps that a report has."""
SHARE_RETRY = Retry(count=3, delay_seconds=5.0)
"""A share that fails is tried again: what it held goes back in line by itself."""
FILLING = "it is being filled"


class Crawls:
    """Every crawl there is. Each is done by runs, its shares; what is known of addresses is in the frontier."""

    def __init__(
        self, db: Database, runs: Runs, frontier: Frontier, blobs: Blobs, clock: Clock, policy: Policy = NO_POLICY
    ) -> None:
        self._db, self._runs, self._frontier, self._clock = db, runs, frontier, clock
        self.files, self.counting = CrawlFiles(blobs), Counting(frontier)
        self._policy = policy

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
        """Begin a crawl: its shares are queued with it. One that is begun ``paused`` waits for ``resume``."""
        check_name("project", project)
        read = checked(spec, self._policy)
        name = name_of(name, read)

        def work(tx: Transaction) -> int:
            at = self._clock()
            check_plan(tx, project, read.fetching.proxies)
            row = {"project": project, "name": name, "run_id": None, "spec": read, "created_at": at, "created_by": by}
            crawl_id = store.add(tx, row)
            if paused:
                store.change_state(tx, crawl_id, [ACTIVE], PAUSED, FILLING, None)
            shares = 0 if paused else max(read.spread, 1)  # what is to be spread by itself begins with one
            queued = [self._queue(tx, crawl_id, (project, name, read), labels, by) for _ in range(shares)]
            run_id = queued[0] if queued else None
            events.append(tx, [Fact("crawl_started", project, run_id, None, {"crawl": crawl_id})], at)
            tell(tx, after={"crawl": crawl_id, "name": name, "urls": list(read.urls[:10])})
            return crawl_id

        return await self.get(await self._db.transact(work))

    def _queue(
        self, tx: Transaction, crawl_id: int, what: tuple[str, str, CrawlSpec], labels: Sequence[str], by: str
    ) -> int:
        """Queue one more share in the caller's transaction."""
        project, name, spec = what
        run = NewRun(
            project=project,
            task=name,
            kind=list_store.KIND,
            spec=RunSpec(spec=share_spec(spec, crawl_id), labels=tuple(labels), retry=SHARE_RETRY),
            correlation_id=list_store.correlation(crawl_id),
            by=by,
        )
        run_id = self._runs.admit(tx, [run])[0].run_id
        list_store.set_run(tx, crawl_id, run_id)
        return run_id

    def queue_share(self, tx: Transaction, crawl: Crawl, by: str = "") -> int:
        """Queue one more run that does a share of a crawl, like its first."""
        spider = list_store.spider_run(tx, crawl)
        if spider is not None:
            return self._runs.admit(tx, [replace(spider, by=by)])[0].run_id
        labels = list_store.labels(tx, crawl)
        return self._queue(tx, crawl.id, (crawl.project, crawl.name, crawl.spec), labels, by)

    async def get(self, crawl_id: int) -> Crawl:
        found = await self._db.glance(lambda tx: store.get(tx, crawl_id))
        if found is None:
            raise NotFound("crawl", crawl_id)
        return found

    async def project_of(self, crawl_id: int) -> str:
        found = await self._db.glance(lambda tx: list_store.project_of(tx, crawl_id))
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
        return await self._db.read(lambda tx: list_store.page(tx, limit=limit, **wanted))  # type: ignore[arg-type]

    async def states(self) -> dict[str, int]:
        """How many crawls are in each state; of those that have ended, the newest thousand."""
        return await self._db.read(list_store.count_states)

    async def counts(self, crawl_id: int) -> Counts:
        return await self._frontier.counts(crawl_id)

    async def report(self, crawl_id: int) -> Report:
        """A crawl, how far it is, who does it, and what was left out."""
        crawl, counts = await self.get(crawl_id), await self.counts(crawl_id)

        def look(tx: Transaction) -> Report:
            shares = list_store.shares(tx, crawl)
            courses = list_store.courses(tx, [share.run_id for share in shares if share.finished_at is None])
            return Report(
                crawl=crawl,
                counts=counts,
                pages_per_second=pace.now(shares, courses, self._clock()) or pace.on_average(crawl, counts),
                shares=shares,
                skips=list_store.skip_sums(tx, crawl_id),
                traps=list_store.skips_of(tx, crawl_id, traps=True, limit=MOST_TRAPS),
            )

        return await self._db.read(look)

    async def pace(self, crawl_id: int) -> list[Beat]:
        """How fast the crawl was from its begin until now."""
        crawl = await self.get(crawl_id)

        def look(tx: Transaction) -> list[Beat]:
            shares = list_store.shares(tx, crawl)
            courses = list_store.courses(tx, [share.run_id for share in shares])
            end = crawl.ended_at or pace.told_until(courses.values(), self._clock())
            return pace.beats(courses.values(), crawl.created_at, end)

        return await self._db.read(look)

    async def pause(self, crawl_id: int, reason: str = "paused by a person") -> Crawl:
        """Let a crawl rest: its shares give back what they hold and end; nothing is lost."""
        return await self._change(crawl_id, [ACTIVE], PAUSED, reason)

    async def stop(self, crawl_id: int, reason: str = "stopped by a person") -> Crawl:
        """End a crawl for good, whatever is left; what it has found stays."""
        return await self._change(crawl_id, [ACTIVE, PAUSED], STOPPED, reason)

    async def _change(self, crawl_id: int, before: Sequence[str], state: str, reason: str) -> Crawl:
        def work(tx: Transaction) -> None:
            crawl, at = _held(tx, crawl_id), self._clock()
            ended_at = at if state == STOPPED else None
            if not store.change_state(tx, crawl_id, before, state, reason, ended_at):
                may = f"only one that is {standing.either(before)} can be {state}"
                raise Conflict(f"crawl {crawl_id} is {standing.told(crawl)}; {may}")
            kind = "crawl_paused" if state == PAUSED else "crawl_finished"
            data = {"crawl": crawl_id, "reason": reason}
            events.append(tx, [Fact(kind, crawl.project, crawl.run_id, None, data)], at)
            for share in list_store.live_shares(tx, crawl):
                if share.state == "queued":
                    self._runs.cancel_in(tx, share.run_id, f"crawl {crawl_id} is {state}")
            tell(tx, before={"state": crawl.state}, after={"state": state})

        await self._db.transact(work)
        return await self.get(crawl_id)

    async def resume(self, crawl_id: int, by: str = "") -> Crawl:
        """Let a crawl go on that rests, or was stopped: it begins where it was."""

        def work(tx: Transaction) -> None:
            crawl, at = _held(tx, crawl_id), self._clock()
            if not store.change_state(tx, crawl_id, [PAUSED, STOPPED], ACTIVE, "", None):
                raise Conflict(f"crawl {crawl_id} is {standing.told(crawl)}; only one paused or stopped can go on")
            self.go_on(tx, crawl, by)
            events.append(tx, [Fact("crawl_resumed", crawl.project, crawl.run_id, None, {"crawl": crawl_id})], at)
            tell(tx, before={"state": crawl.state}, after={"state": ACTIVE})

        await self._db.transact(work)
        return await self.get(crawl_id)

    def go_on(self, tx: Transaction, crawl: Crawl, by: str = "") -> None:
        """See to it that somebody does a crawl: queue a share unless one waits already."""
        if not any(share.state == "queued" for share in list_store.live_shares(tx, crawl)):
            self.queue_share(tx, crawl, by)

    async def urls(
        self, crawl_id: int, *, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        """Addresses that the crawl knows."""
        if state and state not in STATES:
            raise Invalid("state", state, f"it must be {standing.either(STATES)}")
        await self.get(crawl_id)
        return await self._frontier.urls(crawl_id, state, host, after, limit)

    async def hosts(self, crawl_id: int, *, after: str = "", limit: int = 100) -> list[KnownHost]:
        await self.get(crawl_id)
        return await self._frontier.hosts(crawl_id, after, limit)

    async def skips(
        self, crawl_id: int, *, reason: str | None = None, traps: bool = False, limit: int = 100
    ) -> list[Skip]:
        """What was left out, by reason, host and pattern, the most first."""
        await self.get(crawl_id)

        def look(tx: Transaction) -> list[Skip]:
            found = list_store.skips_of(tx, crawl_id, reason=reason, traps=traps, limit=limit)
            if not found and reason:
                check_reason(reason, crawl_id, [each.reason for each in list_store.skip_sums(tx, crawl_id)])
            return found

        return await self._db.read(look)

    async def why(self, crawl_id: int, url: str) -> Why:
        """Why an address is not crawled, in one sentence."""
        from weft.crawls import why  # it reads pages, which nobody else here does

        return await why.told(self._frontier, await self.get(crawl_id), url, self._clock())

    async def feed(self, crawl_id: int, urls: Sequence[str]) -> int:
        """Add addresses to a crawl and tell how many it did not know; one that is over goes on with them."""
        crawl, guard = await self.get(crawl_id), Guard(self._policy.allowed_networks)
        spelled = [check_address(f"urls[{place}]", url, guard) for place, url in enumerate(urls)]
        if crawl.state == STOPPED:
            raise Conflict(f"crawl {crawl_id} is {standing.told(crawl)}; let it go on before you give it more")
        await standing.check_budget(self._frontier, crawl, self._clock())
        new = await give(self._frontier, crawl, spelled, "fed")
        if crawl.state == FINISHED and new:
            await self._reopen(crawl)
        return new

    async def requeue(self, crawl_id: int, state: str = FAILED) -> int:
        """Put every address that failed, or was skipped, back in line; a crawl that is over goes on with them."""
        if state not in (FAILED, SKIPPED):
            raise Invalid("state", state, f"it must be {FAILED} or {SKIPPED}")
        crawl = await self.get(crawl_id)
        await standing.check_budget(self._frontier, crawl, self._clock(), known_hosts=True)
        count = await self._frontier.requeue(crawl_id, state)
        if crawl.state == FINISHED and count:
            await self._reopen(crawl)
        return count

    async def _reopen(self, crawl: Crawl) -> None:
        def work(tx: Transaction) -> None:
            if store.change_state(tx, crawl.id, [FINISHED], ACTIVE, "", None):
                self.go_on(tx, crawl)
                data = {"crawl": crawl.id}
                events.append(tx, [Fact("crawl_resumed", crawl.project, crawl.run_id, None, data)], self._clock())
            tell(tx, after={"state": ACTIVE})

        await self._db.transact(work)

    async def delete(self, crawl_id: int) -> None:
        """Forget a crawl that is over, with all that it knows and its raw files; its items stay in their dataset."""

        def work(tx: Transaction) -> Crawl:
            crawl = _held(tx, crawl_id)
            if crawl.state in (ACTIVE, PAUSED):
                raise Conflict(f"crawl {crawl_id} is {standing.told(crawl)}; stop it first")
            list_store.forget(tx, crawl_id)
            tell(tx, before={"name": crawl.name, "urls": list(crawl.spec.urls[:10])})
            return crawl

        await self._db.transact(work)
        await self._frontier.forget(crawl_id)
        await self.files.forget(crawl_id)


def _held(tx: Transaction, crawl_id: int) -> Crawl:
    found = list_store.hold(tx, crawl_id)
    if found is None:
        raise NotFound("crawl", crawl_id)
    return found
