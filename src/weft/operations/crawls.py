"""Create and control crawls; list their hosts, URLs, skips and WARC files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.clock import iso, seconds
from weft.crawl_spec import BudgetSpec, CrawlSpec, FetchingSpec
from weft.crawler import reasons
from weft.crawler.messages import Skip
from weft.crawler.reasons import NOT_KEPT, describe_reason
from weft.crawls.model import IN_DATABASE, Crawl, CrawlPartition, CrawlReport, SkipTotal, ThroughputSpan, UrlExplanation
from weft.errors import Invalid
from weft.operations.operation import EXAMPLE_TIME, Call, Operations, Time, copied
from weft.operations.paging import Limit, Page, PageCursor, decode_names, decode_number, encode_cursor, example_page
from weft.ports import Counts, Known, KnownHost
from weft.tasks.model import check_label, check_name

MOST_SEED_URLS = 10
"""Of the addresses that a crawl began with, so many are shown beside it."""
MASKED_FIELDS = "…"


class CrawlCountsDocument(msgspec.Struct, frozen=True, kw_only=True):
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
    """The first run of a partition of it."""
    urls: tuple[str, ...]
    """Where it began: the first ten."""
    created_at: Time | None
    created_by: str
    ended_at: Time | None
    counts: CrawlCountsDocument | None = None
    """Null where its URLs are in another frontier than this weft uses."""
    frontier: str | None = None
    """What kind of store its URLs are in: database, redis or dynamodb; null where nobody knows."""


class CrawlPartitionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run that does a partition of a crawl, or did one."""

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


class SkipCountDocument(msgspec.Struct, frozen=True, kw_only=True):
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


class DroppedLinksDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Links that a limit dropped, so that pages may be missing; nothing of them is in the frontier."""

    reason: str
    sentence: str
    count: int
    remedy: str
    """What a new crawl must do to fetch them; empty: no crawl can."""


class CrawlReportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl and how it is getting on."""

    crawl: CrawlDocument
    spec: dict[str, Any]
    counts: CrawlCountsDocument
    pages_per_second: float
    """Of late where it is going on; of the whole crawl where it is not."""
    left: int
    """Pages that are still to be fetched, as far as anybody knows."""
    seconds_left: float | None
    """How long that takes at this speed; null where nobody can say."""
    partitions: list[CrawlPartitionDocument]
    suspected: int
    """Pages that were skipped on suspicion of a trap; requeue with the state skipped fetches them."""
    not_kept: list[DroppedLinksDocument]
    """Links that were dropped by limits that nobody set for this crawl. Where there are any, or some are suspected, a
    crawl that is done is incomplete."""
    skips: list[SkipCountDocument]
    traps: list[SkipDocument]


class CrawlThroughputDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a crawl was for a while."""

    at: Time | None
    pages_per_second: float


class CrawlUrlDocument(msgspec.Struct, frozen=True, kw_only=True):
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


class CrawlHostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A host of a crawl."""

    host: str
    counts: CrawlCountsDocument
    next_at: Time | None
    """Nobody asks it for anything before."""
    leased_until: Time | None
    holder: str
    """The run and attempt that hold it, such as 7:1; empty: nobody."""
    trouble: str
    """What is wrong with it, such as: does not answer (connection refused); empty: nothing, or nothing is wanted."""


class UrlExplanationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why an address is not crawled, or that it is."""

    url: str
    state: str
    """As the frontier knows it; empty: it does not."""
    reason: str
    sentence: str


class WarcFileDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file of raw exchanges that is kept."""

    name: str
    has_index: bool
    size: int = 0
    """In bytes."""


