"""The hosts that this process holds, in the order in which they may be asked next.

A heap by due time; each host has a short line of addresses. A host is in the heap exactly while it could be asked if
its time had come. Fetchers take the first that is due, and rest while none is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from weft.clock import SECOND, Moment
from weft.crawl_ports import Given, HostLease, Outcome
from weft.crawl_spec import CrawlSpec
from weft.crawls.allowance import Allowance
from weft.crawls.politeness import Manners, read_state
from weft.crawls.steady import steady
from weft.fetching.detours import PutOff
from weft.fetching.urls import host_of

FOR_EVER: Moment = 2**62
MOST_ADDRESSES = 10_000
SPARE = 100
"""Places of the heap that may be of hosts that are gone."""
FEWEST, MOST = 8, 2_000
"""How many addresses of a host are held ahead."""


@dataclass(frozen=True, slots=True)
class Errand:
    """robots.txt of an origin, to be fetched before anything else of it; or a page that there cannot be."""

    origin: str
    url: str
    hops: int = 0
    is_probe: bool = False

    @property
    def host(self) -> str:
        """Who is asked: another one, where robots.txt is elsewhere."""
        return host_of(self.url)


class Held:
    """A host that this process holds."""

    __slots__ = (
        *(
            "allowances",
            "ample",
            "asked",
            "busy",
            "complained_at",
            "errand",
            "fence",
            "fetching_robots",
            "gone",
            "guests",
        ),
        *("heaped", "leaving", "manners", "name", "outcomes", "pages", "queue", "saved", "spent", "told_at", "until"),
    )

    def __init__(self, lease: HostLease, manners: Manners, at: Moment) -> None:
        self.name, self.fence, self.manners = lease.host, lease.fence, manners
        self.queue: deque[Given] = deque(lease.urls)
        self.outcomes: list[Outcome] = []
        self.allowances: dict[str, Allowance] = {}
        self.errand: Errand | None = None
        """What comes before the next page: a redirect of robots.txt, or a probe."""
        self.fetching_robots = False
        self.busy = self.pages = 0
        self.guests = 0
        """Requests that other hosts need, which wait for their turn here."""
        self.heaped = self.gone = self.leaving = False
        self.saved = False
        """Whether the frontier has its state."""
        self.ample = FEWEST
        """How many addresses are held ahead; more where they ran out."""
        self.asked = 0
        """How many were asked for, in the question that is under way."""
        self.spent = False
        """The frontier had fewer than were asked for."""
        self.told_at = at
        self.until: Moment = FOR_EVER
        """When the lease is over, unless the frontier says otherwise."""
        self.complained_at: Moment = 0


Admit = Callable[[Held, Moment], Given | Errand | None]
"""What is to be fetched next of a host; None: nothing."""


class Workbench:
    """Who may be asked next. Everything happens in one thread, on one loop."""

    def __init__(self, spec: CrawlSpec, admit: Admit) -> None:
        self._terms = spec.politeness
        self._admit = admit
        self.at_once = spec.fetching.at_once
        self._per_host = spec.politeness.at_once_per_host
        self._address_delay = round(spec.politeness.address_delay_seconds * SECOND)
        self._addresses: dict[str, Moment] = {}
        self.hosts: dict[str, Held] = {}
        self.busy = 0
        self.closed = False
        """Nothing is given out any more."""
        self.paused = False
        """Nothing is given out for the moment."""
        self._heap: list[tuple[Moment, int, Held]] = []
        self._order = itertools.count()
        self._resting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Moment = 0

    def add(self, lease: HostLease, at: Moment, until: Moment = FOR_EVER) -> Held:
        """Hold a host that was leased."""
        manners = Manners(self._terms, read_state(lease.state))
        if lease.unclean:
            manners.wait_one_delay(at, manners.state.crawl_delay if self._terms.robots else 0.0)
        manners.state.full_at = max(manners.state.full_at, lease.next_at if manners.delay else 0)
        held = self.hosts[lease.host] = Held(lease, manners, at)
        held.until = until
        self.place(held)
        return held

    def remove(self, held: Held) -> None:
        held.gone = True
        if self.hosts.get(held.name) is held:
            del self.hosts[held.name]
        if len(self._heap) > 2 * len(self.hosts) + SPARE:  # those that are gone may not be due for days
            self._heap = [each for each in self._heap if not each[2].gone]
            heapq.heapify(self._heap)

    def place(self, held: Held) -> None:
        """Put a host into the heap where it belongs there; call it after every change."""
        if held.heaped or held.gone or held.fetching_robots or self._is_full(held) or held.leaving:
            return
        if held.queue or held.errand is not None:
            self._push(held, self._due(held))

    def take(self) -> tuple[Held, Given | Errand] | None:
        """What is to be fetched now; None: nothing at the moment."""
        heap = self._heap
        if not heap or self.closed or self.paused:
            return None
        at = steady()
        while heap and heap[0][0] <= at:
            held = heapq.heappop(heap)[2]
            held.heaped = False
            if held.gone or held.leaving or self._is_full(held):
                continue
            due = self._due(held) if held.until > at else at + SECOND  # somebody else may hold it by now
            if due > at:
                self._push(held, due)
                continue
            work = self._admit(held, at)
            if work is None:
                continue
            self._begin(held, work, at)
            if self._resting and heap:
                self._wake_one() if heap[0][0] <= at else self._set_timer()
            return held, work
        return None

    def _begin(self, held: Held, work: Given | Errand, at: Moment) -> None:
        manners = held.manners
        manners.begins(at)
        if self._address_delay and manners.state.address:
            if len(self._addresses) > MOST_ADDRESSES:
                self._addresses = {address: due for address, due in self._addresses.items() if due > at}
            self._addresses[manners.state.address] = at + self._address_delay
        held.busy += 1
        self.busy += 1
        held.fetching_robots = isinstance(work, Errand)
        self.place(held)

    def finished(self, held: Held) -> None:
        """What was taken is done with."""
        held.busy -= 1
        self.busy -= 1
        held.fetching_robots = False
        self.place(held)

    def reserve(self, held: Held, longest: Moment) -> Moment:
        """Take the next turn of a host for a request that another host needs; when it is. Call ``leave`` after it."""
        at = steady()
        due = max(self._due(held), at)
        if held.leaving or held.until <= due or due - at > longest:
            raise PutOff("in_line", "another host has to wait", max(1.0, (due - at) / SECOND))
        held.manners.begins(due)
        held.guests += 1
        return due

    def enter(self, held: Held) -> bool:
        """Begin what a turn was reserved for; False while others are under way there."""
        if held.busy >= self._per_host:
            return False
        held.guests -= 1
        held.busy += 1
        return True

    def _is_full(self, held: Held) -> bool:
        return held.busy + held.guests >= self._per_host

    def leave(self, held: Held) -> None:
        """A turn that was reserved is over."""
        held.busy -= 1
        self.place(held)

    async def rest(self) -> None:
        """Until there may be something to take."""
        resting = asyncio.get_running_loop().create_future()
        self._resting.append(resting)
        self._set_timer()
        await resting

    @property
    def idle(self) -> int:
        """Fetchers that have nothing to do."""
        return len(self._resting)

    def ready(self, at: Moment) -> int:
        """Hosts that could be asked at once."""
        return sum(1 for due, _, _ in self._heap if due <= at)

    def wake_all(self) -> None:
        while self._resting:
            self._wake_one()

    def _push(self, held: Held, due: Moment) -> None:
        held.heaped = True
        heapq.heappush(self._heap, (due, next(self._order), held))
        if self._resting and (not self._timer_at or due < self._timer_at):
            self._set_timer()

    def _due(self, held: Held) -> Moment:
        due = held.manners.due()
        if self._address_delay:
            due = max(due, self._addresses.get(held.manners.state.address, 0))
        return due

    def _set_timer(self) -> None:
        """Wake a fetcher when the first host is due."""
        if not self._heap or self.closed or self.paused:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        wait = max(0.0, (due - steady()) / SECOND)
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, 0
        self._wake_one()

    def _wake_one(self) -> None:
        while self._resting:
            resting = self._resting.popleft()
            if not resting.done():
                resting.set_result(None)
                return
