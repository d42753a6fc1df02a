"""What the process tells its worker, how often, and what it does with the answer.

One question is under way at a time, and fetching goes on meanwhile. It tells what became of addresses, keeps the hosts
that it has work for, gives back those that it has not, and asks for as many more as it can use: no more, because what
it holds nobody else can fetch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.clock import SECOND, Moment, seconds
from weft.crawl_ports import HostReport, Turn, Turned
from weft.crawls.ledger import Ledger
from weft.crawls.load import Load
from weft.crawls.model import CrawlTurn, CrawlTurned, Question
from weft.crawls.politeness import write_state
from weft.crawls.stats import Stats
from weft.crawls.steady import steady
from weft.crawls.workbench import FEWEST, MOST, Held, Workbench

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
class Told:
    """A question that is under way, with what to do once it is answered."""

    at: Moment
    question: Question
    items: bytes
    hosts: list[Held] = field(default_factory=list)
    """In the order of the reports."""


class Dialogue:
    """Makes questions of what is on the workbench and in the ledger, and takes the answers."""

    def __init__(self, bench: Workbench, ledger: Ledger, stats: Stats, lease_seconds: float) -> None:
        self._bench, self._ledger, self._stats = bench, ledger, stats
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
        self.load = Load()

    def compose(self, *, last: bool = False) -> Told:
        """The next question. The last one gives everything back."""
        at, ledger = steady(), self._ledger
        if any(each.host not in self._bench.hosts for each in ledger.found):
            self._ask_at = 0
        self._waiting = sum(len(held.queue) for held in self._bench.hosts.values())
        reports, hosts = [], []
        for held in list(self._bench.hosts.values()):
            report = self._report(held, at, last)
            if report is not None:
                reports.append(report)
                hosts.append(held)
        if any(report.release for report in reports):
            self._ask_at = 0
        turn = Turn(
            found=ledger.found,
            reports=reports,
            hosts=0 if last else self._wanted_hosts(at),
            urls_per_host=FEWEST,
            lease_seconds=self._lease_seconds,
        )
        hungry = bool(turn.hosts) and not self._bench.hosts
        if hungry:
            self._shared_at = at  # whoever is said to have none in the next seconds is this one
        self._turns += 1
        asked = CrawlTurn(turn, ledger.take_skips(), ledger.feed, hungry=hungry, number=self._turns)
        items, first = b"".join(ledger.items), ledger.next_item if ledger.items else 0
        ledger.next_item += len(ledger.items)
        ledger.items, ledger.item_bytes, ledger.found, ledger.found_bytes = [], 0, [], 0
        ledger.feed, ledger.settled = [], 0
        return Told(at, Question(asked, first, self._told_stats(at, last)), items, hosts)

    def has_news(self) -> bool:
        """Whether there is anything to tell or to ask for."""
        at, ledger = steady(), self._ledger
        if ledger.settled or ledger.items or ledger.found or self._wanted_hosts(at):
            return True
        return any(self._wanted(held, at) or self._is_due(held, at) for held in self._bench.hosts.values())

    def is_urgent(self) -> bool:
        """Whether fetchers have nothing to do because of what was not asked for yet."""
        bench = self._bench
        if not bench.idle or bench.paused:
            return False
        at = steady()
        if self._wanted_hosts(at):
            return True
        held = bench.hosts.values()
        if not bench.busy and any(self._is_leaving(each, at) for each in held):
            return True
        return any(not each.queue and self._wanted(each, at) for each in held)

    def _report(self, held: Held, at: Moment, last: bool) -> HostReport | None:
        want = 0 if last else self._wanted(held, at)
        release = last or self._is_leaving(held, at)
        if not (held.outcomes or want or release or at - held.told_at > self._keep_up):
            return None
        outcomes, held.outcomes = held.outcomes, []
        held.told_at, held.asked = at, 0 if release else want
        state = ""
        if release or not held.saved:
            state, held.saved = write_state(held.manners.state), True
        held.leaving = release or held.leaving
        due = held.manners.due()
        return HostReport(held.name, held.fence, outcomes, due, state, release, held.asked)

    def _wanted(self, held: Held, at: Moment) -> int:
        """How many more addresses of a host are worth asking for."""
        if held.leaving or len(held.queue) * 2 > held.ample or held.manners.due() - at > FAR:
            return 0
        if held.spent and at - held.told_at < ASK_AGAIN and (held.queue or not held.outcomes):
            return 0
        ample = held.ample if self._waiting < MOST_WAITING else FEWEST
        return max(0, ample - len(held.queue))

    def _is_leaving(self, held: Held, at: Moment) -> bool:
        """Whether a host is given back: nothing is left of it, or it must be left alone for long."""
        if held.busy or held.guests or held.fetching_robots:
            return False
        far = FAR if held.errand is None else FAR + held.manners.delay  # an errand that is given up begins anew
        if held.manners.due() - at > far:
            return True
        return held.leaving or (held.spent and not held.queue and not held.outcomes and held.errand is None)

    def _is_due(self, held: Held, at: Moment) -> bool:
        return self._is_leaving(held, at) or at - held.told_at > self._keep_up

    def _wanted_hosts(self, at: Moment) -> int:
        bench = self._bench
        if bench.paused or len(bench.hosts) >= MOST_HELD or at < self._ask_at:
            return 0
        if not bench.idle and bench.hosts:
            return 0
        if len(bench.hosts) >= FIRST_HOSTS and not self.load.has_room():
            return 0
        return min(self._hosts, MOST_HELD - len(bench.hosts))

    def _told_stats(self, at: Moment, last: bool) -> dict[str, float | str] | None:
        if at - self._stats_at < STATS_EVERY and not last:
            return None
        self._stats_at = at
        bench = self._bench
        return self._stats.told(hosts=len(bench.hosts), waiting=self._waiting, under_way=bench.busy)

    def take(self, told: Told, answer: CrawlTurned) -> None:
        """Do what the answer says about each host, and hold the new ones."""
        assert told.question.asked is not None
        turned, turn, at = answer.turned, told.question.asked.turn, steady()
        for held, report, kept in zip(told.hosts, turn.reports, turned.kept, strict=True):
            self._stats.hosts_lost += not kept.held
            if report.release or not kept.held:
                self._bench.remove(held)
                continue
            if report.want:
                held.spent = len(kept.urls) < report.want
                if not held.spent and not held.queue:
                    held.ample = min(held.ample * 2, MOST)
            held.queue.extend(kept.urls)
            held.until = told.at + self._lease
            self._bench.place(held)
        for lease in turned.leases:
            self._bench.add(lease, at, told.at + self._lease)
        if turn.hosts:
            self._learn(turn, turned, at)
        if answer.others_hungry and at > self._shared_at + SHARE_EVERY:
            self._share(at)

    def _share(self, at: Moment) -> None:
        """Give back half of the hosts, those with the least in line first: another share has nothing to do."""
        self._shared_at = at
        held = sorted(self._bench.hosts.values(), key=lambda each: len(each.queue))
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
        self._in_vain = 0 if given or self._bench.hosts else min(self._in_vain + 1, 10)
        if given < turn.hosts:
            again = turned.next_at if turned.next_at is not None and not given else 0
            longest = min(ASK_AGAIN * 2**self._in_vain, LONGEST_WAIT)
            self._ask_at = max(at + ASK_AGAIN // 20, min(again, at + longest))
