"""Standings: how projects and their spiders do, from what they did lately."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, names
from weft.documents.standings import HistoryDocument, StandingDocument, history_document, standing_document
from weft.errors import NotFound

operations = Operations("standings")

MOST_RUNS = 100
BAND = {"low": 70.0, "middle": 100.0, "high": 130.0}
SECONDS = {"low": 5.0, "middle": 12.0, "high": 30.0}
PAST: dict[str, Any] = {
    "run_id": 7,
    "task": "prices",
    "version": "1.10",
    "state": "succeeded",
    "outcome": "succeeded",
    "reason": None,
    "trigger": "schedule",
    "queued_at": "2026-12-01T02:00:00.000Z",
    "started_at": "2026-12-01T02:00:00.100Z",
    "finished_at": "2026-12-01T02:00:12.300Z",
    "seconds": 12.2,
    "items": 104,
    "pages": 110,
    "errors": 0,
    "drifted": False,
    "usual_items": BAND,
    "usual_seconds": SECONDS,
}
HISTORY: dict[str, Any] = {
    "project": "shop",
    "spider": "prices",
    "runs": [PAST],
    "tasks": ["prices"],
    "is_flaky": False,
    "last_good_run_id": 7,
    "usual_items": BAND,
    "usual_seconds": SECONDS,
    "fields": [{"name": "price", "shares": [0.99, 1.0]}],
    "earlier": [{"run_id": 7, "args": {"country": "de"}, "settings": {}}],
}
STANDING: dict[str, Any] = {
    "project": "shop",
    "version": "1.10",
    "spiders": 4,
    "deployed_at": "2026-06-01T12:00:00.000Z",
    "deployed_by": "key:ci",
    "queued": 2,
    "running": 1,
    "succeeded": 16,
    "failed": 1,
    "last_at": "2026-12-01T02:00:00.000Z",
}
BY_SPIDER: dict[str, Any] = {
    "spider": "prices",
    "runs": 40,
    "succeeded": 19,
    "failed": 1,
    "items": 4100,
    "pages": 4400,
    "errors": 3,
    "seconds": 12.4,
    "is_flaky": True,
    "last_run_id": 7,
    "last_state": "succeeded",
    "last_at": "2026-12-01T02:00:00.000Z",
}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Which projects."""

    after: After | None = None
    limit: Limit = 50


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Of which spider, and how far back."""

    spider: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_RUNS, description="How many runs at most.")] = MOST_RUNS


@operations.get(
    "/standings",
    needs=Role.VIEWER,
    query=Listed,
    answer=Page[StandingDocument],
    example={"items": [STANDING], "next": None},
)
async def list_(call: Call) -> Page[StandingDocument]:
    """List the projects by name: their code, what waits and runs, and how their last runs ended."""
    place = names(call.query.after, 1)
    known = sorted(await call.app.tasks.all_settings(call.visible()))
    left = known if place is None else [each for each in known if each > place[0]]
    chosen = left[: call.query.limit]
    found = await call.app.histories.of_projects(chosen)
    onward = cursor((chosen[-1],)) if len(left) > len(chosen) else None
    return Page(items=[standing_document(name, found[name]) for name in chosen], next=onward)


@operations.get(
    "/projects/{project}/standing",
    needs=Role.VIEWER,
    answer=StandingDocument,
    example=STANDING | {"by_spider": [BY_SPIDER]},
)
async def show(call: Call) -> StandingDocument:
    """Show how a project and each of its spiders did in its newest 500 runs."""
    project = call.path("project")
    call.check(project)
    if not await call.app.tasks.all_settings({project}):
        raise NotFound("project", project)
    by_spider = await call.app.histories.of_project(project)
    found = await call.app.histories.of_projects([project])
    return standing_document(project, found[project], by_spider)


@operations.get(
    "/projects/{project}/history",
    needs=Role.VIEWER,
    query=Asked,
    answer=HistoryDocument,
    example=HISTORY,
)
async def history(call: Call) -> HistoryDocument:
    """Show the last runs of a spider in figures, what is usual for it, and how well its fields are filled."""
    project, asked = call.path("project"), call.query
    call.check(project)
    found = await call.app.histories.of_spider(project, asked.spider, asked.limit)
    return history_document(project, asked.spider, found)
