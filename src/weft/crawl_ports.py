"""The edges of a crawl: what it asks of a frontier and of a limiter.

A frontier knows the addresses of crawls and in which state each is. It gives them out **by host**: whoever holds a host
is the only one who asks it for pages, so that politeness is local and exact. The database is one (``crawls/``); others
are in ``adapters/frontiers``. One contract suite holds for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from weft.clock import Moment

Key = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""The xxh3 hash of an address in canonical form, as a signed number of 64 bits."""

QUEUED, LEASED, DONE, FAILED, SKIPPED = "queued", "leased", "done", "failed", "skipped"
STATES = (QUEUED, LEASED, DONE, FAILED, SKIPPED)


class Found(msgspec.Struct, frozen=True, array_like=True):
    """An address that was found and may be new."""

    key: Key
    url: Annotated[str, Meta(max_length=8_192)]
    host: Annotated[str, Meta(max_length=300)]
    """``name`` or ``name:port`` where the port is not the usual one: whom politeness is about."""
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0
    """Higher comes first, within its host."""
    found_on: Key = 0
    """The page that links to it; 0: a seed."""
    not_before: Moment = 0
    data: Annotated[str, Meta(max_length=200_000)] = ""
    """What whoever found it wants back with it, such as a request of Scrapy; the frontier does not understand it."""


class Given(msgspec.Struct, frozen=True, array_like=True):
    """An address that is to be fetched, and what is known of it from before."""

    key: Key
    url: str
    depth: int = 0
    priority: int = 0
    tries: int = 0
    """That failed, since the last that did not."""
    etag: str = ""
    last_modified: str = ""
    digest: str = ""
    """Of what it held when it was last fetched; empty: it never was."""
    interval: float = 0.0
    """Seconds between the last two visits that were planned."""
    data: str = ""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of an address that was given."""

    key: Key
    state: str
    """One of ``STATES``: ``queued`` puts it back, for a retry or a revisit, not before ``next_at``."""
    reason: Annotated[str, Meta(max_length=200)] = ""
    status: Annotated[int, Meta(ge=0, le=999)] = 0
    """Of the answer; 0: there was none."""
    next_at: Moment = 0
    tries: int = 0
    fetched_at: Moment = 0
    """0: it was not fetched, and what is known of its content stays."""
    etag: Annotated[str, Meta(max_length=200)] = ""
    last_modified: Annotated[str, Meta(max_length=100)] = ""
    digest: Annotated[str, Meta(max_length=64)] = ""
    interval: float = 0.0
    size: int = 0


class HostReport(msgspec.Struct, frozen=True, array_like=True):
    """What whoever holds a host tells of it. Each report keeps the host for another while, unless it is released."""

    host: str
    fence: int
    outcomes: list[Outcome] = []
    next_at: Moment = 0
    """Nobody may ask this host for anything before."""
    state: Annotated[str, Meta(max_length=700_000)] = ""
    """Its politeness as JSON (delay, back-off, robots.txt …), which the frontier keeps and does not understand.
    Empty: unchanged."""
    release: bool = False
    """What was given and is in no outcome is then queued again."""
    want: int = 0
    """How many further addresses of this host are asked for, where it is kept."""


class HostLease(msgspec.Struct, frozen=True, array_like=True):
    """A host that may be asked for pages by nobody else until the lease ends."""

    host: str
    fence: int
    """Higher than that of everybody who held this host before."""
    urls: list[Given]
    next_at: Moment = 0
    state: str = ""
    unclean: bool = False
    """Whoever held it before did not release it: wait one full delay, because nobody knows what it asked for last."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one report."""

    held: bool
    """False: the host is somebody else's by now; nothing of the report was taken."""
    urls: list[Given] = []


class Turn(msgspec.Struct, frozen=True):
    """One exchange with a frontier. What is found is stored first: an address that is done has lost no links."""

    found: list[Found] = []
    reports: list[HostReport] = []
    hosts: int = 0
    """How many further hosts are asked for."""
    urls_per_host: int = 50
    lease_seconds: float = 60.0


class Turned(msgspec.Struct, frozen=True):
    """What a frontier answers."""

    new: int = 0
    """Addresses that were not known before."""
    kept: list[Kept] = []
    """One for each report, in order."""
    leases: list[HostLease] = []
    next_at: Moment | None = None
    """Where no host could be leased: when it is worth asking again. None: nothing is left, not even with others."""


