"""Crawls as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.clock import iso
from weft.crawl_ports import Counts, Known, KnownHost
from weft.crawls import trouble
from weft.crawls.model import Crawl, Skip
from weft.crawls.reasons import sentence
from weft.crawls.report import Beat, Report, Share, Why
from weft.documents.copying import Time, copied

MOST_URLS = 10
"""Of the addresses that a crawl began with, so many are shown beside it."""
HIDDEN = "…"


class CountsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many addresses are in each state."""

    queued: int
    leased: int
    done: int
    failed: int
    skipped: int
    hosts: int
    size: int
    """Bytes of what was fetched."""


class CrawlDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl and how it stands."""

    id: int
    project: str
    name: str
    state: str
    """active, paused, done or stopped."""
    reason: str
    """Why it is not active."""
    run_id: int | None
    """The first run that did a share of it."""
    urls: tuple[str, ...]
    """Where it began: the first ten."""
    created_at: Time | None
    created_by: str
    ended_at: Time | None
    counts: CountsDocument | None = None


class ShareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run that does a share of a crawl, or did one."""

    run_id: int
    state: str
    worker: str | None
    attempt: int
    started_at: Time | None
    finished_at: Time | None
    outcome: str | None
    reason: str | None
    pages: int
    """Answers that it has had."""


class SkipSumDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many addresses were left out for one reason."""

    reason: str
    sentence: str
    count: int


class SkipDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that were left out and what they have in common."""

    reason: str
    sentence: str
    host: str
    pattern: str
    example: str
    count: int
    is_trap: bool


class ReportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl and how it is getting on."""

    crawl: CrawlDocument
    spec: dict[str, Any]
    counts: CountsDocument
    pages_per_second: float
    """Of late where it is going on; of the whole crawl where it is not."""
    left: int
    """Pages that are still to be fetched, as far as anybody knows."""
    seconds_left: float | None
    """How long that takes at this speed; null where nobody can say."""
    shares: list[ShareDocument]
    skips: list[SkipSumDocument]
    traps: list[SkipDocument]


class BeatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a crawl was for a while."""

    at: Time | None
    pages_per_second: float


class UrlDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a crawl knows."""

    key: str
    """A number of 64 bits, as a text: JSON in browsers cannot hold it."""
    url: str
    host: str
    state: str
    reason: str
    status: int
    """Of the answer; 0: there was none."""
    depth: int
    priority: int
    tries: int
    next_at: Time | None
    fetched_at: Time | None
    digest: str


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A host of a crawl."""

    host: str
    counts: CountsDocument
    next_at: Time | None
    """Nobody asks it for anything before."""
    leased_until: Time | None
    holder: str
    """The run and attempt that hold it, such as 7:1; empty: nobody."""
    trouble: str
    """What is wrong with it, such as: does not answer (connection refused); empty: nothing, or nothing is wanted."""


class WhyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why an address is not crawled, or that it is."""

    url: str
    state: str
    """As the frontier knows it; empty: it does not."""
    reason: str
    sentence: str


class WarcDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file of raw exchanges that is kept."""

    name: str
    has_index: bool
    size: int = 0
    """In bytes."""


def crawl_document(crawl: Crawl, counts: Counts | None = None) -> CrawlDocument:
    names = [
        name for name in CrawlDocument.__struct_fields__ if name not in ("urls", "counts", "created_at", "ended_at")
    ]
    return CrawlDocument(
        **{name: getattr(crawl, name) for name in names},
        urls=(*crawl.spec.urls, *crawl.spec.sitemaps)[:MOST_URLS],
        created_at=iso(crawl.created_at),
        ended_at=iso(crawl.ended_at),
        counts=None if counts is None else counts_document(counts),
    )


def counts_document(counts: Counts) -> CountsDocument:
    return copied(CountsDocument, counts)


def report_document(report: Report) -> ReportDocument:
    return ReportDocument(
        crawl=crawl_document(report.crawl, report.counts),
        spec=shown_spec(msgspec.to_builtins(report.crawl.spec)),
        counts=counts_document(report.counts),
        pages_per_second=round(report.pages_per_second, 3),
        left=report.left,
        seconds_left=report.seconds_left,
        shares=[share_document(each) for each in report.shares],
        skips=[
            SkipSumDocument(reason=each.reason, sentence=sentence(each.reason), count=each.count)
            for each in report.skips
        ],
        traps=[skip_document(each) for each in report.traps],
    )


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec as others may see it: passwords and headers may be secret, unless they are the name of a secret."""
    fetching = dict(spec.get("fetching", {}))
    if "password" in fetching:
        fetching["password"] = _hidden(fetching["password"])
    if "headers" in fetching:
        fetching["headers"] = {name: _hidden(value) for name, value in fetching["headers"].items()}
    return {**spec, **({"fetching": fetching} if fetching else {})}


def _hidden(value: str) -> str:
    return value if value.startswith("{{secret:") and value.endswith("}}") else HIDDEN


def share_document(share: Share) -> ShareDocument:
    return copied(ShareDocument, share)


def skip_document(skip: Skip) -> SkipDocument:
    told: dict[str, Any] = msgspec.structs.asdict(skip)
    return SkipDocument(**told, sentence=sentence(skip.reason, pattern=skip.pattern))


def beat_document(beat: Beat) -> BeatDocument:
    return BeatDocument(at=iso(beat.at), pages_per_second=beat.pages_per_second)


def url_document(known: Known) -> UrlDocument:
    names = [name for name in UrlDocument.__struct_fields__ if name not in ("key", "next_at", "fetched_at")]
    told = {name: getattr(known, name) for name in names}
    return UrlDocument(**told, key=str(known.key), next_at=_time(known.next_at), fetched_at=_time(known.fetched_at))


def host_document(known: KnownHost) -> HostDocument:
    return HostDocument(
        host=known.host,
        counts=counts_document(known.counts),
        next_at=_time(known.next_at),
        leased_until=_time(known.leased_until) if known.holder else None,
        holder=known.holder,
        trouble=trouble.told(known),
    )


def _time(at: int) -> Time | None:
    return iso(at) if at else None


def why_document(why: Why) -> WhyDocument:
    return copied(WhyDocument, why)
