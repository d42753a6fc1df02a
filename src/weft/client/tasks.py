"""Tasks of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.client.connection import Connection
from weft.client.schedules import if_match, schedule_body
from weft.client.values import at, change_of, stored_of
from weft.clock import Moment, iso
from weft.operations.paging import Page, encode_cursor
from weft.operations.tasks import TaskChangeDocument, TaskDocument, TickDocument
from weft.runs.model import NewRun, Submitted, Trigger
from weft.tasks.changes import DesiredState, TaskChange
from weft.tasks.model import Task
from weft.tasks.store import StoredTask

MOST_A_PAGE = 500


class Applied(msgspec.Struct, frozen=True):
    changes: list[TaskChangeDocument]


class Backfilled(msgspec.Struct, frozen=True):
    run_ids: list[int]


@dataclass(frozen=True, slots=True)
class Tick:
    """What came of one tick of a schedule."""

    fire_at: Moment | None
    outcome: str
    run_id: int | None
    at: Moment | None


class RemoteTasks:
    """What ``tasks.Tasks`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, project: str | None = None) -> list[StoredTask]:
        found: list[StoredTask] = []
        after = None
        while True:
            kind = Page[TaskDocument]
            page = await self._connection.get(kind, "tasks", project=project, after=after, limit=MOST_A_PAGE)
            found += [stored_of(each) for each in page.items]
            after = page.next
            if after is None:
                return found

    async def get(self, project: str, name: str) -> StoredTask:
        return stored_of(await self._connection.get(TaskDocument, "tasks", project, name))

    async def ticks(self, stored: StoredTask, limit: int = 20, *, before: Moment | None = None) -> list[Tick]:
        """What came of the newest ticks of a task's schedule."""
        path, after = ("tasks", stored.task.project, stored.task.name, "ticks"), before and encode_cursor(before)
        page = await self._connection.get(Page[TickDocument], *path, limit=limit, after=after)
        return [Tick(at(each.fire_at), each.outcome, each.run_id, at(each.at)) for each in page.items]

    async def rehearse(self, wanted: DesiredState, *, prune: bool = False) -> list[TaskChange]:
        """What ``apply`` would change, and nothing else."""
        return await self._apply(wanted, prune=prune, dry_run=True)

    async def apply(self, wanted: DesiredState, *, prune: bool = False) -> list[TaskChange]:
        """Make the tasks and projects as ``wanted`` says, all or nothing; return what changed."""
        return await self._apply(wanted, prune=prune, dry_run=False)

    async def _apply(self, wanted: DesiredState, *, prune: bool, dry_run: bool) -> list[TaskChange]:
        body = {"tasks": [_body(task) for task in wanted.tasks], "projects": wanted.projects}
        applied = await self._connection.post(Applied, "tasks", "apply", body=body, prune=prune, dry_run=dry_run)
        if not dry_run:
            self._connection.forget("tasks")
        return [change_of(each) for each in applied.changes]

    async def wanted(self, project: str | None = None) -> DesiredState:
        """All tasks, or those of a project, as ``apply`` takes them."""
        return DesiredState(tuple(stored.task for stored in await self.all(project)))

    async def pause(self, project: str, name: str, *, paused: bool = True) -> StoredTask:
        verb = "pause" if paused else "resume"
        return stored_of(await self._connection.post(TaskDocument, "tasks", project, name, verb))

    async def put(self, task: Task, *, seen: Collection[int] | None = None, new: bool = False) -> StoredTask:
        """Make or replace a task, if its revision is in ``seen``, or that which this client has read if none is given.

        One that is to be ``new`` must not be there.
        """
        path, headers = ("tasks", task.project, task.name), if_match(seen)
        if new:
            self._connection.forget(*path)
            headers |= {"If-None-Match": "*"}
        body = {name: value for name, value in _body(task).items() if name not in ("project", "name")}
        return stored_of(await self._connection.call("PUT", path, TaskDocument, body=body, headers=headers))

    async def delete(self, project: str, name: str, *, seen: Collection[int] | None = None) -> None:
        """Delete a task, if its revision is in ``seen``, or that which this client has read if none is given."""
        await self._connection.call("DELETE", ("tasks", project, name), None, headers=if_match(seen))

    def loose(self, task: Task, **fields: Any) -> NewRun:
        """A run that belongs to no stored task; the gateway checks it when it is submitted."""
        return msgspec.structs.replace(task.new_run(0, Trigger.MANUAL, **fields), task_id=None)

    async def start(self, project: str, name: str, params: Mapping[str, Any] | None = None, **fields: Any) -> Submitted:
        """Queue a run of the task now; ``fields`` may hold priority, idempotency_key, correlation_id, not_before."""
        key = fields.pop("idempotency_key", None)
        if fields.get("not_before") is not None:
            fields["not_before"] = iso(fields["not_before"])
        told = {field: value for field, value in fields.items() if value is not None and field != "trigger"}
        submitted: Submitted = await self._connection.call(
            "POST",
            ("tasks", project, name, "start"),
            Submitted,
            body={"params": dict(params or {})} | told,
            headers={} if key is None else {"Idempotency-Key": key},
        )
        return submitted

    async def backfill(self, project: str, name: str, start: Moment, end: Moment) -> list[int]:
        body = {"from": iso(start), "to": iso(end)}
        found = await self._connection.post(Backfilled, "tasks", project, name, "backfill", body=body)
        run_ids: list[int] = found.run_ids
        return run_ids


def _body(task: Task) -> dict[str, Any]:
    """The task as a file has it: moments as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(task)
    return fields | ({} if task.schedule is None else {"schedule": schedule_body(task.schedule)})