class Limits(msgspec.Struct, frozen=True):
    """How much of a crawl may be given out in all; 0: everything. Addresses that come back unfetched do not count."""

    pages: int = 0
    pages_per_host: int = 0


class Counts(msgspec.Struct, frozen=True):
    """How many addresses of a crawl, or of one of its hosts, are in each state."""

    queued: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    hosts: int = 0
    size: int = 0
    """Bytes of what was fetched."""


class Known(msgspec.Struct, frozen=True):
    """All that is known of an address."""

    key: Key
    url: str
    host: str
    state: str
    reason: str = ""
    status: int = 0
    depth: int = 0
    priority: int = 0
    tries: int = 0
    found_on: Key = 0
    next_at: Moment = 0
    fetched_at: Moment = 0
    digest: str = ""


class KnownHost(msgspec.Struct, frozen=True):
    """All that is known of a host of a crawl."""

    host: str
    counts: Counts
    next_at: Moment = 0
    state: str = ""
    leased_until: Moment = 0
    holder: str = ""


class Frontier(Protocol):
    """Which addresses of a crawl are known, and who may fetch them.

    A host is held by one at a time, whatever the crawl: two crawls of one host take turns. A lease that was not kept
    up ends by itself; then its addresses are given to somebody else, under a higher fence. Each method raises
    ``FrontierDown`` where the store does not answer.
    """

    async def open(self, crawl: int, limits: Limits) -> None:
        """Have a place for a crawl; no error where it is there already. Its limits may change."""

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        """Store what was found, take reports, give hosts out. May be made again where the answer was lost."""

    async def counts(self, crawl: int) -> Counts: ...

    async def look(self, crawl: int, key: int) -> Known | None:
        """What is known of one address."""

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        """Addresses in the order of their keys, those after ``after``; of one state and one host where given."""

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        """Hosts in the order of their names, those after ``after``."""

    async def requeue(self, crawl: int, state: str) -> int:
        """Put every address of a state (failed, skipped) back in line; return how many."""

    async def forget(self, crawl: int) -> None:
        """Remove all that is known of a crawl. Hosts keep their politeness."""

    async def close(self) -> None: ...


class Rate(msgspec.Struct, frozen=True):
    """How often something may happen, and how often at once."""

    per_second: float
    burst: float = 1.0
    at_once: int = 0
    """How many may be under way; 0: as many as begin."""


class Grant(msgspec.Struct, frozen=True):
    """A place in line."""

    granted: bool
    wait_seconds: float = 0.0
    """Until one's turn; where it was not granted, until it is worth asking again."""
    degraded: bool = False
    """The shared store is away: this is a part of the limit that is known to be free."""
    turns: tuple[int, ...] = ()
    """Which place it is under each key, for ``give_back``."""
    epoch: str = ""
    """Since when the store has known everything; what it granted in another epoch is void (``holds``)."""


class Limiter(Protocol):
    """Token buckets with names, on one clock, shared by all who open the same URL.

    In any span of time at most ``rate × span + burst`` is used under a key, if each place is used at its moment. A key
    of which nothing was said has what was said of its kind (``host:`` for ``host:example.com``), or one a second.
    """

    async def set(self, rates: Mapping[str, Rate]) -> None:
        """What each key allows from now on. What was said of a single one an hour ago may be forgotten."""

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant:
        """Take a place in line under every key at once, or under none where the wait would be longer."""

    def holds(self, grant: Grant) -> bool:
        """Whether a place that was granted may still be used: ask when its moment has come."""

    async def give_back(self, keys: Sequence[str], grant: Grant, cost: float = 1.0) -> None:
        """What was reserved is not used. A place with others behind it stays empty."""

    async def penalise(self, key: str, seconds: float) -> None:
        """Grant nothing under this key before so many seconds have passed (Retry-After, Crawl-delay)."""

    async def hold(self, key: str, holder: str, seconds: float) -> Grant:
        """Be one of those who are under way, until ``release`` or for so many seconds; at once or not at all."""

    async def release(self, key: str, holder: str) -> None:
        """Be under way no longer."""

    @property
    def degraded(self) -> bool:
        """Whether the shared store is away, so that only a part of each limit is given."""

    async def close(self) -> None: ...
