"""The frontier in weft's own database: one turn is one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from weft.clock import SECOND, Clock, Moment, seconds
from weft.crawls import host_store, url_store
from weft.crawls.host_queue import LOOK_AGAIN, NEVER, HostQueue
from weft.db.database import Database, Transaction
from weft.errors import DatabaseDown, FrontierDown, Invalid
from weft.ports import (
    FAILED,
    SKIPPED,
    Counts,
    Found,
    Given,
    HostLease,
    HostReport,
    Kept,
    Known,
    KnownHost,
    Limits,
    Outcome,
    Turn,
    Turned,
)

SOON: Moment = 20_000
"""When a host may be free that somebody looks at just now."""

LONGEST_NAME = 300

MOST_ROUNDS = 5
"""How often a turn looks for further hosts where those that it saw were not to be had."""

HostRequests = list[tuple[HostQueue, int]]


class FrontierTurn:
    """Everything that one turn has read and not written yet."""

    def __init__(self, tx: Transaction, crawl: int, holder: str, turn: Turn, now: Moment, limits: Limits) -> None:
        self._tx, self._crawl, self._holder, self._turn, self._now = tx, crawl, holder[:120], turn, now
        self._until = now + seconds(turn.lease_seconds)
        self._limits = limits
        self._given_before = 0
        self._lines: dict[int, HostQueue] = {}
        """All that are locked, by the id of the host."""
        self._taken: list[tuple[HostQueue, Outcome]] = []
        self._states: dict[int, str] = {}
        """Of the hosts that may be leased."""
        self._put_off: dict[int, Moment] = {}
        """When it is worth looking again at hosts that somebody else has or wants."""

    def make(self, known_ids: Mapping[str, int]) -> tuple[Turned, dict[str, int]]:
        """The answer, and the ids of the hosts that this was about."""
        found = self._unknown(_each_once(self._turn.found))
        ids = self._ids(found, known_ids)
        self._lock(found, ids)
        found = self._unknown(found)  # somebody may have entered them while we waited for the locks
        self._add(list(found.values()), ids)
        kept = [self._take(self._lines.get(ids.get(report.host, 0)), report) for report in self._turn.reports]
        url_store.take(self._tx, self._taken, self._now)
        self._given_before = host_store.given(self._tx, self._crawl) if self._limits.pages else 0
        leased, given = self._give([each for each in kept if each is not None and each[1] > 0])
        leases = [self._lease_of(line, given.pop(line.host_id)) for line in leased]
        ids |= {line.name: line.host_id for line in leased}
        answer = [Kept(False) if each is None else Kept(True, given.pop(each[0].host_id, [])) for each in kept]
        self._write()
        next_at = None if leases else self._next_at()
        return Turned(new=len(found), kept=answer, leases=leases, next_at=next_at), ids

    def _unknown(self, found: dict[int, Found]) -> dict[int, Found]:
        known = url_store.known(self._tx, self._crawl, found)
        return {key: one for key, one in found.items() if key not in known} if known else found

    def _ids(self, found: Mapping[int, Found], known_ids: Mapping[str, int]) -> dict[str, int]:
        """The ids of all hosts of this turn; new ones are entered, those of reports must be there already."""
        of_found = {one.host for one in found.values()}
        names = of_found | {report.host for report in self._turn.reports}
        ids = {name: known_ids[name] for name in names if name in known_ids}
        ids |= host_store.enter(self._tx, of_found - ids.keys())
        return ids | host_store.ids_of(self._tx, names - ids.keys())

    def _lock(self, found: Mapping[int, Found], ids: Mapping[str, int]) -> None:
        of_found = {ids[one.host]: one.host for one in found.values()}
        if of_found:
            host_store.add_queues(self._tx, self._crawl, of_found)
        reported = {ids[report.host] for report in self._turn.reports if report.host in ids}
        self._lines = host_store.lock(self._tx, self._crawl, of_found.keys() | reported)

    def _add(self, found: Sequence[Found], ids: Mapping[str, int]) -> None:
        url_store.add(self._tx, self._crawl, found, ids, self._now)
        for place, one in enumerate(found):
            line = self._lines[ids[one.host]]
            if one.not_before > self._now:
                line.enter_later(one.not_before)
            else:
                line.enter(url_store.rank(one.priority, self._now + place))

    def _take(self, line: HostQueue | None, report: HostReport) -> tuple[HostQueue, int] | None:
        """Take a report; the host and how much more of it is wanted, or None where it is held no longer."""
        if line is None or not line.is_ours or line.fence != report.fence:
            return None
        self._taken += [(line, each) for each in report.outcomes if line.take(each, self._now)]
        line.keep(self._until, report.next_at, url_store.clean(report.state))
        if report.release:
            line.release(report.own_next_at)
            if line.is_wanted_elsewhere(self._now):
                host_store.wake_waiting(self._tx, line)
        wanted = 0 if report.release or line.is_wanted_elsewhere(self._now) else report.want
        return line, wanted

    def _give(self, kept: HostRequests) -> tuple[list[HostQueue], dict[int, list[Given]]]:
        """The hosts that are leased, and what is given of these and of those that are kept."""
        free = self._free_hosts() if self._turn.hosts else []
        url_store.move_due(self._tx, [line for line, _ in kept] + free, self._now)
        left = self._left()
        planned: HostRequests = []
        leased: list[HostQueue] = []
        for line, wanted in kept + [(line, self._turn.urls_per_host) for line in free]:
            count = min(wanted, line.in_line, left, self._room(line))
            if count <= 0:
                continue
            left -= count
            planned.append((line, count))
            if not line.is_ours:
                leased.append(line)
        return leased, url_store.give(self._tx, self._crawl, planned)

    def _free_hosts(self) -> list[HostQueue]:
        """Hosts that may be leased: those that are due longest, then those that this turn has found."""
        free: list[HostQueue] = []
        last: HostQueue | None = None
        for _ in range(MOST_ROUNDS):
            room = self._turn.hosts - len(free)
            seen = host_store.due(self._tx, self._crawl, self._now, room, last, leased_only=self._left() <= 0)
            for as_stored, state in seen:
                self._states[as_stored.host_id] = state
                line = self._lines.setdefault(as_stored.host_id, as_stored)
                free += [line] if self._is_free(line) else []
            if len(seen) < room or len(free) == self._turn.hosts:
                break
            last = seen[-1][0]
        return free + self._free_at_hand(self._turn.hosts - len(free), {line.host_id for line in free})

    def _free_at_hand(self, count: int, besides: set[int]) -> list[HostQueue]:
        """Of the hosts that this turn has locked anyway, those that may be leased."""
        if count <= 0:
            return []
        rest = [
            line for line in self._lines.values() if line.host_id not in besides and line.ready(self._now) <= self._now
        ]
        free = [line for line in rest if line.is_waiting(self._limits.pages_per_host) and self._is_free(line)][:count]
        self._states |= host_store.states(self._tx, [line.host_id for line in free if line.host_id not in self._states])
        return free

    def _is_free(self, line: HostQueue) -> bool:
        """Whether a host may be leased. What somebody of this crawl was given and will never tell of is taken back."""
        if line.crawl_id is not None and line.leased_until > self._now:
            if not line.is_ours:
                line.want(self._now)
                self._put_off[line.host_id] = min(line.leased_until, self._now + LOOK_AGAIN)
            return False
        line.take_back()
        if line.is_wanted_elsewhere(self._now):
            self._put_off[line.host_id] = min(line.wanted_until, self._now + LOOK_AGAIN)
            return False
        return max(line.next_at, line.own_next_at) <= self._now

    def _room(self, line: HostQueue) -> int:
        most = self._limits.pages_per_host
        return most - line.taken if most else NEVER

    def _left(self) -> int:
        """How many further addresses of this crawl may be given."""
        came_back = sum(line.came_back for line in self._lines.values())
        return self._limits.pages - self._given_before + came_back if self._limits.pages else NEVER

    def _lease_of(self, line: HostQueue, given: list[Given]) -> HostLease:
        unclean = line.crawl_id is not None
        line.lease(self._holder, self._until)
        state = self._states[line.host_id] if line.state is None else line.state
        return HostLease(line.name, line.fence, given, line.next_at, state, unclean)

    def _write(self) -> None:
        lines = list(self._lines.values())
        for line in lines:
            line.ready_at = self._put_off.get(line.host_id, line.ready(self._now))
        host_store.write(self._tx, lines, self._limits.pages_per_host)
        if self._limits.pages:
            host_store.count_given(self._tx, self._crawl, sum(line.given - line.came_back for line in lines))

    def _next_at(self) -> Moment | None:
        spent = sum(line.given for line in self._lines.values())
        first = host_store.next_look(self._tx, self._crawl, leased_only=self._left() <= spent)
        return None if first is None else max(first, self._now + SOON) if first <= self._now else first


def _each_once(found: Sequence[Found]) -> dict[int, Found]:
    """By key; where one was found twice, as it was found first. There is no host with a longer name."""
    once: dict[int, Found] = {}
    for one in found:
        if len(one.host) <= LONGEST_NAME:
            once.setdefault(one.key, one)
    return once


T = TypeVar("T")

MOST_HOSTS = 200_000
"""How many hosts' ids are remembered, so that they need not be asked for."""

