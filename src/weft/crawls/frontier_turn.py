"""One turn of a frontier in the database, in one transaction: what was found, what became of what, what is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.clock import Moment, seconds
from weft.crawl_ports import Found, Given, HostLease, HostReport, Kept, Limits, Outcome, Turn, Turned
from weft.crawls import frontier_store as hosts
from weft.crawls import url_store as urls
from weft.crawls.host_line import LOOK_AGAIN, NEVER, HostLine
from weft.db.database import Transaction

SOON: Moment = 20_000
"""When a host may be free that somebody looks at just now."""

LONGEST_NAME = 300

MOST_ROUNDS = 5
"""How often a turn looks for further hosts where those that it saw were not to be had."""

Wanted = list[tuple[HostLine, int]]


class FrontierTurn:
    """Everything that one turn has read and not written yet."""

    def __init__(self, tx: Transaction, crawl: int, holder: str, turn: Turn, now: Moment, limits: Limits) -> None:
        self._tx, self._crawl, self._holder, self._turn, self._now = tx, crawl, holder[:120], turn, now
        self._until = now + seconds(turn.lease_seconds)
        self._limits = limits
        self._given_before = 0
        self._lines: dict[int, HostLine] = {}
        """All that are locked, by the id of the host."""
        self._taken: list[tuple[HostLine, Outcome]] = []
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
        urls.take(self._tx, self._taken, self._now)
        self._given_before = hosts.given(self._tx, self._crawl) if self._limits.pages else 0
        leased, given = self._give([each for each in kept if each is not None and each[1] > 0])
        leases = [self._lease_of(line, given.pop(line.host_id)) for line in leased]
        ids |= {line.name: line.host_id for line in leased}
        answer = [Kept(False) if each is None else Kept(True, given.pop(each[0].host_id, [])) for each in kept]
        self._write()
        next_at = None if leases else self._next_at()
        return Turned(new=len(found), kept=answer, leases=leases, next_at=next_at), ids

    def _unknown(self, found: dict[int, Found]) -> dict[int, Found]:
        known = urls.known(self._tx, self._crawl, found)
        return {key: one for key, one in found.items() if key not in known} if known else found

    def _ids(self, found: Mapping[int, Found], known_ids: Mapping[str, int]) -> dict[str, int]:
        """The ids of all hosts of this turn; new ones are entered, those of reports must be there already."""
        of_found = {one.host for one in found.values()}
        names = of_found | {report.host for report in self._turn.reports}
        ids = {name: known_ids[name] for name in names if name in known_ids}
        ids |= hosts.enter(self._tx, of_found - ids.keys())
        return ids | hosts.ids_of(self._tx, names - ids.keys())

    def _lock(self, found: Mapping[int, Found], ids: Mapping[str, int]) -> None:
        of_found = {ids[one.host]: one.host for one in found.values()}
        if of_found:
            hosts.add_lines(self._tx, self._crawl, of_found)
        reported = {ids[report.host] for report in self._turn.reports if report.host in ids}
        self._lines = hosts.lock(self._tx, self._crawl, of_found.keys() | reported)

    def _add(self, found: Sequence[Found], ids: Mapping[str, int]) -> None:
        urls.add(self._tx, self._crawl, found, ids, self._now)
        for place, one in enumerate(found):
            line = self._lines[ids[one.host]]
            if one.not_before > self._now:
                line.enter_later(one.not_before)
            else:
                line.enter(urls.rank(one.priority, self._now + place))

    def _take(self, line: HostLine | None, report: HostReport) -> tuple[HostLine, int] | None:
        """Take a report; the host and how much more of it is wanted, or None where it is held no longer."""
        if line is None or not line.is_ours or line.fence != report.fence:
            return None
        self._taken += [(line, each) for each in report.outcomes if line.take(each, self._now)]
        line.keep(self._until, report.next_at, urls.clean(report.state))
        if report.release:
            line.release()
            if line.is_wanted_elsewhere(self._now):
                hosts.ring(self._tx, line)
        wanted = 0 if report.release or line.is_wanted_elsewhere(self._now) else report.want
        return line, wanted

    def _give(self, kept: Wanted) -> tuple[list[HostLine], dict[int, list[Given]]]:
        """The hosts that are leased, and what is given of these and of those that are kept."""
        free = self._free_hosts() if self._turn.hosts else []
        urls.move_due(self._tx, [line for line, _ in kept] + free, self._now)
        left = self._left()
        planned: Wanted = []
        leased: list[HostLine] = []
        for line, wanted in kept + [(line, self._turn.urls_per_host) for line in free]:
            count = min(wanted, line.in_line, left, self._room(line))
            if count <= 0:
                continue
            left -= count
            planned.append((line, count))
            if not line.is_ours:
                leased.append(line)
        return leased, urls.give(self._tx, self._crawl, planned)

    def _free_hosts(self) -> list[HostLine]:
        """Hosts that may be leased: those that are due longest, then those that this turn has found."""
        free: list[HostLine] = []
        last: HostLine | None = None
        for _ in range(MOST_ROUNDS):
            room = self._turn.hosts - len(free)
            seen = hosts.due(self._tx, self._crawl, self._now, room, last, leased_only=self._left() <= 0)
            for as_stored, state in seen:
                self._states[as_stored.host_id] = state
                line = self._lines.setdefault(as_stored.host_id, as_stored)
                free += [line] if self._is_free(line) else []
            if len(seen) < room or len(free) == self._turn.hosts:
                break
            last = seen[-1][0]
        return free + self._free_at_hand(self._turn.hosts - len(free), {line.host_id for line in free})

    def _free_at_hand(self, count: int, besides: set[int]) -> list[HostLine]:
        """Of the hosts that this turn has locked anyway, those that may be leased."""
        if count <= 0:
            return []
        rest = [
            line for line in self._lines.values() if line.host_id not in besides and line.ready(self._now) <= self._now
        ]
        free = [line for line in rest if line.is_waiting(self._limits.pages_per_host) and self._is_free(line)][:count]
        self._states |= hosts.states(self._tx, [line.host_id for line in free if line.host_id not in self._states])
        return free

    def _is_free(self, line: HostLine) -> bool:
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
        return line.next_at <= self._now

    def _room(self, line: HostLine) -> int:
        most = self._limits.pages_per_host
        return most - line.taken if most else NEVER

    def _left(self) -> int:
        """How many further addresses of this crawl may be given."""
        came_back = sum(line.came_back for line in self._lines.values())
        return self._limits.pages - self._given_before + came_back if self._limits.pages else NEVER

    def _lease_of(self, line: HostLine, given: list[Given]) -> HostLease:
        unclean = line.crawl_id is not None
        line.lease(self._holder, self._until)
        state = self._states[line.host_id] if line.state is None else line.state
        return HostLease(line.name, line.fence, given, line.next_at, state, unclean)

    def _write(self) -> None:
        lines = list(self._lines.values())
        for line in lines:
            line.ready_at = self._put_off.get(line.host_id, line.ready(self._now))
        hosts.write(self._tx, lines, self._limits.pages_per_host)
        if self._limits.pages:
            hosts.count_given(self._tx, self._crawl, sum(line.given - line.came_back for line in lines))

    def _next_at(self) -> Moment | None:
        spent = sum(line.given for line in self._lines.values())
        first = hosts.next_look(self._tx, self._crawl, leased_only=self._left() <= spent)
        return None if first is None else max(first, self._now + SOON) if first <= self._now else first


def _each_once(found: Sequence[Found]) -> dict[int, Found]:
    """By key; where one was found twice, as it was found first. There is no host with a longer name."""
    once: dict[int, Found] = {}
    for one in found:
        if len(one.host) <= LONGEST_NAME:
            once.setdefault(one.key, one)
    return once
