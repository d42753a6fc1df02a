"""What a process that crawls and the control plane tell each other, and what a crawl is. Values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from weft.clock import Moment
from weft.crawl_ports import Grant, Turn, Turned
from weft.crawl_spec import CrawlSpec
from weft.fetching.proxy_turns import ProxyTurn, ProxyTurned

ACTIVE, PAUSED, FINISHED, STOPPED = "active", "paused", "done", "stopped"
"""The states of a crawl."""


TURN = ""
"""Instead of the reason of a skip: which turn of a share was counted last."""


class Skip(msgspec.Struct, frozen=True):
    """Addresses that were left out, before they came to the frontier or after, counted by what they have in common."""

    reason: Annotated[str, Meta(max_length=60)]
    """A name such as ``scope`` or ``robots``; ``crawls/reasons.py`` has them all, with a sentence for each."""
    host: Annotated[str, Meta(max_length=300)] = ""
    pattern: Annotated[str, Meta(max_length=500)] = ""
    """What they have in common, where that is known: ``/calendar/{number}/{number}``."""
    example: Annotated[str, Meta(max_length=8_192)] = ""
    count: Annotated[int, Meta(ge=1)] = 1
    is_trap: bool = False


class CrawlTurn(msgspec.Struct, frozen=True):
    """What a run that does a share of a crawl asks of the control plane: one call does it all."""

    turn: Turn = Turn()
    skips: list[Skip] = []
    feed: list[str] = []
    """Canonical addresses for the crawl that this one feeds."""
    proxies: ProxyTurn | None = None
    """About the ways out; a turn that has this is about nothing else."""
    crawl: int = 0
    """Which one the answer before named; 0: there was none. A spider's spec names none by its number."""
    hungry: bool = False
    """It holds no host, and asks for some."""
    number: Annotated[int, Meta(ge=0, le=2**62)] = 0
    """Grows with each turn of a process: where one is told again, what it left out counts once. 0: it has none."""


class CrawlTurned(msgspec.Struct, frozen=True):
    """What it is answered."""

    crawl: int
    """The crawl's id."""
    turned: Turned = Turned()
    stop: str = ""
    """paused, stopped or done: give back what is held and end. Empty: go on."""
    reason: str = ""
    """Why it should stop, in words."""
    others_hungry: bool = False
    """Another share has nothing to do: give back some of the hosts that are held."""
    proxies: ProxyTurned | None = None
    failed: bool = False
    """It is over and not one page came of it; the reason says why."""


class Policy(msgspec.Struct, frozen=True):
    """What the worker's machine allows and is called; it comes from the settings of weft there."""

    contact: str = ""
    allowed_networks: tuple[str, ...] = ()
    """Networks that may be asked although they are not public, such as 127.0.0.0/8."""
    limiter: str = ""
    """The URL of the shared limiter; empty: each process has its own."""
    lease_seconds: float = 60.0
    """How long a host stays with a process that says nothing."""


NO_POLICY = Policy()


class PermitAsked(msgspec.Struct, frozen=True):
    """A place in the line of all who ask the same."""

    keys: Annotated[list[Annotated[str, Meta(max_length=400)]], Meta(min_length=1, max_length=10)]
    """Such as ``host:example.com``."""
    longest_wait: Annotated[float, Meta(ge=0, le=3_600)] = 1.0
    penalty: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """Instead of a place: let nobody through under the first key for so many seconds."""
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """How many a second there may be under an address; 0: as the settings say."""


class Question(msgspec.Struct, frozen=True):
    """What a process that crawls sends its worker, followed by the items that it has yielded, as JSON lines."""

    asked: CrawlTurn | None = None
    """None: only say who we are (``Answer.policy``), or only take the items."""
    first: int = 0
    """The number of the first item that follows; 0: none do."""
    stats: dict[str, float | str] | None = None
    """How it is getting on, by Scrapy's names where Scrapy has one."""
    permit: PermitAsked | None = None


class Answer(msgspec.Struct, frozen=True):
    """What it is answered. Items are stored before the turn is made: what is done has its item."""

    turned: CrawlTurned | None = None
    policy: Policy | None = None
    problem: str = ""
    """Why nothing was done: ask the same again in a while. Items and turns that come twice do no harm."""
    fatal: bool = False
    """Asking again does not mend the problem: end."""
    lost: bool = False
    """The run is somebody else's by now: end at once."""
    grant: Grant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """A crawl, as the database knows it."""

    id: int
    project: str
    name: str
    run_id: int | None
    spec: CrawlSpec
    state: str
    reason: str
    seeded: bool
    created_at: Moment
    created_by: str
    ended_at: Moment | None
    hungry_at: Moment = 0
    """When a share of it last had nothing to do, though others had."""
