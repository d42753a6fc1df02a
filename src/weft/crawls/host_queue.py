"""The queue of one crawl on one host, as a turn reads it, changes it and writes it back.

What is given stays in the queue: ``held`` has its keys. So a lease costs nothing for each URL, and where a holder is
lost, the keys are given again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from weft.clock import SECOND, Moment
from weft.ports import DONE, FAILED, QUEUED, SKIPPED, Outcome

LOOK_AGAIN: Moment = 5 * SECOND
"""How soon a crawl looks again at a host that another has, unless that one rings."""

WANTED: Moment = 30 * SECOND
"""How long a host is kept for the crawl that asked for it."""

NEVER = 2**62

_keys = msgspec.json.Decoder(list[int]).decode


@dataclass(slots=True)
class HostQueue:
    """A host, and what one crawl has on it. It is changed by whoever has its rows locked."""

    crawl: int
    host_id: int
    name: str
    fence: int
    crawl_id: int | None
    holder: str
    leased_until: Moment
    wanted_by: int | None
    wanted_until: Moment
    next_at: Moment
    ready_at: Moment
    own_fence: int
    held_text: str
    from_rank: int
    """Everything in line before this place is given."""
    to_rank: int
    """Nothing behind this place is."""
    queued: int
    later: int
    later_at: Moment
    done: int
    failed: int
    skipped: int
    taken: int
    size: int
    state: str | None = None
    """What is to be written; None: it stays as it is."""
    came_back: int = 0
    """How many addresses were given and came back unfetched, in this turn."""
    touched: bool = False
    """Whether something of the host itself has changed, and not only of what the crawl has on it."""
    given: int = 0
    """How many addresses were given in this turn."""
    own_next_at: Moment = 0
    """This crawl gets it not before, where it was released in this turn."""
    since: Moment = field(init=False)
    """When it was worth looking at, as this turn found it."""
    held: dict[int, None] = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.ready_at if self.queued and not self.own_fence else NEVER
        self.held = dict.fromkeys(_keys(self.held_text)) if self.held_text else {}

    @property
    def is_ours(self) -> bool:
        """Whether this crawl holds it, be it longer than it may."""
        return self.own_fence != 0 and self.own_fence == self.fence

    @property
    def in_line(self) -> int:
        """How many addresses could be given now."""
        return self.queued - self.later

    def is_wanted_elsewhere(self, now: Moment) -> bool:
        return self.wanted_by is not None and self.wanted_by != self.crawl and self.wanted_until > now

    def enter(self, rank: int) -> None:
        """One more address, at this place in line."""
        self.queued += 1
        self.from_rank = min(self.from_rank, rank)

    def enter_later(self, at: Moment) -> None:
        """One more address that is not due before."""
        self.queued += 1
        self._put_off(1, at)

    def becomes_due(self, rank: int) -> None:
        """One of those for later is at this place in line now."""
        self.later -= 1
        self.from_rank = min(self.from_rank, rank)

    def _put_off(self, count: int, until: Moment) -> None:
        if count:
            self.later_at = min(until, self.later_at) if self.later else until
            self.later += count

    def give(self, keys: list[int], last_rank: int) -> None:
        """Give the first that were not given, of which the last has this place in line."""
        self.from_rank, self.to_rank = last_rank, max(self.to_rank, last_rank)
        self.held.update(dict.fromkeys(keys))
        self.queued -= len(keys)
        self.taken += len(keys)
        self.given += len(keys)

    def take(self, outcome: Outcome, now: Moment) -> bool:
        """Count what became of an address; False where it was not given, or was told before."""
        if outcome.key not in self.held or outcome.state not in (QUEUED, DONE, FAILED, SKIPPED):
            return False
        del self.held[outcome.key]
        setattr(self, outcome.state, getattr(self, outcome.state) + 1)
        if outcome.state == QUEUED and outcome.next_at > now:
            self._put_off(1, outcome.next_at)
        elif outcome.state == QUEUED:
            self.from_rank = 0  # it is in line where it was, and we do not know where
        if outcome.state != DONE and not outcome.fetched_at:
            self._came_back(1)
        self.size += outcome.size
        return True

    def take_back(self) -> None:
        """What was given and not told of is in line again."""
        self.queued += len(self.held)
        self._came_back(len(self.held))
        self.held.clear()
        self.own_fence = self.from_rank = self.to_rank = 0

    def _came_back(self, count: int) -> None:
        self.taken -= count
        self.came_back += count

    def keep(self, until: Moment, next_at: Moment, state: str) -> None:
        """Hold it until then; nobody may ask it for anything before ``next_at``."""
        self.touched = True
        self.leased_until, self.next_at = until, next_at
        self.state = state or self.state

    def release(self, own_next_at: Moment = 0) -> None:
        """Let others have it; this crawl gets it again not before ``own_next_at``."""
        self.touched = True
        self.own_next_at = own_next_at
        self.take_back()
        self.crawl_id, self.holder, self.leased_until = None, "", 0

    def lease(self, holder: str, until: Moment) -> None:
        self.touched = True
        self.fence += 1
        self.crawl_id, self.own_fence, self.holder, self.leased_until = self.crawl, self.fence, holder, until
        if self.wanted_by == self.crawl:
            self.wanted_by = None

    def want(self, now: Moment) -> None:
        """Ask whoever has it to let it go soon."""
        if not self.is_wanted_elsewhere(now):
            self.touched = True
            self.wanted_by, self.wanted_until = self.crawl, now + WANTED

    def is_waiting(self, most: int) -> bool:
        """Whether something may still be given, or is."""
        return bool(self.held) or (self.queued > 0 and not (most and self.taken >= most))

    def ready(self, now: Moment) -> Moment:
        """When it is worth looking at; where that is now, since when it has been: who waits longest comes first."""
        if self.is_ours:
            return self.leased_until
        next_at = max(self.next_at, self.own_next_at)
        ready = next_at if self.in_line > 0 else max(next_at, self.later_at)
        return ready if ready > now else min(now, max(ready, self.since))
