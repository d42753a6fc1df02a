"""The parts of a turn on DynamoDB, each about one host: they are made side by side, and each wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from weft.adapters.frontiers import _dynamo_hosts as hosts
from weft.adapters.frontiers import _dynamo_urls as urls
from weft.adapters.frontiers._dynamo_hosts import Host, Tally
from weft.adapters.frontiers._dynamo_table import MOST_CHANGED, READY, Change, Changed, Item, Table
from weft.clock import SECOND, Moment
from weft.errors import FrontierDown
from weft.ports import QUEUED, Found, HostLease, HostReport, Kept, Limits, Outcome

TRIES = 30
"""How often something is read again because somebody else has changed it."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoTurn:
    """Who asks for which crawl, at which moment, and how much may be given."""

    table: Table
    crawl: str
    holder: str
    now: Moment
    until: Moment
    limits: Limits

    def add(self, found: Sequence[Found], age: int) -> int:
        """Keep the addresses of one host that are new; return how many."""
        return self._tried(lambda: self._add(found, age))

    def _add(self, found: Sequence[Found], age: int) -> int:
        host = found[0].host
        keys = {each.key: urls.place_of(self.crawl, urls.hash_of(each.key)) for each in found}
        line_key = hosts.line_key(self.crawl, host)
        seen = self.table.read([*keys.values(), line_key])
        first = {each.key: each for each in reversed(found)}  # of those with the same key
        new = [(at, each) for at, each in enumerate(found) if first[each.key] is each and keys[each.key] not in seen]
        if new:
            changes = [urls.added(self.crawl, each, age + at, self.now) for at, each in new]
            due = min(each.not_before for _, each in new)
            early = _is_early(seen.get(line_key), due, self.now)
            more = hosts.found_more(self.crawl, host, len(new), due, self.now, is_early=early)
            if any(each.not_before > self.now for _, each in new):
                more = replace(more, sets={**more.sets, "has_later": True})
            self.table.change([more, *changes])
        return len(new)

    def report(self, report: HostReport) -> Kept:
        """Take what is told of a host. Much of it takes several steps, each of which leaves less to be told."""
        for _ in range(TRIES + len(report.outcomes) // MOST_CHANGED):
            host = self.host(report.host)
            if host.crawl != self.crawl or host.fence != report.fence:
                return Kept(False)
            told = {urls.hash_of(each.key): each for each in report.outcomes}
            left = [key for key in told if key in host.held]
            part = _with_outcomes(report, [told[key] for key in left[:MOST_CHANGED]])
            try:
                if len(left) > MOST_CHANGED or (report.want and self._come_back(part.outcomes)):
                    self._keep(replace(host, held=host.held - set(left[:MOST_CHANGED])), part, [])
                else:
                    return self._report(host, part)
            except Changed:
                continue
        raise FrontierDown(self.table.name, f"{report.host} changes too often")

    def _come_back(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether one of them is in line again at once, so that it may be what is given next."""
        return any(each.state == QUEUED and each.next_at <= self.now for each in outcomes)

    def _report(self, host: Host, report: HostReport) -> Kept:
        """The last step: give the host back, or give more of it."""
        held = host.held - {urls.hash_of(each.key) for each in report.outcomes}
        if report.release:
            self._release(host, report, len(held))
            return Kept(True)
        more: list[Item] = []
        if report.want > 0 and not host.is_wanted_by_another(self.crawl, self.now):
            told = frozenset(urls.hash_of(each.key) for each in report.outcomes)
            more = self._further(host, report.want, Tally.of(report.outcomes).given, held | told)
        self._keep(replace(host, held=held | {item["url_hash"] for item in more}), report, more)
        return Kept(True, [urls.given(item) for item in more])

    def _further(self, host: Host, wanted: int, came: int, not_these: frozenset[str]) -> list[Item]:
        """What else may be given of a host that is kept."""
        key = hosts.line_key(self.crawl, host.name)
        line = self.table.read([key]).get(key)
        if line is None or (count := self._room(line, wanted, came)) <= 0:
            return []
        return urls.waiting(self.table, self.crawl, line, count, not_these, self.now)[0]

    def _keep(self, host: Host, report: HostReport, more: Sequence[Item]) -> None:
        tally = Tally.of(report.outcomes).gave(len(more))
        ends = {"ready_at": self.until, "held_until": self.until, "waiting": self.crawl}
        host = replace(host, until=self.until, next_at=max(host.next_at, report.next_at))
        self._change(host, report, tally, hosts.counted(self.crawl, host.name, tally, **ends))
        if not host.held:
            self._try(hosts.nothing_left({"part": f"hosts#{self.crawl}", "url_hash": host.name}))

    def _release(self, host: Host, report: HostReport, came_back: int) -> None:
        tally = Tally.of(report.outcomes).gave(-came_back)
        free = replace(host.released(), next_at=max(host.next_at, report.next_at))
        ready_at = max(free.next_at, report.own_next_at, self.now)
        ends = {"ready_at": ready_at, "held_until": None, "waiting": self.crawl}
        self._change(free, report, tally, hosts.counted(self.crawl, host.name, tally, **ends))
        if free.is_wanted_by_another(self.crawl, self.now):
            key = hosts.line_key(free.wanted_by, free.name)
            soon = {"ready_at": max(free.next_at, self.now)}
            self._try(Change(key=key, sets=soon, adds={"turns": 1}, only_if="attribute_exists(#waiting)"))

    def _change(self, host: Host, report: HostReport, tally: Tally, line: Change) -> None:
        state: list[Change] = []
        if report.state:
            host, state = hosts.state_changes(host, report.state)
        told = [urls.told(self.crawl, host.name, each, self.now) for each in report.outcomes]
        if any(each.state == QUEUED and each.next_at > self.now for each in report.outcomes):
            line = replace(line, sets={**line.sets, "has_later": True})
        self.table.change([host.written(), line, *self._given(tally), *state, *told])

    def _given(self, tally: Tally) -> list[Change]:
        """The crawl's own count of what was given, which only matters where it has a limit."""
        if not self.limits.pages or not tally.given:
            return []
        room: dict[str, Any] = {"only_if": "#given <= :most", "values": {"most": self.limits.pages - tally.given}}
        return [Change(key=hosts.crawl_key(self.crawl), adds={"given": tally.given}, **room)]

    def _room(self, line: Item, wanted: int, came: int = 0) -> int:
        """How many more addresses of a host may be given."""
        if self.limits.pages:
            crawl = self.table.read([hosts.crawl_key(self.crawl)]).get(hosts.crawl_key(self.crawl), {})
            wanted = min(wanted, self.limits.pages - int(crawl.get("given", 0)) - came)
        if self.limits.pages_per_host and line:
            wanted = min(wanted, self.limits.pages_per_host - int(line["given"]) - came)
        return wanted

    def has_pages_left(self) -> bool:
        return not self.limits.pages or self._room({}, 1) > 0

    def ended(self) -> list[str]:
        """Hosts that somebody holds for longer than they may."""
        lines = self.table.query("#part = :part", {"part": f"hosts#{self.crawl}"})
        return [line["url_hash"] for line in lines if line["leased"] > 0 and line.get("held_until", 0) <= self.now]

    def ready(self, count: int) -> list[tuple[Moment, str]]:
        """The first hosts by when it is worth looking at them, which may be later."""
        found = self.table.query("#waiting = :waiting", {"waiting": self.crawl}, IndexName=READY, Limit=count)
        return [(item["ready_at"], item["url_hash"]) for item, _ in zip(found, range(count), strict=False)]

    def lease(self, name: str, count: int) -> HostLease | None:
        """Hold a host, if nobody does and something of it may be given; else note when to look again."""
        return self._tried(lambda: self._lease(name, count))

    def _lease(self, name: str, count: int) -> HostLease | None:
        line_key = hosts.line_key(self.crawl, name)
        line = self.table.read([line_key]).get(line_key)
        if line is None:
            return None
        host = self.host(name)  # after the line: who lets it go from now on changes the line that was read
        wait = self._must_wait(host)
        if wait:
            self._try(hosts.look_again(self.crawl, line, wait))
            return None
        back = len(host.held) if host.crawl == self.crawl else 0
        room = self._room(line, count, -back)
        if room <= 0:
            most = self.limits.pages_per_host
            if most and line["given"] - back >= most:
                self._try(hosts.nothing_left(line, most))
            return None
        items, next_at = urls.waiting(self.table, self.crawl, line, room, frozenset(), self.now)
        if not items:
            self._nothing_due(line, next_at)
            return None
        return self._hold(host, items, back)

    def _must_wait(self, host: Host) -> Moment:
        """Until when a host is another's, or wants to be left alone; 0: it may be held."""
        if host.is_held(self.now):
            if host.crawl == self.crawl:
                return host.until
            if not host.is_wanted_by_another(self.crawl, self.now):
                self.table.change([replace(host, wanted_by=self.crawl, wanted_until=self.now + hosts.WANTED).written()])
            return min(host.until, self.now + hosts.LOOK_AGAIN)
        if host.is_wanted_by_another(self.crawl, self.now):
            return min(host.wanted_until, self.now + hosts.LOOK_AGAIN)
        return host.next_at if host.next_at > self.now else 0

    def _hold(self, host: Host, items: Sequence[Item], back: int) -> HostLease:
        """Take a host; what one who is gone was given is in line again."""
        held = host.leased(self.crawl, self.holder, self.now, self.until, (item["url_hash"] for item in items))
        tally = Tally.of([]).gave(len(items) - back)
        ends = {"ready_at": self.until, "held_until": self.until, "waiting": self.crawl}
        mine = hosts.counted(self.crawl, host.name, tally, **ends)
        self.table.change([held.written(), mine, *self._given(tally), *self._returned(host)])
        state = hosts.states_of(self.table, [held])[held.name]
        given = [urls.given(item) for item in items]
        return HostLease(held.name, held.fence, given, held.next_at, state, unclean=bool(host.crawl) or host.unclean)

    def _returned(self, host: Host) -> list[Change]:
        """What another crawl was given of a host that it has not kept up."""
        if host.crawl in ("", self.crawl):
            return []
        crawl_key, line_key = hosts.crawl_key(host.crawl), hosts.line_key(host.crawl, host.name)
        seen = self.table.read([crawl_key, line_key])
        if len(seen) < 2:
            return []
        back = Tally.of([]).gave(-len(host.held))
        line = hosts.counted(
            host.crawl, host.name, back, ready_at=max(host.next_at, self.now), held_until=None, waiting=host.crawl
        )
        limited = seen[crawl_key].get("pages") and back.given
        return [line, Change(key=crawl_key, adds={"given": back.given})] if limited else [line]

    def _nothing_due(self, line: Item, next_at: Moment | None) -> None:
        """Nothing of a host may be given now: perhaps later, perhaps the index has not heard yet, perhaps never."""
        if line["queued"] <= 0 and line["leased"] <= 0:
            self._try(hosts.nothing_left(line))
        else:
            self._try(hosts.look_again(self.crawl, line, next_at or self.now + SECOND))

    def host(self, name: str) -> Host:
        key = hosts.host_key(name)
        return hosts.host_of(name, self.table.read([key]).get(key))

    def _try(self, change: Change) -> None:
        """Note something, unless it is no longer true."""
        try:
            self.table.change([change])
        except Changed:
            pass

    def _tried(self, work: Callable[[], Made]) -> Made:
        for _ in range(TRIES):
            try:
                return work()
            except Changed:
                continue
        raise FrontierDown(self.table.name, "what is asked for changes too often")


def _with_outcomes(report: HostReport, outcomes: list[Outcome]) -> HostReport:
    rest = (report.next_at, report.state, report.release, report.want, report.own_next_at)
    return HostReport(report.host, report.fence, outcomes, *rest)


def _is_early(line: Item | None, due: Moment, now: Moment) -> bool:
    if line is None or "waiting" not in line:
        return False
    return bool(line.get("held_until", 0) > now or line["ready_at"] <= due)
