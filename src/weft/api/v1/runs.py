"""Runs: what was done, is being done and waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page, page
from weft.documents import RunDocument, run_document
from weft.runs.model import RunState

operations = Operations("runs")

Limit = Annotated[int, msgspec.Meta(ge=1, le=500, description="How many at most.")]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list."""

    project: str | None = None
    task: str | None = None
    kind: str | None = None
    state: RunState | None = None
    trigger: str | None = None
    outcome: str | None = None
    correlation_id: str | None = None
    sort: Literal["-id", "id"] = "-id"
    after: str | None = None
    """The ``next`` of the page before."""
    limit: Limit = 50


EXAMPLE: dict[str, Any] = {}


@operations.get("/runs", needs=Role.VIEWER, query=Filter, answer=Page[RunDocument], example=EXAMPLE)
async def list_(call: Call) -> Page[RunDocument]:
    """List runs, newest first."""
    asked: Filter = call.query
    names = ("task", "kind", "state", "trigger", "outcome", "correlation_id")
    where = {name: value for name in names if (value := getattr(asked, name)) is not None}
    projects = call.visible(asked.project)
    found = await call.app.runs.find(
        where, projects=projects, before=page(asked.after), limit=asked.limit + 1, oldest_first=asked.sort == "id"
    )
    return Page.of([run_document(run) for run in found], asked.limit, lambda run: run.id)


@operations.get("/runs/{run_id}", needs=Role.VIEWER, answer=RunDocument, example=EXAMPLE)
async def show(call: Call) -> RunDocument:
    """Show one run, with every attempt of it that has ended."""
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    return run_document(run, await call.app.runs.attempts(run_id))


@operations.post("/runs/{run_id}/cancel", needs=Role.OPERATOR, answer=RunDocument, status=202, example=EXAMPLE)
async def cancel(call: Call) -> RunDocument:
    """Cancel a run: a waiting one at once, a running one by asking its worker to stop it."""
    run_id = call.number("run_id", "run")
    call.check((await call.app.runs.get(run_id)).project, f"run {run_id}")
    return run_document(await call.app.runs.cancel(run_id, f"cancelled by {call.caller.name}"))
