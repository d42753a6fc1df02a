"""The SQL of looking at tasks, a page at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select

from weft.db import schema
from weft.db.database import Transaction
from weft.tasks.store import Stored, stored_of

tasks, schedules = schema.tasks, schema.schedules

Place = tuple[str, str]
"""Project and name: what tasks are ordered by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which tasks to list, and from where on."""

    projects: Collection[str] | None = None
    """None for all."""
    kind: str | None = None
    tag: str | None = None
    name: str | None = None
    part: str | None = None
    """What must be in the name, in small letters or capitals."""
    paused: bool | None = None
    backwards: bool = False
    after: Place | None = None
    limit: int = 50


def page(tx: Transaction, wanted: Listing, *, scheduled: bool = False) -> tuple[list[Stored], Place | None]:
    """The next tasks that are ``wanted``, and the place to go on from where there may be more; with ``scheduled`` only
    those that have a schedule.

    The database finds those whose definition has the tag as a text anywhere; those that have it as another text, such
    as a parameter, leave the page shorter.
    """
    columns = (tasks.c.project, tasks.c.name)
    query = (
        select(tasks, schedules.c.next_fire_at, schedules.c.missed)
        .join(schedules, schedules.c.task_id == tasks.c.id, isouter=not scheduled)
        .where(*conditions(wanted))
        .order_by(*(column.desc() if wanted.backwards else column for column in columns))
        .limit(wanted.limit + 1)
    )
    rows = tx.rows(query)
    found = [stored_of(row) for row in rows[: wanted.limit]]
    onward = (rows[wanted.limit - 1].project, rows[wanted.limit - 1].name) if len(rows) > wanted.limit else None
    return [each for each in found if wanted.tag is None or wanted.tag in each.task.tags], onward


def conditions(wanted: Listing) -> list[ColumnElement[bool]]:
    """What a row of ``tasks`` must meet to be listed."""
    met: list[ColumnElement[bool]] = []
    if wanted.projects is not None:
        met.append(tasks.c.project.in_(wanted.projects))
    if wanted.kind is not None:
        met.append(tasks.c.kind == wanted.kind)
    if wanted.name is not None:
        met.append(tasks.c.name == wanted.name)
    if wanted.part is not None:
        met.append(tasks.c.name.icontains(wanted.part, autoescape=True))
    if wanted.paused is not None:
        met.append(tasks.c.paused == wanted.paused)
    if wanted.tag is not None:
        met.append(tasks.c.definition.contains(f'"{wanted.tag}"', autoescape=True))
    if wanted.after is not None:
        met.append(_beyond(*wanted.after, backwards=wanted.backwards))
    return met


def _beyond(project: str, name: str, *, backwards: bool) -> ColumnElement[bool]:
    def further(column: Any, value: str) -> ColumnElement[bool]:
        compared: ColumnElement[bool] = column < value if backwards else column > value
        return compared

    return or_(further(tasks.c.project, project), and_(tasks.c.project == project, further(tasks.c.name, name)))
