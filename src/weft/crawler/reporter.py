"""Reports what this process has found and fetched to its worker, and does what the answer says.

One request is under way at a time, and fetching goes on meanwhile.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weft.clock import SECOND, Moment, seconds
from weft.crawler.host_scheduler import LEAST_AHEAD, MOST_AHEAD, HeldHost, HostScheduler
from weft.crawler.messages import CrawlerRequest, CrawlTurn, CrawlTurnReply, Skip
from weft.crawler.politeness import write_state
from weft.crawler.stats import CrawlStats
from weft.crawler.steady_clock import clock_offset, shifted_reply, steady_now
from weft.fetching.urls import LONGEST_URL, host_of
from weft.ports import Found, HostReport, Turn, Turned

SEEN_SLOTS = 1 << 21
"""16 MB in all."""


class SeenUrls:
    """A table of hashes where each has one place, and the newer one takes it.

    What it says it knows it has met; what it has lost costs a question to the frontier and nothing else.
    """

    __slots__ = ("mask", "places")

    def __init__(self, places: int = SEEN_SLOTS) -> None:
        self.places = array("q", bytes(8 * places))
        self.mask = places - 1

    def meets(self, key: int) -> bool:
        """Whether this address is met for the first time, as far as is remembered."""
        place = key & self.mask
        if self.places[place] == key:
            return False
        self.places[place] = key
        return True

    def knows(self, key: int) -> bool:
        """Whether this address was met, as far as is remembered."""
        return self.places[key & self.mask] == key


MOST_BYTES = 16 << 20
MOST_FOUND = 50_000
MOST_SETTLED = 5_000
"""Where so much waits to be told, nothing more is fetched."""
LARGEST_ITEM = 8 << 20
MOST_KINDS = 2_000
"""Skips that differ in reason, host or pattern, in one question."""

LONGEST_PATTERN = 500

_encode = msgspec.json.Encoder().encode


class PendingReport:
    """Filled by those who fetch, emptied by the one who talks."""

    def __init__(self) -> None:
        self.met = SeenUrls()
        self.items: list[bytes] = []
        self.item_bytes = 0
        self.next_item = 1
        """The number of the next item that is written."""
        self.found: list[Found] = []
        self.found_bytes = 0
        self.feed: list[str] = []
        self.settled = 0
        """Outcomes that wait to be told."""
        self._skips: dict[tuple[str, str, str], list[Any]] = {}

    @property
    def full(self) -> bool:
        """Whether nothing more may be fetched before this is told."""
        return (
            self.item_bytes > MOST_BYTES
            or len(self.found) > MOST_FOUND
            or self.found_bytes > MOST_BYTES
            or self.settled > MOST_SETTLED
            or len(self.feed) > MOST_FOUND
        )

    def write(self, item: dict[str, Any], at: Moment) -> bool:
        """Keep an item; False where it is too large for one."""
        line = b'{"at":%d,"item":%b}\n' % (at, _encode(item))
        if len(line) > LARGEST_ITEM:
            return False
        self.items.append(line)
        self.item_bytes += len(line)
        return True

    def skip(self, reason: str, url: str, pattern: str = "", *, is_trap: bool = False, count: int = 1) -> None:
        """Count an address that is left out."""
        host = host_of(url)
        kind = (reason, host, pattern)
        known = self._skips.get(kind)
        if known is not None:
            known[0] += count
            return
        if len(self._skips) >= MOST_KINDS:
            kind = (reason, "", "")
            if kind in self._skips:
                self._skips[kind][0] += count
                return
        self._skips[kind] = [count, url, is_trap]

    def find(self, key: int, url: str, depth: int, found_on: int, data: str = "", priority: int = 0) -> None:
        """An address that belongs to the crawl and may be new to it."""
        self.found_bytes += len(url)
        self.found.append(Found(key, url, host_of(url), depth, priority, found_on, 0, data))

    def take_skips(self) -> list[Skip]:
        taken = [
            Skip(reason, host, pattern[:LONGEST_PATTERN], example[:LONGEST_URL], count, is_trap)
            for (reason, host, pattern), (count, example, is_trap) in self._skips.items()
        ]
        self._skips.clear()
        return taken


SHORTEST_SECONDS = 0.03
LONGEST_SECONDS = 1.0
BUSY_ABOVE, CALM_BELOW = 0.8, 0.2
"""Shares of a core: above the one there is no room, below the other there always is."""
LATE_SECONDS = 0.03
"""A process that is woken so much later than it wanted gets no more of a core than it has."""


ReadClock = Callable[[], float]


class LoadMonitor:
    """Measures from one moment to the next, by a clock of the processor and one of the wall."""

    def __init__(self, cpu: ReadClock = time.process_time, wall: ReadClock = time.monotonic) -> None:
        self._cpu, self._wall = cpu, wall
        self._late = 0.0
        self.begin()

    def woken(self, late: float) -> None:
        """So many seconds later than was asked for."""
        self._late += 0.3 * (late - self._late)

    def begin(self) -> None:
        """What comes from now on counts."""
        self._used, self._since = self._cpu(), self._wall()

    def has_room(self) -> bool:
        """Whether there is enough of a core left for more, as far as is known already."""
        passed = self._wall() - self._since
        if passed < SHORTEST_SECONDS:
            return False
        share = (self._cpu() - self._used) / passed
        if passed > LONGEST_SECONDS:
            self.begin()
        return share < CALM_BELOW or (share < BUSY_ABOVE and self._late < LATE_SECONDS)


KEEP_UP = 0.25
"""After this share of its lease a host of which there is nothing to tell is kept by telling nothing."""
COUNTS = 0.9
"""The share of a lease for which it counts: the control plane's clock begins later, but may go faster."""
FIRST_HOSTS, MOST_HOSTS = 4, 64
"""How many hosts are asked for at once; twice as many each time that all were given."""
MOST_HELD = 1_000
MOST_WAITING = 20_000
"""Addresses of all hosts together, beyond which no host gets more than the fewest."""
FAR: Moment = 10 * SECOND
"""A host that may not be asked for so long is given back; whoever asks for hosts then gets it."""
ASK_AGAIN: Moment = SECOND
LONGEST_WAIT: Moment = 5 * SECOND
"""Whoever has nothing to do asks for hosts more and more rarely, and hears as late that the crawl is paused."""
SHARE_EVERY: Moment = 2 * SECOND
"""How often hosts are given back to those who have none."""
STATS_EVERY: Moment = 2 * SECOND


