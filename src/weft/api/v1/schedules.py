"""Schedules: when tasks fire. Each belongs to a task and is changed as the task is."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.definitions import ScheduleBody, schedule_of
from weft.api.etags import ETAG, IF_MATCH
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, names, numbers
from weft.documents.schedules import ScheduledDocument, scheduled_document, scheduled_page
from weft.errors import Invalid
from weft.tasks.list_store import Listing
from weft.tasks.schedule_store import Agenda
from weft.tasks.schedules import Scheduled

operations = Operations("schedules")

ONE = "/schedules/{project}/{task}"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules to list."""

    project: str | None = None
    task: str | None = None
    paused: bool | None = None
    sort: Literal["name", "-name", "next_fire_at"] = "name"
    """By project and task, or backwards, or by what fires next; those that wait for no tick are last."""
    after: After | None = None
    limit: Limit = 50


@operations.get(
    "/schedules",
    needs=Role.VIEWER,
    query=Filter,
    answer=Page[ScheduledDocument],
    example=examples.page(examples.SCHEDULED),
)
async def list_(call: Call) -> Page[ScheduledDocument]:
    """List the schedules of tasks, by name or by what fires next, each with its next ten times and its last tick.

    By what fires next, a page may have fewer than were asked for, also none; as long as it has a ``next``, there may be
    more. A schedule that fires meanwhile moves on in this order and may be seen twice, by name it stays in its place.
    """
    found, onward = await _found(call, call.query)
    items = [scheduled_document(each) for each in found]
    return Page(items=items, next=None if onward is None else cursor(onward))


async def _found(call: Call, asked: Filter) -> tuple[list[Scheduled], Any]:
    chosen: dict[str, Any] = {
        "projects": call.visible(asked.project),
        "name": asked.task,
        "paused": asked.paused,
        "limit": asked.limit,
    }
    if asked.sort == "next_fire_at":
        turn: Any = numbers(asked.after, 2)
        return await call.app.schedules.by_time(Agenda(**chosen, after=turn))
    place: Any = names(asked.after, 2)
    return await call.app.schedules.by_name(Listing(**chosen, backwards=asked.sort == "-name", after=place))


@operations.get(ONE, needs=Role.VIEWER, answer=ScheduledDocument, answer_headers=ETAG, example=examples.SHOWN_SCHEDULED)
async def show(call: Call) -> ScheduledDocument:
    """Show the schedule of a task, its next ten times and its newest ticks. Its ETag is the task's."""
    return _shown(call, await call.app.schedules.get(*_named(call)))


class ScheduledBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The schedule that a task is to have."""

    schedule: str | ScheduleBody
    """A text such as @daily, or a table."""
    paused: bool | UnsetType = UNSET
    """Whether the task is paused; it stays as it is unless told."""
    project: str | UnsetType = UNSET
    """In an address it is named already."""
    task: str | UnsetType = UNSET
    words: Any = UNSET
    """Set by weft and not read, as all that follows."""
    next_fire_at: Any = UNSET
    next: Any = UNSET
    missed: Any = UNSET
    last_tick: Any = UNSET
    revision: Any = UNSET
    updated_at: Any = UNSET
    ticks: Any = UNSET
    times: Any = UNSET
    gaps: Any = UNSET


@operations.put(
    ONE,
    needs=Role.DEVELOPER,
    body=ScheduledBody,
    answer=ScheduledDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=examples.SHOWN_SCHEDULED,
    example_body={"schedule": {"when": "30 2 * * *", "zone": "Europe/Berlin"}},
)
async def put(call: Call) -> ScheduledDocument:
    """Give a task this schedule; it acts from now on.

    What only weft sets may be sent along and is not read, so that what was read can be sent back with a change.
    """
    project, task = _named(call)
    body: ScheduledBody = call.body
    for what, wanted, given in (("project", project, body.project), ("task", task, body.task)):
        if given not in (UNSET, wanted):
            raise Invalid(what, given, f"the address says {wanted!r}; leave it out")
    paused = None if body.paused is UNSET else body.paused
    wanted_schedule = schedule_of(body.schedule)
    return _shown(call, await call.app.schedules.set(project, task, wanted_schedule, paused=paused, seen=call.seen))


@operations.delete(ONE, needs=Role.DEVELOPER, headers=IF_MATCH)
async def delete(call: Call) -> None:
    """Take the schedule from a task. The task stays, and so do its runs and ticks."""
    await call.app.schedules.remove(*_named(call), seen=call.seen)


@operations.post(f"{ONE}/pause", needs=Role.OPERATOR, answer=ScheduledDocument, example=examples.SHOWN_SCHEDULED)
async def pause(call: Call) -> ScheduledDocument:
    """Pause a task that has a schedule, and what would follow from other tasks."""
    return _shown(call, await call.app.schedules.pause(*_named(call)))


@operations.post(f"{ONE}/resume", needs=Role.OPERATOR, answer=ScheduledDocument, example=examples.SHOWN_SCHEDULED)
async def resume(call: Call) -> ScheduledDocument:
    """Let a paused task that has a schedule go on from now."""
    return _shown(call, await call.app.schedules.pause(*_named(call), paused=False))


def _named(call: Call) -> tuple[str, str]:
    """Project and name of the task that the address names, where the caller may do this."""
    project, task = call.path("project"), call.path("task")
    call.check(project, f"task {project}/{task}")
    return project, task


def _shown(call: Call, scheduled: Scheduled) -> ScheduledDocument:
    call.headers["ETag"] = f'"{scheduled.stored.revision}"'
    return scheduled_page(scheduled)
