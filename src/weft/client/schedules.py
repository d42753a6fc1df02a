"""Schedules of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Collection
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

    async def get(self, project: str, name: str) -> ScheduledDocument:
        """The schedule of a task, with its newest ticks."""
        return await self._call("GET", project, name)

    async def set(
        self,
        project: str,
        name: str,
        schedule: Schedule | str,
        *,
        paused: bool | None = None,
        seen: Collection[int] | None = None,
    ) -> ScheduledDocument:
        """Give a task this schedule, if its revision is in ``seen``; without ``paused`` it stays as paused as it is."""
        told = {} if paused is None else {"paused": paused}
        body = {"schedule": schedule if isinstance(schedule, str) else schedule_body(schedule)} | told
        return await self._call("PUT", project, name, body=body, headers=if_match(seen))

    async def remove(self, project: str, name: str, *, seen: Collection[int] | None = None) -> None:
        """Take the schedule from a task, if its revision is in ``seen``; the task stays."""
        await self._connection.call("DELETE", ("schedules", project, name), None, headers=if_match(seen))

    async def pause(self, project: str, name: str, *, paused: bool = True) -> ScheduledDocument:
        return await self._call("POST", project, name, "pause" if paused else "resume")

    async def _call(self, method: str, *path: str, **sent: Any) -> ScheduledDocument:
        told: ScheduledDocument = await self._connection.call(method, ("schedules", *path), ScheduledDocument, **sent)
        return told


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    """The schedule as a request has it: moments as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    return fields | {name: iso(fields[name]) for name in ("once_at", "start_at") if fields.get(name)}


def if_match(seen: Collection[int] | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": ", ".join(f'"{revision}"' for revision in seen)}
