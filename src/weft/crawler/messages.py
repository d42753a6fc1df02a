"""The messages between a process that crawls and the control plane. Values, no I/O."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from weft.clock import Moment
from weft.ports import REQUEUED, Given, Grant, Turn, Turned
from weft.proxies.model import ProxyTurn, ProxyTurnReply

ACTIVE, PAUSED, FINISHED, STOPPED = "active", "paused", "done", "stopped"
"""The states of a crawl."""


class Skip(msgspec.Struct, frozen=True):
    """Addresses that were left out, before they came to the frontier or after, counted by what they have in common."""

    reason: Annotated[str, Meta(max_length=60)]
    """A name such as ``scope`` or ``robots``; ``crawler/reasons.py`` has them all, with a sentence for each."""
    host: Annotated[str, Meta(max_length=300)] = ""
    pattern: Annotated[str, Meta(max_length=500)] = ""
    """What they have in common, where that is known: ``/calendar/{number}/{number}``."""
    example: Annotated[str, Meta(max_length=8_192)] = ""
    count: Annotated[int, Meta(ge=1)] = 1
    is_trap: bool = False


class CrawlTurn(msgspec.Struct, frozen=True):
    """What a run that does a partition of a crawl asks of the control plane: one call does it all."""

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
    at: Annotated[int, Meta(ge=0, le=2**62)] = 0
    """What the clock shows that the moments of the turn are told by; 0: that of the control plane."""


class CrawlTurnReply(msgspec.Struct, frozen=True):
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
    proxies: ProxyTurnReply | None = None
    failed: bool = False
    """It is over and not one page came of it; the reason says why."""
    at: int = 0
    """What the clock of the control plane shows, which the moments of the answer are told by."""


class CrawlPolicy(msgspec.Struct, frozen=True):
    """What the worker's machine allows and is called; it comes from the settings of weft there."""

    contact: str = ""
    allowed_networks: tuple[str, ...] = ()
    """Networks that may be asked although they are not public, such as 127.0.0.0/8."""
    lease_seconds: float = 60.0
    """How long a host stays with a process that says nothing."""


NO_POLICY = CrawlPolicy()


class PermitRequest(msgspec.Struct, frozen=True):
    """A place in the line of all who ask the same."""

    keys: Annotated[list[Annotated[str, Meta(max_length=400)]], Meta(min_length=1, max_length=10)]
    """Such as ``host:example.com``."""
    longest_wait: Annotated[float, Meta(ge=0, le=3_600)] = 1.0
    lead: Annotated[float, Meta(ge=0, le=10)] = 0.0
    """How long the answer may be on its way: a place may be no sooner."""
    penalty: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """Instead of a place: let nobody through under the first key for so many seconds."""
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """How many a second there may be under an address; 0: as the settings say."""


class CrawlerRequest(msgspec.Struct, frozen=True):
    """What a process that crawls sends its worker, followed by the items that it has yielded, as JSON lines."""

    asked: CrawlTurn | None = None
    """None: only say who we are (``CrawlerReply.policy``), or only take the items."""
    first: int = 0
    """The number of the first item that follows; 0: none do."""
    stats: dict[str, float | str] | None = None
    """How it is getting on, by Scrapy's names where Scrapy has one."""
    permit: PermitRequest | None = None


class CrawlerReply(msgspec.Struct, frozen=True):
    """What it is answered. Items are stored before the turn is made: what is done has its item."""

    turned: CrawlTurnReply | None = None
    policy: CrawlPolicy | None = None
    problem: str = ""
    """Why nothing was done: ask the same again in a while. Items and turns that come twice do no harm."""
    fatal: bool = False
    """Asking again does not mend the problem: end."""
    lost: bool = False
    """The run is somebody else's by now: end at once."""
    grant: Grant | None = None


class UrlMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """As JSON it is the ``data`` of an address, which the frontier keeps and does not understand."""

    hops: int = 0
    """Redirects that led to it."""
    sitemap: int = 0
    """It is a sitemap, so many indexes below the first; 0: it is a page."""
    lastmod: Moment = 0
    """When it last changed, as a sitemap says."""
    suspect: str = ""
    """The reason why it may be a part of a trap: it is skipped, unless somebody puts it back in line."""
    pattern: str = ""
    """What it has in common with others that are suspected."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


NO_METADATA = UrlMetadata()


def suspicion(given: Given) -> tuple[str, str] | None:
    """What an address is suspected of, and its pattern; None: of nothing, or somebody wants it all the same."""
    if not given.data or given.reason == REQUEUED:
        return None
    carries = url_metadata(given.data)
    return (carries.suspect, carries.pattern) if carries.suspect else None


def url_metadata(data: str) -> UrlMetadata:
    if not data:
        return NO_METADATA
    try:
        return msgspec.json.decode(data, type=UrlMetadata)
    except msgspec.MsgspecError:
        return NO_METADATA


WARC_FOLDER = "warc"
WARC_OPEN_SUFFIX = ".open"
"""Ends the name of a file that is still written."""
