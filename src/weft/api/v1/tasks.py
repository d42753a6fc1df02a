"""Tasks: what to do and when."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.definitions import ApplyBody, TaskBody, check_changes, check_wanted, task_of, wanted_of
from weft.api.etags import ETAG, IF_MATCH
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, names, page
from weft.api.starts import StartBody, at
from weft.api.v1.runs import KEY, TRACE
from weft.clock import moment
from weft.documents.tasks import (
    ChangeDocument,
    TaskDocument,
    TickDocument,
    change_document,
    listed_task,
    task_document,
    task_page,
    tick_document,
)
from weft.runs.model import Submitted
from weft.tasks.list_store import Listing
from weft.tasks.model import check_label
from weft.tasks.starting import Start
from weft.tasks.store import Stored

operations = Operations("tasks")

ONE = "/tasks/{project}/{name}"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    project: str | None = None
    kind: str | None = None
    tag: str | None = None
    name: str | None = None
    """A part of the name; small letters and capitals are the same."""
    paused: bool | None = None
    last_run: bool = False
    """Tell what starts each task, in words, and how its newest run stands."""
    sort: Literal["name", "-name"] = "name"
    """By project and name, or backwards."""
    after: After | None = None
    limit: Limit = 50


@operations.get(
    "/tasks", needs=Role.VIEWER, query=Filter, answer=Page[TaskDocument], example=examples.page(examples.TASK)
)
async def list_(call: Call) -> Page[TaskDocument]:
    """List tasks by project and name.

    With a tag a page may have fewer than were asked for, also none; as long as it has a ``next``, there may be more.
    """
    asked: Filter = call.query
    place: Any = names(asked.after, 2)
    if asked.tag is not None:
        check_label("tag", asked.tag)
    wanted = Listing(
        projects=call.visible(asked.project),
        kind=asked.kind,
        tag=asked.tag,
        part=asked.name,
        paused=asked.paused,
        backwards=asked.sort == "-name",
        after=place,
        limit=asked.limit,
    )
    found, onward = await call.app.tasks.page(wanted)
    newest = await call.app.tasks.newest_runs(found) if asked.last_run else {}
    items = [listed_task(each, newest.get(each.id)) if asked.last_run else task_document(each) for each in found]
    return Page(items=items, next=None if onward is None else cursor(onward))


@operations.get(ONE, needs=Role.VIEWER, answer=TaskDocument, answer_headers=ETAG, example=examples.SHOWN_TASK)
async def show(call: Call) -> TaskDocument:
    """Show one task, what starts it in words, and its next ten times. Its ETag is its revision."""
    return _shown(call, await call.app.tasks.get(*_named(call)))


@operations.put(
    ONE,
    needs=Role.DEVELOPER,
    body=TaskBody,
    answer=TaskDocument,
    headers=IF_MATCH | {"If-None-Match": "With * the task is made only where there is none; the answer is 412 else."},
    answer_headers=ETAG,
    example=examples.SHOWN_TASK,
    example_body={"kind": "shell", "spec": {"argv": ["crawl", "prices"]}, "schedule": "30 2 * * *"},
)
async def put(call: Call) -> TaskDocument:
    """Make or replace a task.

    What only weft sets may be sent along and is not read, so that what was read can be sent back with a change.
    """
    project, name = _named(call)
    task = task_of(call.body, project, name)
    check_wanted(call, [task])
    stored, _ = await call.app.tasks.put(task, seen=call.seen, new=call.must_be_new)
    return _shown(call, stored)


@operations.delete(ONE, needs=Role.DEVELOPER, headers=IF_MATCH)
async def delete(call: Call) -> None:
    """Delete a task that no other comes after. Its runs stay."""
    await call.app.tasks.delete(*_named(call), seen=call.seen)


@operations.post(f"{ONE}/pause", needs=Role.OPERATOR, answer=TaskDocument, example=examples.SHOWN_TASK)
async def pause(call: Call) -> TaskDocument:
    """Stop a task's schedule, and what would follow from other tasks."""
    return _shown(call, await call.app.tasks.pause(*_named(call)))


@operations.post(f"{ONE}/resume", needs=Role.OPERATOR, answer=TaskDocument, example=examples.SHOWN_TASK)
async def resume(call: Call) -> TaskDocument:
    """Let a paused task go on from now."""
    return _shown(call, await call.app.tasks.pause(*_named(call), paused=False))