MOST_AT_ONCE = 2_000
"""How many addresses one transaction changes where all of a crawl are changed."""


FIRST_LOOK, MOST_LOOKED_AT = 1_000, 50_000
"""How many addresses one read goes through where few of them may be wanted."""

LIMITS_COUNT: Moment = SECOND
"""How long limits count that were read, until another process's are seen."""


class SqlFrontier:
    """Any number of processes may have one on the same database."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._ids: dict[str, int] = {}
        self._limits: dict[int, tuple[Limits, Moment]] = {}

    async def open(self, crawl: int, limits: Limits) -> None:
        await self._transact(lambda tx: host_store.set_limits(tx, crawl, limits))
        self._limits.pop(crawl, None)

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        def work(tx: Transaction) -> Turned:
            at = self._clock()
            made = FrontierTurn(tx, crawl, holder, turn, at, self._limits_of(tx, crawl, at))
            turned, ids = made.make(self._ids)
            tx.after_commit(lambda: self._remember(ids))
            return turned

        return await self._transact(work)

    def _limits_of(self, tx: Transaction, crawl: int, at: Moment) -> Limits:
        known, read_at = self._limits.get(crawl, (Limits(), -LIMITS_COUNT))
        if 0 <= at - read_at < LIMITS_COUNT:
            return known
        limits = host_store.limits(tx, crawl)
        if limits is not None:
            self._limits[crawl] = limits, at
        return limits or Limits()

    def _remember(self, ids: dict[str, int]) -> None:
        if len(self._ids) > MOST_HOSTS:
            self._ids = {}
        self._ids.update(ids)

    async def counts(self, crawl: int) -> Counts:
        return await self._read(lambda tx: url_store.counts(tx, crawl))

    async def look(self, crawl: int, key: int) -> Known | None:
        return await self._read(lambda tx: url_store.find(tx, crawl, key))

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        found: list[Known] = []
        most, go_on = FIRST_LOOK, True
        while go_on and len(found) < limit:
            some, after = await self._piece(url_store.UrlQuery(crawl, state, host, limit - len(found)), after, most)
            found += some
            most, go_on = min(most * 5, MOST_LOOKED_AT), after is not None
        return found

    async def _piece(self, wanted: url_store.UrlQuery, after: int | None, most: int) -> tuple[list[Known], int | None]:
        return await self._read(lambda tx: url_store.page(tx, wanted, after, most))

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        return await self._read(lambda tx: url_store.host_page(tx, crawl, after, limit))

    async def requeue(self, crawl: int, state: str) -> int:
        if state not in (FAILED, SKIPPED):
            raise Invalid("state", state, f"only addresses that are {FAILED} or {SKIPPED} can be put back in line")
        back = 0
        while some := await self._transact(lambda tx: url_store.requeue(tx, crawl, state, self._clock(), MOST_AT_ONCE)):
            back += some
        return back

    async def forget(self, crawl: int) -> None:
        while await self._transact(lambda tx: url_store.forget(tx, crawl, MOST_AT_ONCE)):
            pass
        self._limits.pop(crawl, None)

    async def close(self) -> None:
        """The database is not its own to close."""

    async def _transact(self, work: Callable[[Transaction], T]) -> T:
        async with _told():
            return await self._db.transact(work)

    async def _read(self, work: Callable[[Transaction], T]) -> T:
        async with _told():
            return await self._db.read(work)


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    try:
        yield
    except DatabaseDown as problem:
        raise FrontierDown("in the database", problem) from problem
