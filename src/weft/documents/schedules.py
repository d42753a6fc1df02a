"""Schedules of tasks as JSON."""

from __future__ import annotations

import msgspec

from weft.clock import iso
from weft.documents.copying import Time, copied
from weft.documents.tasks import ScheduleDocument, TickDocument, tick_document
from weft.tasks.schedules import Scheduled
from weft.tasks.words import sentence


class ScheduledDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule of a task, what lies ahead and what came of it. One that is shown by itself has its newest ticks."""

    project: str
    task: str
    schedule: ScheduleDocument
    words: str
    """When it fires, as a sentence."""
    paused: bool
    next_fire_at: Time | None
    """The tick that it waits for; null while it is paused, and once it is over."""
    next: list[Time | None]
    """Its next ten times."""
    missed: int
    """How many ticks came too late to fire."""
    last_tick: TickDocument | None
    """The last tick that has fired or was dropped."""
    revision: int
    """That of the task."""
    updated_at: Time | None
    """When the task was changed last."""
    ticks: list[TickDocument] | msgspec.UnsetType = msgspec.UNSET


def scheduled_document(scheduled: Scheduled) -> ScheduledDocument:
    stored = scheduled.stored
    return ScheduledDocument(
        project=stored.task.project,
        task=stored.task.name,
        schedule=copied(ScheduleDocument, scheduled.schedule),
        words=sentence(scheduled.schedule),
        paused=stored.task.paused,
        next_fire_at=iso(stored.next_fire_at),
        next=[iso(at) for at in scheduled.ahead],
        missed=stored.missed,
        last_tick=tick_document(scheduled.ticks[0]) if scheduled.ticks else None,
        revision=stored.revision,
        updated_at=iso(stored.updated_at),
    )


def scheduled_page(scheduled: Scheduled) -> ScheduledDocument:
    """The schedule with its newest ticks."""
    ticks = [tick_document(each) for each in scheduled.ticks]
    return msgspec.structs.replace(scheduled_document(scheduled), ticks=ticks)
