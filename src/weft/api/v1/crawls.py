"""Crawls of whole sites: begin, look, pause, let go on, stop, and ask why."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api import crawl_examples as examples
from weft.api.call import Call
from weft.api.crawls_asked import crawl_of
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, names, page
from weft.crawl_spec import CrawlSpec
from weft.crawls.model import Crawl
from weft.documents.crawls import (
    BeatDocument,
    CrawlDocument,
    HostDocument,
    ReportDocument,
    SkipDocument,
    WhyDocument,
    beat_document,
    crawl_document,
    host_document,
    report_document,
    skip_document,
    why_document,
)
from weft.tasks.model import check_label, check_name

operations = Operations("crawls")

LARGEST_BODY = 16 << 20

State = Literal["active", "paused", "done", "stopped"]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which crawls to list."""

    project: str | None = None
    state: State | None = None
    name: str | None = None
    run_id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    """The first run that did a share of it."""
    after: After | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many at most.")] = 20


@operations.get(
    "/crawls", needs=Role.VIEWER, query=Filter, answer=Page[CrawlDocument], example=examples.page(examples.CRAWL)
)
async def list_(call: Call) -> Page[CrawlDocument]:
    """List crawls, newest first, with what each knows of its addresses."""
    asked: Filter = call.query
    projects = call.visible(asked.project)
    wanted: dict[str, Any] = {
        "state": asked.state,
        "name": asked.name,
        "run_id": asked.run_id,
        "before": page(asked.after),
        "limit": asked.limit + 1,
    }
    found = Page.of(await call.app.crawls.all(projects, **wanted), asked.limit, lambda crawl: crawl.id)
    counts = await asyncio.gather(*(call.app.crawls.counting.of(crawl) for crawl in found.items))
    pairs = zip(found.items, counts, strict=True)
    return Page(items=[crawl_document(crawl, count) for crawl, count in pairs], next=found.next)


class CrawlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crawl to begin."""

    spec: CrawlSpec
    project: str = "default"
    name: str = ""
    """What lists call it; the host where it begins unless told."""
    labels: tuple[str, ...] = ()
    """Labels that workers must have to do a share of it."""
    paused: bool = False
    """Begin it at rest: it can be given addresses before it goes on."""


@operations.post(
    "/crawls",
    needs=Role.DEVELOPER,
    body=CrawlBody,
    answer=CrawlDocument,
    status=202,
    largest_body=LARGEST_BODY,
    example=examples.CRAWL,
    example_body={"spec": examples.SPEC, "project": "shop"},
)
async def create(call: Call) -> CrawlDocument:
    """Begin a crawl; runs that do a share of it are queued as workers are there."""
    body: CrawlBody = call.body
    check_name("project", body.project)
    call.check(body.project)
    for label in body.labels:
        check_label("label", label)
    told: dict[str, Any] = {"name": body.name, "labels": body.labels, "by": call.caller.actor, "paused": body.paused}
    crawl = await call.app.crawls.create(body.project, body.spec, **told)
    call.headers["Location"] = f"/v1/crawls/{crawl.id}"
    return crawl_document(crawl)


@operations.get("/crawls/{crawl_id}", needs=Role.VIEWER, answer=ReportDocument, example=examples.REPORT)
async def show(call: Call) -> ReportDocument:
    """Show a crawl: how far it is and how fast, who does it, what was left out and why."""
    return report_document(await call.app.crawls.report(await crawl_of(call)))


@operations.get(
    "/crawls/{crawl_id}/pace",
    needs=Role.VIEWER,
    answer=Page[BeatDocument],
    example=examples.page({"at": "2026-12-01T02:00:00.000Z", "pages_per_second": 12.5}),
)
async def pace(call: Call) -> Page[BeatDocument]:
    """Tell how fast a crawl was from its begin until now, in sixty parts at most."""
    return Page(items=[beat_document(each) for each in await call.app.crawls.pace(await crawl_of(call))])


@operations.post(
    "/crawls/{crawl_id}/pause", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=examples.CRAWL
)
async def pause(call: Call) -> CrawlDocument:
    """Let a crawl rest: its runs give back what they hold and end; nothing is lost."""
    return await _shown(call, await call.app.crawls.pause(await crawl_of(call), f"paused by {call.caller.name}"))


@operations.post(
    "/crawls/{crawl_id}/resume", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=examples.CRAWL
)
async def resume(call: Call) -> CrawlDocument:
    """Let a crawl that is paused or stopped go on where it was."""
    return await _shown(call, await call.app.crawls.resume(await crawl_of(call), call.caller.actor))


@operations.post(
    "/crawls/{crawl_id}/stop", needs=Role.OPERATOR, answer=CrawlDocument, status=202, example=examples.CRAWL
)
async def stop(call: Call) -> CrawlDocument:
    """End a crawl, whatever is left; what it has found stays."""
    return await _shown(call, await call.app.crawls.stop(await crawl_of(call), f"stopped by {call.caller.name}"))


@operations.delete("/crawls/{crawl_id}", needs=Role.DEVELOPER, status=204)
async def delete(call: Call) -> None:
    """Forget a crawl that is over, with its addresses and raw files; its items stay in their dataset."""
    await call.app.crawls.delete(await crawl_of(call))


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """Which hosts to list."""

    after: After | None = None
    limit: Limit = 100


@operations.get(
    "/crawls/{crawl_id}/hosts",
    needs=Role.VIEWER,
    query=Hosts,
    answer=Page[HostDocument],
    example=examples.page(examples.HOST),
)
async def hosts(call: Call) -> Page[HostDocument]:
    """List the hosts of a crawl by name: how much of each is done, who holds it, and until when it is left alone."""
    asked: Hosts = call.query
    crawl_id, place = await crawl_of(call), names(asked.after, 1)
    found = await call.app.crawls.hosts(crawl_id, after=place[0] if place else "", limit=asked.limit + 1)
    return Page.of(found, asked.limit, lambda host: (host.host,)).shown(host_document)


class Skips(msgspec.Struct, frozen=True, kw_only=True):
    """Which skips to list."""

    reason: Annotated[str, msgspec.Meta(max_length=60)] | None = None
    traps: bool = False
    """Only what was taken for a trap."""
    limit: Limit = 100


@operations.get(
    "/crawls/{crawl_id}/skips",
    needs=Role.VIEWER,
    query=Skips,
    answer=Page[SkipDocument],
    example=examples.page(examples.SKIP),
)
async def skips(call: Call) -> Page[SkipDocument]:
    """List what was left out, by reason, host and pattern, the most first."""
    asked: Skips = call.query
    found = await call.app.crawls.skips(await crawl_of(call), reason=asked.reason, traps=asked.traps, limit=asked.limit)
    return Page(items=[skip_document(each) for each in found])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """About which address."""

    url: Annotated[str, msgspec.Meta(max_length=2_048)] = ""


@operations.get("/crawls/{crawl_id}/why", needs=Role.VIEWER, query=Asked, answer=WhyDocument, example=examples.WHY)
async def why(call: Call) -> WhyDocument:
    """Tell in one sentence why an address is not crawled, or that it is."""
    return why_document(await call.app.crawls.why(await crawl_of(call), call.query.url))


async def _shown(call: Call, crawl: Crawl) -> CrawlDocument:
    return crawl_document(crawl, await call.app.crawls.counts(crawl.id))