@dataclass(slots=True)
class PendingRequest:
    """A question that is under way, with what to do once it is answered."""

    at: Moment
    question: CrawlerRequest
    items: bytes
    hosts: list[HeldHost] = field(default_factory=list)
    """In the order of the reports."""


class Reporter:
    """Makes questions of what is in the host scheduler and in the pending report, and takes the answers."""

    def __init__(
        self, scheduler: HostScheduler, pending: PendingReport, stats: CrawlStats, lease_seconds: float
    ) -> None:
        self._scheduler, self._pending, self._stats = scheduler, pending, stats
        self._lease_seconds, self._keep_up = lease_seconds, seconds(lease_seconds * KEEP_UP)
        self._lease = seconds(lease_seconds * COUNTS)
        self._hosts = FIRST_HOSTS
        self._ask_at: Moment = 0
        self._in_vain = 0
        """How often hosts were asked for in a row by one who holds none, and none were given."""
        self._waiting = self._turns = 0
        self.waits_until: Moment = 0
        """When the first host may be asked again, where all that are left must be left alone."""
        self._stats_at: Moment = 0
        self._shared_at: Moment = 0
        self.load = LoadMonitor()

    def compose(self, *, last: bool = False) -> PendingRequest:
        """The next question. The last one gives everything back."""
        at, pending = steady_now(), self._pending
        if any(each.host not in self._scheduler.hosts for each in pending.found):
            self._ask_at = 0
        self._waiting = sum(len(held.queue) for held in self._scheduler.hosts.values())
        reports, hosts = [], []
        for held in list(self._scheduler.hosts.values()):
            report = self._report(held, at, last)
            if report is not None:
                reports.append(report)
                hosts.append(held)
        if any(report.release for report in reports):
            self._ask_at = 0
        turn = Turn(
            found=pending.found,
            reports=reports,
            hosts=0 if last else self._wanted_hosts(at),
            urls_per_host=LEAST_AHEAD,
            lease_seconds=self._lease_seconds,
        )
        hungry = bool(turn.hosts) and not self._scheduler.hosts
        if hungry:
            self._shared_at = at  # whoever is said to have none in the next seconds is this one
        self._turns += 1
        asked = CrawlTurn(turn, pending.take_skips(), pending.feed, hungry=hungry, number=self._turns, at=at)
        items, first = b"".join(pending.items), pending.next_item if pending.items else 0
        pending.next_item += len(pending.items)
        pending.items, pending.item_bytes, pending.found, pending.found_bytes = [], 0, [], 0
        pending.feed, pending.settled = [], 0
        return PendingRequest(at, CrawlerRequest(asked, first, self._told_stats(at, last)), items, hosts)

    def has_news(self) -> bool:
        """Whether there is anything to tell or to ask for."""
        at, pending = steady_now(), self._pending
        if pending.settled or pending.items or pending.found or self._wanted_hosts(at):
            return True
        return any(self._wanted(held, at) or self._is_due(held, at) for held in self._scheduler.hosts.values())

    def is_urgent(self) -> bool:
        """Whether fetchers have nothing to do because of what was not asked for yet."""
        scheduler = self._scheduler
        if not scheduler.idle or scheduler.paused:
            return False
        at = steady_now()
        if self._wanted_hosts(at):
            return True
        held = scheduler.hosts.values()
        if not scheduler.busy and any(self._is_leaving(each, at) for each in held):
            return True
        return any(not each.queue and self._wanted(each, at) for each in held)

    def _report(self, held: HeldHost, at: Moment, last: bool) -> HostReport | None:
        want = 0 if last else self._wanted(held, at)
        release = last or self._is_leaving(held, at)
        if not (held.outcomes or want or release or at - held.told_at > self._keep_up):
            return None
        outcomes, held.outcomes = held.outcomes, []
        self._stats.settled(outcomes)
        held.told_at, held.asked = at, 0 if release else want
        state = ""
        if release or not held.saved:
            state, held.saved = write_state(held.politeness.state), True
        held.leaving = release or held.leaving
        due, due_for_others = held.politeness.due(), held.politeness.due_for_others(at)
        return HostReport(held.name, held.fence, outcomes, due_for_others, state, release, held.asked, due)

    def _wanted(self, held: HeldHost, at: Moment) -> int:
        """How many more addresses of a host are worth asking for."""
        if held.leaving or len(held.queue) * 2 > held.want_ahead or held.politeness.due() - at > FAR:
            return 0
        if held.spent and at - held.told_at < ASK_AGAIN and (held.queue or not held.outcomes):
            return 0
        want_ahead = held.want_ahead if self._waiting < MOST_WAITING else LEAST_AHEAD
        return max(0, want_ahead - len(held.queue))

    def _is_leaving(self, held: HeldHost, at: Moment) -> bool:
        """Whether a host is given back: nothing is left of it, or it must be left alone for long."""
        if held.busy or held.foreign_requests or held.fetching_robots:
            return False
        far = FAR if held.auxiliary is None else FAR + held.politeness.delay  # a request that is given up begins anew
        if held.politeness.due() - at > far:
            return True
        return held.leaving or (held.spent and not held.queue and not held.outcomes and held.auxiliary is None)

    def _is_due(self, held: HeldHost, at: Moment) -> bool:
        return self._is_leaving(held, at) or at - held.told_at > self._keep_up

    def _wanted_hosts(self, at: Moment) -> int:
        scheduler = self._scheduler
        if scheduler.paused or len(scheduler.hosts) >= MOST_HELD or at < self._ask_at:
            return 0
        if not scheduler.idle and scheduler.hosts:
            return 0
        if len(scheduler.hosts) >= FIRST_HOSTS and not self.load.has_room():
            return 0
        return min(self._hosts, MOST_HELD - len(scheduler.hosts))

    def _told_stats(self, at: Moment, last: bool) -> dict[str, float | str] | None:
        if at - self._stats_at < STATS_EVERY and not last:
            return None
        self._stats_at = at
        scheduler = self._scheduler
        return self._stats.told(hosts=len(scheduler.hosts), waiting=self._waiting, under_way=scheduler.busy)

    def take(self, told: PendingRequest, answer: CrawlTurnReply) -> None:
        """Do what the answer says about each host, and hold the new ones."""
        assert told.question.asked is not None
        turn, at = told.question.asked.turn, steady_now()
        turned = shifted_reply(answer.turned, clock_offset(answer.at, at))
        for held, report, kept in zip(told.hosts, turn.reports, turned.kept, strict=True):
            self._stats.hosts_lost += not kept.held
            if report.release or not kept.held:
                self._scheduler.remove(held)
                continue
            if report.want:
                held.spent = len(kept.urls) < report.want
                if not held.spent and not held.queue:
                    held.want_ahead = min(held.want_ahead * 2, MOST_AHEAD)
            held.queue.extend(kept.urls)
            held.until = told.at + self._lease
            self._scheduler.place(held)
        for lease in turned.leases:
            self._scheduler.add(lease, at, told.at + self._lease)
        if turn.hosts:
            self._learn(turn, turned, at)
        if answer.others_hungry and at > self._shared_at + SHARE_EVERY:
            self._share(at)

    def _share(self, at: Moment) -> None:
        """Give back half of the hosts, those with the least in line first: another share has nothing to do."""
        self._shared_at = at
        held = sorted(self._scheduler.hosts.values(), key=lambda each: len(each.queue))
        for each in held[: len(held) // 2]:
            each.leaving = True

    def _learn(self, turn: Turn, turned: Turned, at: Moment) -> None:
        """Ask for more hosts at once where all were given, and later where there were none."""
        given = len(turned.leases)
        self._stats.asked(given)
        self.waits_until = turned.next_at or 0
        if given:
            self.load.begin()
        self._hosts = min(self._hosts * 2, MOST_HOSTS) if given >= turn.hosts else FIRST_HOSTS
        self._in_vain = 0 if given or self._scheduler.hosts else min(self._in_vain + 1, 10)
        if given < turn.hosts:
            again = turned.next_at if turned.next_at is not None and not given else 0
            longest = min(ASK_AGAIN * 2**self._in_vain, LONGEST_WAIT)
            self._ask_at = max(at + ASK_AGAIN // 20, min(again, at + longest))
