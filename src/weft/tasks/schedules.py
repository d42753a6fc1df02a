"""The front door to schedules: what fires when, and what came of it. They are kept and changed with their tasks."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from weft.clock import SECOND, Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import NotFound
from weft.tasks import calendar, list_store, store
from weft.tasks.calendar import (
    LOOK_BACK,
    CalendarRow,
    DaySpan,
    FireTime,
    MissedTicks,
    fire_times,
    missed_ticks,
    past_ticks,
)
from weft.tasks.list_store import TaskCursor, TaskFilter, UpcomingCursor, UpcomingQuery
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule, next_fires
from weft.tasks.store import StoredTask
from weft.tasks.tasks import Tasks
from weft.tasks.timezones import wall_clock

NEWEST_TICKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTask:
    """A task that has a schedule."""

    stored: StoredTask
    schedule: Schedule
    ahead: Sequence[Moment]
    """Its next ten times; none while it is paused."""
    ticks: Sequence[Any] = ()
    """What came of its newest ticks, as far as they were asked for, the newest first."""
    times: Sequence[FireTime] = ()
    """The times that lie ahead on a clock of its zone, where they were asked for."""
    gaps: Sequence[MissedTicks] = ()
    """What never fired of its newest ticks, as far as that was asked for, the newest first."""


class Schedules:
    """The schedule of every task that has one."""

    def __init__(self, db: Database, tasks: Tasks, clock: Clock) -> None:
        self._db, self._tasks, self._clock = db, tasks, clock

    async def by_name(self, wanted: TaskFilter) -> tuple[list[ScheduledTask], TaskCursor | None]:
        """Schedules by project and task, each with its last tick, and the place to go on from."""

        def work(tx: Transaction) -> tuple[list[ScheduledTask], TaskCursor | None]:
            found, onward = list_store.schedules_by_name(tx, wanted)
            return self._with_last(tx, found), onward

        return await self._db.read(work)

    async def by_time(self, wanted: UpcomingQuery) -> tuple[list[ScheduledTask], UpcomingCursor | None]:
        """Schedules by what fires next, each with its last tick, and the turn to go on from; a page may be short."""

        def work(tx: Transaction) -> tuple[list[ScheduledTask], UpcomingCursor | None]:
            found, onward = list_store.schedules_by_time(tx, wanted)
            return self._with_last(tx, found), onward

        return await self._db.read(work)

    async def get(self, project: str, name: str) -> ScheduledTask:
        """The schedule of a task, with its newest ticks."""
        return await self._shown(await self._tasks.get(project, name))

    async def set(
        self,
        project: str,
        name: str,
        schedule: Schedule,
        *,
        paused: bool | None = None,
        seen: Container[int] | None = None,
    ) -> ScheduledTask:
        """Give a task this schedule, if its revision is in ``seen``; without ``paused`` it stays as paused as it is."""

        def edited(task: Task) -> Task:
            paused_too = task.paused if paused is None else paused
            return msgspec.structs.replace(task, schedule=schedule, paused=paused_too)

        return await self._shown(await self._tasks.edit(project, name, edited, seen=seen))

    async def remove(self, project: str, name: str, *, seen: Container[int] | None = None) -> None:
        """Take the schedule from a task, if its revision is in ``seen``; the task stays."""
        await self._tasks.edit(project, name, _only_scheduled(schedule=None), seen=seen)

    async def pause(self, project: str, name: str, *, paused: bool = True) -> ScheduledTask:
        """Pause a task that has a schedule, or let it go on from now."""
        return await self._shown(await self._tasks.edit(project, name, _only_scheduled(paused=paused)))

    def preview(self, schedule: Schedule) -> list[FireTime]:
        """The next ten times of a schedule that no task has yet."""
        now = self._clock()
        return fire_times(next_fires(schedule, now), schedule.zone, now)

    def today(self, zone: str) -> str:
        """The date that a calendar in ``zone`` shows."""
        return wall_clock(zone, self._clock() // SECOND).date().isoformat()

    async def calendar(
        self, wanted: TaskFilter, days: Sequence[DaySpan]
    ) -> tuple[list[CalendarRow], TaskCursor | None]:
        """What fires on these days, schedule by schedule, and the place to go on from."""
        return await self._db.read(lambda tx: self._calendar(tx, wanted, days))

    def _calendar(
        self, tx: Transaction, wanted: TaskFilter, days: Sequence[DaySpan]
    ) -> tuple[list[CalendarRow], TaskCursor | None]:
        found, onward = list_store.schedules_by_name(tx, wanted)
        scheduled = [(each, _schedule_of(each.task)) for each in found]
        rare = [stored.id for stored, schedule in scheduled if not calendar.is_frequent(schedule, days)]
        now = self._clock()
        past = list_store.ticks_between(tx, rare, days[0].start, min(days[-1].end, now + 1))
        lines = [calendar.calendar_row(stored, each, days, now, past.get(stored.id)) for stored, each in scheduled]
        return lines, onward

    async def _shown(self, stored: StoredTask) -> ScheduledTask:
        def work(tx: Transaction) -> tuple[Sequence[Any], list[MissedTicks]]:
            return store.newest_ticks(tx, stored.id, NEWEST_TICKS), self._gaps(tx, stored)

        ticks, missed = await self._db.read(work)
        scheduled = self._scheduled(stored, ticks)
        times = fire_times(scheduled.ahead, scheduled.schedule.zone, self._clock())
        return replace(scheduled, times=times, gaps=missed)

    def _gaps(self, tx: Transaction, stored: StoredTask) -> list[MissedTicks]:
        """What never fired lately; before the task was last changed it may have had another schedule."""
        schedule, now = stored.task.schedule, self._clock()
        if schedule is None or stored.task.paused:
            return []
        end = now if stored.next_fire_at is None else min(stored.next_fire_at, now)
        expected = past_ticks(schedule, max(stored.updated_at + 1, now - LOOK_BACK), end)
        known = store.known_ticks(tx, [(stored.id, at) for at in expected])
        return missed_ticks(expected, {at for _, at in known})

    def _with_last(self, tx: Transaction, found: Sequence[StoredTask]) -> list[ScheduledTask]:
        last = list_store.last_ticks(tx, [each.id for each in found])
        return [self._scheduled(each, [last[each.id]] if each.id in last else []) for each in found]

    def _scheduled(self, stored: StoredTask, ticks: Sequence[Any]) -> ScheduledTask:
        schedule = _schedule_of(stored.task)
        return ScheduledTask(stored=stored, schedule=schedule, ahead=stored.ahead(self._clock()), ticks=ticks)


def _only_scheduled(**fields: Any) -> Callable[[Task], Task]:
    """Changes fields of a task that has a schedule, and refuses one that has none."""

    def edited(task: Task) -> Task:
        _schedule_of(task)
        return msgspec.structs.replace(task, **fields)

    return edited


def _schedule_of(task: Task) -> Schedule:
    if task.schedule is None:
        raise NotFound("schedule of task", task.full_name)
    return task.schedule
