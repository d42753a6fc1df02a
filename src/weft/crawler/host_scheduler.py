"""Schedules the hosts that this process holds, by the time at which each may be asked next.

A heap by due time; each host has a short queue of URLs. A host is in the heap exactly while it could be asked if its
time had come. Fetchers take the first that is due, and wait while none is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from weft.clock import SECOND, Moment
from weft.crawl_spec import CrawlSpec
from weft.crawler.politeness import HostPoliteness, read_state
from weft.crawler.robots import RobotsPolicy
from weft.crawler.steady_clock import steady_now
from weft.fetching.urls import host_of
from weft.ports import Given, HostLease, Outcome
from weft.proxies.client import FetchPostponed

FOR_EVER: Moment = 2**62
MOST_ADDRESSES = 10_000
SPARE_ENTRIES = 100
"""Places of the heap that may be of hosts that are gone."""
LEAST_AHEAD, MOST_AHEAD = 8, 2_000
"""How many addresses of a host are held ahead."""


@dataclass(frozen=True, slots=True)
class AuxiliaryRequest:
    """robots.txt of an origin, to be fetched before anything else of it; or a page that there cannot be."""

    origin: str
    url: str
    hops: int = 0
    is_probe: bool = False
    about: str = ""
    """Of a probe: the pattern or folder that may have no end; empty: the host."""

    @property
    def host(self) -> str:
        """Who is asked: another one, where robots.txt is elsewhere."""
        return host_of(self.url)


class HeldHost:
    """A host that this process holds."""

    __slots__ = (
        *(
            "robots_policies",
            "want_ahead",
            "asked",
            "busy",
            "complained_at",
            "auxiliary",
            "fence",
            "fetching_robots",
            "gone",
            "foreign_requests",
        ),
        *(
            "in_heap",
            "leaving",
            "politeness",
            "name",
            "outcomes",
            "pages",
            "queue",
            "saved",
            "spent",
            "told_at",
            "until",
        ),
    )

    def __init__(self, lease: HostLease, politeness: HostPoliteness, at: Moment) -> None:
        self.name, self.fence, self.politeness = lease.host, lease.fence, politeness
        self.queue: deque[Given] = deque(lease.urls)
        self.outcomes: list[Outcome] = []
        self.robots_policies: dict[str, RobotsPolicy] = {}
        self.auxiliary: AuxiliaryRequest | None = None
        """What comes before the next page: a redirect of robots.txt, or a probe."""
        self.fetching_robots = False
        self.busy = self.pages = 0
        self.foreign_requests = 0
        """Requests that other hosts need, which wait for their turn here."""
        self.in_heap = self.gone = self.leaving = False
        self.saved = False
        """Whether the frontier has its state."""
        self.want_ahead = LEAST_AHEAD
        """How many addresses are held ahead; more where they ran out."""
        self.asked = 0
        """How many were asked for, in the question that is under way."""
        self.spent = False
        """The frontier had fewer than were asked for."""
        self.told_at = at
        self.until: Moment = FOR_EVER
        """When the lease is over, unless the frontier says otherwise."""
        self.complained_at: Moment = 0


Admit = Callable[[HeldHost, Moment], Given | AuxiliaryRequest | None]
"""What is to be fetched next of a host; None: nothing."""


class HostScheduler:
    """Who may be asked next. Everything happens in one thread, on one loop."""

    def __init__(self, spec: CrawlSpec, admit: Admit) -> None:
        self._terms = spec.politeness
        self._is_direct = not spec.fetching.proxies and spec.fetching.verify_tls
        self._admit = admit
        self.at_once = spec.fetching.at_once
        self._per_host = spec.politeness.at_once_per_host
        self._address_delay = round(spec.politeness.address_delay_seconds * SECOND)
        self._addresses: dict[str, Moment] = {}
        self.hosts: dict[str, HeldHost] = {}
        self.busy = 0
        self.closed = False
        """Nothing is given out any more."""
        self.paused = False
        """Nothing is given out for the moment."""
        self._heap: list[tuple[Moment, int, HeldHost]] = []
        self._order = itertools.count()
        self._resting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Moment = 0

    def add(self, lease: HostLease, at: Moment, until: Moment = FOR_EVER) -> HeldHost:
        """Hold a host that was leased."""
        politeness = HostPoliteness(self._terms, read_state(lease.state), is_direct=self._is_direct)
        if lease.unclean:
            politeness.wait_one_delay(at, politeness.state.crawl_delay if self._terms.robots else 0.0)
        politeness.state.full_at = max(politeness.state.full_at, lease.next_at if politeness.delay else 0)
        held = self.hosts[lease.host] = HeldHost(lease, politeness, at)
        held.until = until
        self.place(held)
        return held

    def remove(self, held: HeldHost) -> None:
        held.gone = True
        if self.hosts.get(held.name) is held:
            del self.hosts[held.name]
        if len(self._heap) > 2 * len(self.hosts) + SPARE_ENTRIES:  # those that are gone may not be due for days
            self._heap = [each for each in self._heap if not each[2].gone]
            heapq.heapify(self._heap)

    def place(self, held: HeldHost) -> None:
        """Put a host into the heap where it belongs there; call it after every change."""
        if held.in_heap or held.gone or held.fetching_robots or self._is_full(held) or held.leaving:
            return
        if held.queue or held.auxiliary is not None:
            self._push(held, self._due(held))

    def take(self) -> tuple[HeldHost, Given | AuxiliaryRequest] | None:
        """What is to be fetched now; None: nothing at the moment."""
        heap = self._heap
        if not heap or self.closed or self.paused:
            return None
        at = steady_now()
        while heap and heap[0][0] <= at:
            held = heapq.heappop(heap)[2]
            held.in_heap = False
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

    def _begin(self, held: HeldHost, work: Given | AuxiliaryRequest, at: Moment) -> None:
        politeness = held.politeness
        politeness.begins(at)
        if self._address_delay and politeness.state.address:
            if len(self._addresses) > MOST_ADDRESSES:
                self._addresses = {address: due for address, due in self._addresses.items() if due > at}
            self._addresses[politeness.state.address] = at + self._address_delay
        held.busy += 1
        self.busy += 1
        held.fetching_robots = isinstance(work, AuxiliaryRequest)
        self.place(held)

    def finished(self, held: HeldHost) -> None:
        """What was taken is done with."""
        held.busy -= 1
        self.busy -= 1
        held.fetching_robots = False
        self.place(held)

    def reserve(self, held: HeldHost, longest: Moment) -> Moment:
        """Take the next turn of a host for a request that another host needs; when it is. Call ``leave`` after it."""
        at = steady_now()
        due = max(self._due(held), at)
        if held.leaving or held.until <= due or due - at > longest:
            raise FetchPostponed("in_line", "another host has to wait", max(1.0, (due - at) / SECOND))
        held.politeness.begins(due)
        held.foreign_requests += 1
        return due

    def enter(self, held: HeldHost) -> bool:
        """Begin what a turn was reserved for; False while others are under way there."""
        if held.busy >= self._per_host:
            return False
        held.foreign_requests -= 1
        held.busy += 1
        return True

    def _is_full(self, held: HeldHost) -> bool:
        return held.busy + held.foreign_requests >= self._per_host

    def leave(self, held: HeldHost) -> None:
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

    def _push(self, held: HeldHost, due: Moment) -> None:
        held.in_heap = True
        heapq.heappush(self._heap, (due, next(self._order), held))
        if self._resting and (not self._timer_at or due < self._timer_at):
            self._set_timer()

    def _due(self, held: HeldHost) -> Moment:
        due = held.politeness.due()
        if self._address_delay:
            due = max(due, self._addresses.get(held.politeness.state.address, 0))
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
        wait = max(0.0, (due - steady_now()) / SECOND)
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
