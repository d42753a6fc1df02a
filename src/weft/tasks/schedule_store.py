"""The SQL of looking at schedules, a page at a time, by name or by what fires next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.tasks import list_store
from weft.tasks.list_store import Listing, conditions
from weft.tasks.store import Stored, parts, stored_of

tasks, schedules, ticks = schema.tasks, schema.schedules, schema.ticks

NEVER: Moment = 2**63 - 1
"""Where a schedule stands that waits for no tick: behind all others."""

AT_ONCE = 1000
"""How many schedules are looked at in one statement where only some are wanted."""

MOST_LOOKS = 5
"""How often a page by time looks further, however few it has found."""

Turn = tuple[Moment, int]
"""The next tick of a schedule, or NEVER, and the id of its task: what schedules are ordered by in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """Which schedules to list by what fires next, and from where on."""

    projects: Collection[str] | None = None
    """None for all."""
    name: str | None = None
    paused: bool | None = None
    after: Turn | None = None
    limit: int = 50


def by_name(tx: Transaction, wanted: Listing) -> tuple[list[Stored], list_store.Place | None]:
    """The next tasks by project and name that have a schedule, and the place to go on from where there are more."""
    return list_store.page(tx, wanted, scheduled=True)


def by_time(tx: Transaction, wanted: Agenda) -> tuple[list[Stored], Turn | None]:
    """The next tasks by the tick that their schedules wait for, and the turn to go on from where there may be more.

    Those that wait for none come last, by the age of their tasks.
    """
    found: list[Stored] = []
    after: Turn | None = wanted.after or (0, 0)
    if wanted.paused:  # what is paused waits for no tick
        after = max(after or (0, 0), (NEVER, 0))
    for _ in range(MOST_LOOKS):
        if after is None or after[0] == NEVER or len(found) == wanted.limit:
            break
        after = _waiting(tx, wanted, after, found)
    if after is not None and after[0] < NEVER:
        return found, after
    return found, _resting(tx, wanted, after or (NEVER, 0), found)


def _waiting(tx: Transaction, wanted: Agenda, after: Turn, found: list[Stored]) -> Turn | None:
    """Add those of the next schedules that are wanted, as far as the page has room; return where to go on, if any
    schedule that waits for a tick is left."""
    room = wanted.limit - len(found)
    some = room + 1 if wanted.projects is None and wanted.name is None else AT_ONCE
    fire, task_id = schedules.c.next_fire_at, schedules.c.task_id
    beyond = and_(fire >= after[0], or_(fire > after[0], task_id > after[1]))
    seen = select(task_id, fire, schedules.c.missed).where(beyond, *_named(wanted)).order_by(fire, task_id).limit(some)
    part = seen.subquery()
    rows = tx.rows(_wanted(wanted, part).order_by(part.c.next_fire_at, part.c.task_id).limit(room + 1))
    found += [stored_of(row) for row in rows[:room]]
    if len(rows) > room:
        return rows[room - 1].next_fire_at, rows[room - 1].id
    last = tx.rows(seen.offset(some - 1).limit(1))
    return (last[0].next_fire_at, last[0].task_id) if last else None


def _resting(tx: Transaction, wanted: Agenda, after: Turn, found: list[Stored]) -> Turn | None:
    """Add those that wait for no tick, as far as the page has room; return where to go on among them."""
    room = wanted.limit - len(found)
    none = and_(schedules.c.next_fire_at.is_(None), schedules.c.task_id > after[1])
    rows = tx.rows(
        _wanted(wanted, schedules).where(none, *_named(wanted)).order_by(schedules.c.task_id).limit(room + 1)
    )
    found += [stored_of(row) for row in rows[:room]]
    if len(rows) <= room:
        return None
    return (NEVER, rows[room - 1].id) if room else (NEVER, 0)


def _named(wanted: Agenda) -> list[ColumnElement[bool]]:
    """Tasks of one name are few, and sooner found by it than by looking at every schedule."""
    if wanted.name is None:
        return []
    return [schedules.c.task_id.in_(select(tasks.c.id).where(tasks.c.name == wanted.name))]


def _wanted(wanted: Agenda, part: Any) -> Select[Any]:
    asked = Listing(projects=wanted.projects, name=wanted.name, paused=wanted.paused)
    joined = select(tasks, part.c.next_fire_at, part.c.missed).join(part, part.c.task_id == tasks.c.id)
    return joined.where(*conditions(asked))


def last_ticks(tx: Transaction, task_ids: Sequence[int]) -> dict[int, Any]:
    """What came of the last tick of each task that has had one."""
    found: dict[int, Any] = {}
    for part in parts(task_ids):
        last = select(func.max(ticks.c.fire_at)).where(ticks.c.task_id == tasks.c.id).scalar_subquery()
        of_tasks = select(tasks.c.id, last.label("fire_at")).where(tasks.c.id.in_(part)).subquery()
        same: ColumnElement[bool] = and_(ticks.c.task_id == of_tasks.c.id, ticks.c.fire_at == of_tasks.c.fire_at)
        found |= {row.task_id: row for row in tx.rows(select(ticks).join(of_tasks, same))}
    return found