def crawl_document(crawl: Crawl, counts: Counts | None = None) -> CrawlDocument:
    names = [
        name
        for name in CrawlDocument.__struct_fields__
        if name not in ("urls", "counts", "created_at", "ended_at", "frontier")
    ]
    return CrawlDocument(
        **{name: getattr(crawl, name) for name in names},
        urls=(*crawl.spec.urls, *crawl.spec.sitemaps)[:MOST_SEED_URLS],
        created_at=iso(crawl.created_at),
        ended_at=iso(crawl.ended_at),
        counts=None if counts is None else counts_document(counts),
        frontier=None if crawl.frontier is None else frontier_kind(crawl.frontier),
    )


def frontier_kind(frontier: str) -> str:
    """The kind of a frontier alone: where it is, is told to nobody over the network."""
    return "database" if frontier == IN_DATABASE else frontier.partition(":")[0]


def counts_document(counts: Counts) -> CrawlCountsDocument:
    return copied(CrawlCountsDocument, counts)


def report_document(report: CrawlReport) -> CrawlReportDocument:
    return CrawlReportDocument(
        crawl=crawl_document(report.crawl, report.counts),
        spec=shown_spec(msgspec.to_builtins(report.crawl.spec)),
        counts=counts_document(report.counts),
        pages_per_second=round(report.pages_per_second, 3),
        left=report.left,
        seconds_left=report.seconds_left,
        partitions=[partition_document(each) for each in report.partitions],
        suspected=report.suspected,
        not_kept=[
            DroppedLinksDocument(
                reason=each.reason,
                sentence=describe_reason(each.reason),
                count=each.count,
                remedy=NOT_KEPT[each.reason],
            )
            for each in report.not_kept
        ],
        skips=[
            SkipCountDocument(reason=each.reason, sentence=describe_reason(each.reason), count=each.count)
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
    return value if value.startswith("{{secret:") and value.endswith("}}") else MASKED_FIELDS


def partition_document(partition: CrawlPartition) -> CrawlPartitionDocument:
    return copied(CrawlPartitionDocument, partition)


def skip_document(skip: Skip) -> SkipDocument:
    told: dict[str, Any] = msgspec.structs.asdict(skip)
    return SkipDocument(**told, sentence=describe_reason(skip.reason, pattern=skip.pattern))


def throughput_document(beat: ThroughputSpan) -> CrawlThroughputDocument:
    return CrawlThroughputDocument(at=iso(beat.at), pages_per_second=beat.pages_per_second)


def url_document(known: Known) -> CrawlUrlDocument:
    names = [name for name in CrawlUrlDocument.__struct_fields__ if name not in ("key", "next_at", "fetched_at")]
    told = {name: getattr(known, name) for name in names}
    return CrawlUrlDocument(
        **told, key=str(known.key), next_at=_seconds_of(known.next_at), fetched_at=_seconds_of(known.fetched_at)
    )


def host_document(known: KnownHost) -> CrawlHostDocument:
    return CrawlHostDocument(
        host=known.host,
        counts=counts_document(known.counts),
        next_at=_seconds_of(known.next_at),
        leased_until=_seconds_of(known.leased_until) if known.holder else None,
        holder=known.holder,
        trouble=reasons.host_problem(known),
    )


def _seconds_of(at: int) -> Time | None:
    return iso(at) if at else None


def explanation_document(why: UrlExplanation) -> UrlExplanationDocument:
    return copied(UrlExplanationDocument, why)


async def crawl_of(call: Call) -> int:
    """The crawl that the address names, of a project where the caller may do this."""
    crawl_id = call.number("crawl_id", "crawl")
    call.check(await call.app.crawls.project_of(crawl_id), f"crawl {crawl_id}")
    return crawl_id


SPEC_EXAMPLE: dict[str, Any] = {
    "urls": ["https://shop.example/"],
    "follow": True,
    "budget": {"pages": 10_000},
    "fetching": {"contact": "crawls@weft.example"},
}
_example_spec = CrawlSpec(
    urls=("https://shop.example/",),
    follow=True,
    budget=BudgetSpec(pages=10_000),
    fetching=FetchingSpec(contact="crawls@weft.example"),
)
_example_crawl = Crawl(
    id=7,
    project="shop",
    name="shop.example",
    run_id=12,
    spec=_example_spec,
    state="active",
    reason="",
    seeded=True,
    created_at=EXAMPLE_TIME,
    created_by="key:ci",
    ended_at=None,
)
_example_counts = Counts(queued=5_120, leased=50, done=1_204, failed=3, skipped=17, hosts=1, size=48_160_000)
_example_partition = CrawlPartition(
    run_id=12,
    state="running",
    worker="crawler-1",
    attempt=1,
    started_at=EXAMPLE_TIME + seconds(0.1),
    finished_at=None,
    outcome=None,
    reason=None,
    pages=1_207,
)
_example_skip = Skip(
    reason="scope",
    host="cdn.example",
    pattern="",
    example="https://cdn.example/logo.svg",
    count=61,
    is_trap=False,
)
_example_url = Known(
    key=7_266_447_313_870_364_031,
    url="https://shop.example/tea",
    host="shop.example",
    state="done",
    status=200,
    depth=1,
    fetched_at=EXAMPLE_TIME + seconds(9),
    digest="2c26b46b68ffc68f",
)


def _plain_example(document: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


_example_report = CrawlReport(
    crawl=_example_crawl,
    counts=_example_counts,
    pages_per_second=12.5,
    partitions=[_example_partition],
    skips=[SkipTotal(reason="scope", count=61)],
    traps=[],
)
_example_host = KnownHost(
    "shop.example", _example_counts, EXAMPLE_TIME + seconds(10), leased_until=EXAMPLE_TIME + seconds(70), holder="12:1"
)
_example_explanation = UrlExplanation(
    url="https://shop.example/a", state="", reason="not_found", sentence="no page that was fetched links to it"
)

CRAWL_EXAMPLE = _plain_example(crawl_document(_example_crawl, _example_counts))
CRAWL_REPORT_EXAMPLE = _plain_example(report_document(_example_report))
CRAWL_HOST_EXAMPLE = _plain_example(host_document(_example_host))
CRAWL_URL_EXAMPLE = _plain_example(url_document(_example_url))
SKIP_EXAMPLE = _plain_example(skip_document(_example_skip))
URL_EXPLANATION_EXAMPLE = _plain_example(explanation_document(_example_explanation))
CDXJ_EXAMPLE = (
    'example,shop)/ 20261201020000 {"url": "https://shop.example/", "status": "200", "filename": "weft-7.warc.gz"}\n'
)


operations = Operations("crawls")

LARGEST_BODY = 16 << 20

CrawlState = Literal["active", "paused", "done", "stopped"]


class CrawlQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which crawls to list."""

    project: str | None = None
    state: CrawlState | None = None
    name: str | None = None
    run_id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    """The first run of a partition of it."""
    after: PageCursor | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many at most.")] = 20


@operations.get(
    "/crawls", needs=Role.VIEWER, query=CrawlQuery, answer=Page[CrawlDocument], example=example_page(CRAWL_EXAMPLE)
)
async def list_(call: Call) -> Page[CrawlDocument]:
    """List crawls, newest first, with what each knows of its addresses."""
    asked: CrawlQuery = call.query
    projects = call.visible(asked.project)
    wanted: dict[str, Any] = {
        "state": asked.state,
        "name": asked.name,
        "run_id": asked.run_id,
        "before": decode_number(asked.after),
        "limit": asked.limit + 1,
    }
    found = Page.of(await call.app.crawls.all(projects, **wanted), asked.limit, lambda crawl: crawl.id)
    counts = await asyncio.gather(*(call.app.crawls.counting.here(crawl) for crawl in found.items))
    pairs = zip(found.items, counts, strict=True)
    return Page(items=[crawl_document(crawl, count) for crawl, count in pairs], next=found.next)


class CrawlInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crawl to begin."""

    spec: CrawlSpec
    project: str = "default"
    name: str = ""
    """Its name in lists. Default: the host of its first URL."""
    labels: tuple[str, ...] = ()
    """Labels that workers must have to do a partition of it."""
    paused: bool = False
    """Begin it at rest: it can be given addresses before it goes on."""


@operations.post(
    "/crawls",
    needs=Role.DEVELOPER,
    body=CrawlInput,
    answer=CrawlDocument,
    status=202,
    largest_body=LARGEST_BODY,
    example=CRAWL_EXAMPLE,
    example_body={"spec": SPEC_EXAMPLE, "project": "shop"},
)
async def create(call: Call) -> CrawlDocument:
    """Begin a crawl; runs for its partitions are queued as workers are there."""
    body: CrawlInput = call.body
    check_name("project", body.project)
    call.check(body.project)
    for label in body.labels:
        check_label("label", label)
    told: dict[str, Any] = {"name": body.name, "labels": body.labels, "by": call.caller.actor, "paused": body.paused}
    crawl = await call.app.crawls.create(body.project, body.spec, **told)
    call.headers["Location"] = f"/v1/crawls/{crawl.id}"
    return crawl_document(crawl)


@operations.get("/crawls/{crawl_id}", needs=Role.VIEWER, answer=CrawlReportDocument, example=CRAWL_REPORT_EXAMPLE)
async def show(call: Call) -> CrawlReportDocument:
    """Show a crawl: how far it is and how fast, who does it, what was left out and why."""
    return report_document(await call.app.crawls.report(await crawl_of(call)))


@operations.get(
    "/crawls/{crawl_id}/pace",
    needs=Role.VIEWER,
    answer=Page[CrawlThroughputDocument],
    example=example_page({"at": "2026-12-01T02:00:00.000Z", "pages_per_second": 12.5}),
)
async def pace(call: Call) -> Page[CrawlThroughputDocument]:
    """Tell how fast a crawl was from its begin until now, in sixty parts at most."""
    return Page(items=[throughput_document(each) for each in await call.app.crawls.pace(await crawl_of(call))])


@operations.post(
    "/crawls/{crawl_id}/pause", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=CRAWL_EXAMPLE
)
async def pause(call: Call) -> CrawlDocument:
    """Let a crawl rest: its runs give back what they hold and end; nothing is lost."""
    return await _crawl_shown(call, await call.app.crawls.pause(await crawl_of(call), f"paused by {call.caller.name}"))


@operations.post(
    "/crawls/{crawl_id}/resume", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=CRAWL_EXAMPLE
)
async def resume(call: Call) -> CrawlDocument:
    """Let a crawl that is paused or stopped go on where it was."""
    return await _crawl_shown(call, await call.app.crawls.resume(await crawl_of(call), call.caller.actor))


@operations.post(
    "/crawls/{crawl_id}/stop", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=CRAWL_EXAMPLE
)
async def stop(call: Call) -> CrawlDocument:
    """End a crawl, whatever is left; what it has found stays."""
    return await _crawl_shown(call, await call.app.crawls.stop(await crawl_of(call), f"stopped by {call.caller.name}"))


@operations.delete("/crawls/{crawl_id}", needs=Role.DEVELOPER, status=204)
async def delete(call: Call) -> None:
    """Forget a crawl that is over, with its addresses and raw files; its items stay in their dataset."""
    await call.app.crawls.delete(await crawl_of(call))


class CrawlHostQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts to list."""

    after: PageCursor | None = None
    limit: Limit = 100


@operations.get(
    "/crawls/{crawl_id}/hosts",
    needs=Role.VIEWER,
    query=CrawlHostQuery,
    answer=Page[CrawlHostDocument],
    example=example_page(CRAWL_HOST_EXAMPLE),
)
async def hosts(call: Call) -> Page[CrawlHostDocument]:
    """List the hosts of a crawl by name: how much of each is done, who holds it, and until when it is left alone."""
    asked: CrawlHostQuery = call.query
    crawl_id, place = await crawl_of(call), decode_names(asked.after, 1)
    found = await call.app.crawls.hosts(crawl_id, after=place[0] if place else "", limit=asked.limit + 1)
    return Page.of(found, asked.limit, lambda host: (host.host,)).shown(host_document)


class SkipQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which skips to list."""

    reason: Annotated[str, msgspec.Meta(max_length=60)] | None = None
    traps: bool = False
    """Only what was taken for a trap."""
    limit: Limit = 100


@operations.get(
    "/crawls/{crawl_id}/skips",
    needs=Role.VIEWER,
    query=SkipQuery,
    answer=Page[SkipDocument],
    example=example_page(SKIP_EXAMPLE),
)
async def skips(call: Call) -> Page[SkipDocument]:
    """List what was left out, by reason, host and pattern, the most first."""
    asked: SkipQuery = call.query
    found = await call.app.crawls.skips(await crawl_of(call), reason=asked.reason, traps=asked.traps, limit=asked.limit)
    return Page(items=[skip_document(each) for each in found])


class UrlExplanationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """About which address."""

    url: Annotated[str, msgspec.Meta(max_length=2_048)] = ""


@operations.get(
    "/crawls/{crawl_id}/why",
    needs=Role.VIEWER,
    query=UrlExplanationQuery,
    answer=UrlExplanationDocument,
    example=URL_EXPLANATION_EXAMPLE,
)
async def why(call: Call) -> UrlExplanationDocument:
    """Tell in one sentence why an address is not crawled, or that it is."""
    return explanation_document(await call.app.crawls.why(await crawl_of(call), call.query.url))


async def _crawl_shown(call: Call, crawl: Crawl) -> CrawlDocument:
    return crawl_document(crawl, await call.app.crawls.counts(crawl.id))


url_operations = Operations("crawl_urls")

MOST_URLS_AT_ONCE = 10_000
LARGEST_URL_BATCH = 16 << 20

CrawlUrl = Annotated[str, msgspec.Meta(min_length=1, max_length=8_192)]


class CrawlUrlQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which addresses to list."""

    state: Literal["queued", "leased", "done", "failed", "skipped"] | None = None
    host: Annotated[str, msgspec.Meta(max_length=300)] | None = None
    after: PageCursor | None = None
    limit: Limit = 100


@url_operations.get(
    "/crawls/{crawl_id}/urls",
    name="list",
    needs=Role.VIEWER,
    query=CrawlUrlQuery,
    answer=Page[CrawlUrlDocument],
    example=example_page(CRAWL_URL_EXAMPLE),
)
async def list_urls(call: Call) -> Page[CrawlUrlDocument]:
    """List the addresses that a crawl knows, of one state and one host where told, in no order that means anything."""
    asked: CrawlUrlQuery = call.query
    wanted: dict[str, Any] = {"state": asked.state or "", "host": asked.host or "", "after": _url_key(asked.after)}
    found = await call.app.crawls.urls(await crawl_of(call), **wanted, limit=asked.limit + 1)
    items = [url_document(each) for each in found[: asked.limit]]
    return Page(items=items, next=encode_cursor((items[-1].key,)) if len(found) > asked.limit else None)


def _url_key(after: str | None) -> int | None:
    place = decode_names(after, 1)
    if place is None:
        return None
    try:
        key = int(place[0])
    except ValueError:
        key = 2**64
    if not -(2**63) <= key < 2**63:
        raise Invalid("after", after, "it must be the next of an earlier page")
    return key


class CrawlUrlsInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses for a crawl."""

    urls: Annotated[list[CrawlUrl], msgspec.Meta(min_length=1, max_length=MOST_URLS_AT_ONCE)]


class FeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of addresses that were given."""

    given: int
    new: int
    """That the crawl did not know."""


@url_operations.post(
    "/crawls/{crawl_id}/urls",
    name="feed",
    needs=Role.OPERATOR,
    body=CrawlUrlsInput,
    answer=FeedResult,
    status=202,
    largest_body=LARGEST_URL_BATCH,
    audited=False,
    example={"given": 2, "new": 1},
    example_body={"urls": ["https://shop.example/a", "https://shop.example/b"]},
)
async def feed_urls(call: Call) -> FeedResult:
    """Give a crawl up to 10,000 addresses; those that it knows do no harm, and one that is done goes on."""
    crawl_id, body = await crawl_of(call), call.body
    return FeedResult(given=len(body.urls), new=await call.app.crawls.feed(crawl_id, body.urls))


class RequeueInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is put back in line."""

    state: Literal["failed", "skipped"] = "failed"


class RequeueResult(msgspec.Struct, frozen=True, kw_only=True):
    """How much was put back in line."""

    count: int


@url_operations.post(
    "/crawls/{crawl_id}/requeue",
    name="requeue",
    needs=Role.OPERATOR,
    body=RequeueInput,
    answer=RequeueResult,
    status=202,
    example={"count": 12},
    example_body={"state": "failed"},
)
async def requeue_urls(call: Call) -> RequeueResult:
    """Put every address that failed, or was skipped, back in line; a crawl that is done goes on with them."""
    return RequeueResult(count=await call.app.crawls.requeue(await crawl_of(call), call.body.state))


file_operations = Operations("crawl_files")

WARC_MEDIA_TYPE, CDXJ_MEDIA_TYPE = "application/warc", "text/plain; charset=utf-8"


@file_operations.get(
    "/crawls/{crawl_id}/warcs",
    name="list",
    needs=Role.VIEWER,
    answer=Page[WarcFileDocument],
    example=example_page({"name": "weft-7-00000.warc.gz", "has_index": True, "size": 256_014_336}),
)
async def list_files(call: Call) -> Page[WarcFileDocument]:
    """List the files of raw exchanges that are kept of a crawl."""
    found = await call.app.crawls.files.all(await crawl_of(call))
    return Page(items=[WarcFileDocument(name=each.name, has_index=each.has_index, size=each.size) for each in found])


@file_operations.get(
    "/crawls/{crawl_id}/warcs/{name}",
    name="show",
    needs=Role.VIEWER,
    answer=Any,
    media_type=WARC_MEDIA_TYPE,
    example="WARC/1.1 …",
)
async def show_file(call: Call) -> Response:
    """Give one of these files, as it is kept."""
    crawl_id, name = await crawl_of(call), call.path("name")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    parts = call.app.crawls.files.parts(crawl_id, name)
    first = await anext(parts, b"")  # a file that is not there is told before the answer begins
    return StreamingResponse(_all_pieces(first, parts), headers=headers, media_type=WARC_MEDIA_TYPE)


class CdxjQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of what the index is."""

    joined_as: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """One file of this name, which has all files one behind the other, in the order of their list; empty: those."""


@file_operations.get(
    "/crawls/{crawl_id}/cdxj",
    name="cdxj",
    needs=Role.VIEWER,
    query=CdxjQuery,
    answer=Any,
    media_type=CDXJ_MEDIA_TYPE,
    example=CDXJ_EXAMPLE,
)
async def cdxj(call: Call) -> Response:
    """Give the index of all files of raw exchanges: one line for each, sorted, as CDXJ."""
    crawl_id = await crawl_of(call)
    headers = {"Content-Disposition": f'attachment; filename="crawl-{crawl_id}.cdxj"'}
    parts = call.app.crawls.files.index(crawl_id, call.query.joined_as)
    return StreamingResponse(_all_pieces(await anext(parts, b""), parts), headers=headers, media_type=CDXJ_MEDIA_TYPE)


async def _all_pieces(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part