@operations.post(
    f"{ONE}/start",
    needs=Role.OPERATOR,
    body=StartBody,
    answer=Submitted,
    status=202,
    headers=KEY | TRACE,
    audited=False,
    example=examples.SUBMITTED,
    example_body={"params": {"country": "fr"}, "priority": 10},
)
async def start(call: Call) -> Submitted:
    """Queue a run of a task now, or not before a moment."""
    project, name = _named(call)
    body: StartBody = call.body
    asked = Start(
        project=project,
        task=name,
        params=body.params,
        priority=body.priority,
        not_before=at(body.not_before, "not_before"),
        correlation_id=body.correlation_id,
        traceparent=call.traceparent,
        idempotency_key=call.header("idempotency-key"),
        by=call.caller.actor,
    )
    [submitted] = await call.app.tasks.submit([asked])
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return submitted


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A past window of time."""

    start: Annotated[datetime, msgspec.Meta(tz=True)] = msgspec.field(name="from")
    end: Annotated[datetime, msgspec.Meta(tz=True)] = msgspec.field(name="to")
    """The moment after the last, not in the future."""


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were queued."""

    run_ids: list[int]


@operations.post(
    f"{ONE}/backfill",
    needs=Role.OPERATOR,
    body=Window,
    answer=Backfilled,
    status=202,
    example={"run_ids": [7, 8]},
    example_body={"from": "2026-11-01T00:00:00Z", "to": "2026-11-03T00:00:00Z"},
)
async def backfill(call: Call) -> Backfilled:
    """Queue a run for each tick of a past window that has not fired; doing it again adds nothing."""
    named, window = _named(call), call.body
    return Backfilled(run_ids=await call.app.tasks.backfill(*named, moment(window.start), moment(window.end)))


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """How many ticks to list."""

    after: After | None = None
    limit: Limit = 50


@operations.get(
    f"{ONE}/ticks", needs=Role.VIEWER, query=Newest, answer=Page[TickDocument], example=examples.page(examples.TICK)
)
async def ticks(call: Call) -> Page[TickDocument]:
    """List what came of the newest ticks of a task's schedule."""
    asked: Newest = call.query
    stored = await call.app.tasks.get(*_named(call))
    found = await call.app.tasks.ticks(stored, asked.limit + 1, before=page(asked.after))
    return Page.of(found, asked.limit, lambda tick: int(tick.fire_at)).shown(tick_document)


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How to apply."""

    dry_run: bool = False
    """Tell what would change, and change nothing."""
    prune: bool = False
    """Delete tasks of the same projects that are not named. Their runs stay."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What an apply has changed, or would change."""

    applied: bool
    changes: list[ChangeDocument]


@operations.post(
    "/tasks/apply",
    needs=Role.DEVELOPER,
    query=How,
    body=ApplyBody,
    answer=Applied,
    largest_body=16 << 20,
    example={"applied": True, "changes": [examples.CHANGE]},
    example_body={
        "tasks": [{"name": "prices", "project": "shop", "kind": "noop", "schedule": "@every 5m"}],
        "projects": {},
    },
)
async def apply(call: Call) -> Applied:
    """Make tasks and settings of projects as a file says, all or nothing. Settings that change need the role admin."""
    how: How = call.query
    wanted = wanted_of(call.body)
    check_wanted(call, wanted.tasks, wanted.projects)
    call.record = {"dry_run": True} if how.dry_run else None
    act = call.app.tasks.rehearse if how.dry_run else call.app.tasks.apply
    changes = await act(wanted, prune=how.prune, check=lambda changes: check_changes(call, changes))
    return Applied(applied=not how.dry_run, changes=[change_document(each) for each in changes])


def _named(call: Call) -> tuple[str, str]:
    """Project and name of the task that the address names, where the caller may do this."""
    project, name = call.path("project"), call.path("name")
    call.check(project, f"task {project}/{name}")
    return project, name


def _shown(call: Call, stored: Stored) -> TaskDocument:
    call.headers["ETag"] = f'"{stored.revision}"'
    return task_page(stored, call.app.tasks.ahead(stored))
