"""Schedules of a weft elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.client.connection import Connection
from weft.clock import iso
from weft.operations.paging import Page
from weft.operations.schedules import ScheduledDocument
from weft.tasks.schedule import Schedule

MOST_A_PAGE = 500


class RemoteSchedules:
    """When the tasks of a weft elsewhere fire; each schedule as the gateway tells it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(
        self, project: str | None = None, *, task: str | None = None, paused: bool | None = None, sort: str = "name"
    ) -> list[ScheduledDocument]:
        """Every schedule that is asked for, by ``name``, ``-name`` or ``next_fire_at``."""
        asked = {"project": project, "task": task, "paused": paused, "sort": sort, "limit": MOST_A_PAGE}
        found: list[ScheduledDocument] = []
        after = None
        while True:
            page = await self._connection.get(Page[ScheduledDocument], "schedules", **asked, after=after)
            found += page.items
            after = page.next
            if after is None:
                return found

    async def get(self, project: str, task: str) -> ScheduledDocument:
        """The schedule of a task, with its newest ticks."""
        return await self._call("GET", project, task)

    async def set(
        self,
        project: str,
        task: str,
        schedule: Schedule | str,
        *,
        paused: bool | None = None,
        revision: int | None = None,
    ) -> ScheduledDocument:
        """Give a task this schedule, if it is still at ``revision``; without ``paused`` it stays as paused as it is."""
        told = {} if paused is None else {"paused": paused}
        body = {"schedule": schedule if isinstance(schedule, str) else schedule_body(schedule)} | told
        return await self._call("PUT", project, task, body=body, headers=_if_match(revision))

    async def remove(self, project: str, task: str, *, revision: int | None = None) -> None:
        """Take the schedule from a task, if it is still at ``revision``; the task stays."""
        await self._connection.call("DELETE", ("schedules", project, task), None, headers=_if_match(revision))

    async def pause(self, project: str, task: str, *, paused: bool = True) -> ScheduledDocument:
        return await self._call("POST", project, task, "pause" if paused else "resume")

    async def _call(self, method: str, *path: str, **sent: Any) -> ScheduledDocument:
        told: ScheduledDocument = await self._connection.call(method, ("schedules", *path), ScheduledDocument, **sent)
        return told


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    """The schedule as a request has it: moments as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    return fields | {name: iso(fields[name]) for name in ("once_at", "start_at") if fields.get(name)}


def _if_match(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": f'"{revision}"'}
