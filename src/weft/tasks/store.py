"""The SQL of tasks, schedules, ticks and dependencies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec
from sqlalchemy import delete, func, insert, select, true, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing, skip_locked, update_many
from weft.db.database import Transaction
from weft.errors import WeftError
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.schedule import Schedule, next_fires

log = logging.getLogger(__name__)

tasks, schedules, ticks, dependencies = schema.tasks, schema.schedules, schema.ticks, schema.dependencies

sequences = schema.sequences

HIGHEST_GONE = "task_revisions"
"""The row of ``sequences`` with the highest revision that a deleted task has had."""

MOST_NAMED = 200
"""How many tasks of a project are looked up by their names."""

T = TypeVar("T")

_decode = msgspec.json.Decoder(Task).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A task with what the database adds to it."""

    id: int
    task: Task
    revision: int
    updated_at: Moment
    next_fire_at: Moment | None = None
    missed: int = 0

    def ahead(self, now: Moment, count: int = 10) -> list[Moment]:
        """The next times of its schedule; none while it is paused."""
        schedule = self.task.schedule
        return [] if schedule is None or self.task.paused else next_fires(schedule, now, count)


def every(tx: Transaction, project: str | None = None) -> list[Stored]:
    query = (
        select(tasks, schedules.c.next_fire_at, schedules.c.missed)
        .outerjoin(schedules, schedules.c.task_id == tasks.c.id)
        .order_by(tasks.c.project, tasks.c.name)
    )
    return [stored_of(row) for row in tx.rows(query if project is None else query.where(tasks.c.project == project))]


def project_names(tx: Transaction) -> set[str]:
    """Every project that has settings, a task or a run."""
    columns = (schema.projects.c.name, tasks.c.project, schema.lanes.c.project)
    return {row[0] for column in columns for row in tx.rows(select(column).distinct())}


def hold(tx: Transaction) -> None:
    """Let nobody else change tasks until this transaction ends; runs and ticks go on."""
    tx.rows(select(schema.schema_version.c.version).with_for_update())


def by_names(tx: Transaction, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], Stored]:
    """Tasks by project and name."""
    query = select(tasks, schedules.c.next_fire_at, schedules.c.missed).outerjoin(
        schedules, schedules.c.task_id == tasks.c.id
    )
    found: dict[tuple[str, str], Stored] = {}
    for project, group in groupby(sorted(set(names)), key=lambda name: name[0]):
        wanted = {name for _, name in group}
        # Very many are found sooner by reading the project whole than by naming each.
        named = tasks.c.name.in_(wanted) if len(wanted) <= MOST_NAMED else true()
        rows = tx.rows(query.where(tasks.c.project == project, named))
        found |= {(project, row.name): stored_of(row) for row in rows if row.name in wanted}
    return found


def by_ids(tx: Transaction, ids: Collection[int], *, lock: bool = False) -> dict[int, Stored]:
    """Tasks by id, without those that this weft does not understand."""
    found: dict[int, Stored] = {}
    for part in parts(sorted(ids)):
        query = select(tasks).where(tasks.c.id.in_(part)).order_by(tasks.c.id)
        for row in tx.rows(query.with_for_update() if lock else query):
            try:
                found[row.id] = stored_of(row)
            except (WeftError, msgspec.MsgspecError) as problem:  # one that is not understood must not stop the others
                log.error("task left alone", extra={"task": f"{row.project}/{row.name}", "why": str(problem)})
    return found


def parts(values: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    """``values`` in lists that one statement can name."""
    left = iter(values)
    while part := list(islice(left, size)):
        yield part


def stored_of(row: Any) -> Stored:
    return Stored(
        id=row.id,
        task=_decode(row.definition),
        revision=row.revision,
        updated_at=row.updated_at,
        next_fire_at=getattr(row, "next_fire_at", None),
        missed=getattr(row, "missed", None) or 0,
    )


def create(tx: Transaction, new: Sequence[Task], at: Moment) -> None:
    """Add tasks. One that was there before and was deleted begins above every revision that it has had."""
    first = int(tx.value(select(sequences.c.last).where(sequences.c.name == HIGHEST_GONE)) or 0) + 1
    rows = [_row(task, at) | {"revision": first, "created_at": at} for task in new]
    insert_many(tx, tasks, rows)


def change(tx: Transaction, task_id: int, task: Task, revision: int, at: Moment) -> None:
    """Replace the definition, which was at ``revision``."""
    tx.execute(update(tasks).where(tasks.c.id == task_id).values(_row(task, at) | {"revision": revision + 1}))


def remove(tx: Transaction, task_ids: Collection[int]) -> None:
    """Delete tasks and all that only they had; their runs stay."""
    for part in parts(task_ids):
        _keep_highest(tx, int(tx.value(select(func.max(tasks.c.revision)).where(tasks.c.id.in_(part))) or 0))
        tx.execute(delete(tasks).where(tasks.c.id.in_(part)))
        for table in (schedules, ticks, schema.arrivals, dependencies):
            tx.execute(delete(table).where(table.c.task_id.in_(part)))


def _keep_highest(tx: Transaction, revision: int) -> None:
    insert_missing(tx, sequences, {"name": HIGHEST_GONE, "last": 0})
    lower = (sequences.c.name == HIGHEST_GONE) & (sequences.c.last < revision)
    tx.execute(update(sequences).where(lower).values(last=revision))


def _row(task: Task, at: Moment) -> dict[str, Any]:
    return {
        "project": task.project,
        "name": task.name,
        "kind": task.kind,
        "definition": msgspec.json.encode(task).decode(),
        "paused": task.paused,
        "updated_at": at,
    }


def set_schedules(tx: Transaction, wanted: Sequence[tuple[int, Schedule, Moment | None]]) -> None:
    """Give tasks their schedule and its next tick; None for one that is paused or over."""
    known: set[int] = set()
    for part in parts(task_id for task_id, _, _ in wanted):
        known.update(row[0] for row in tx.rows(select(schedules.c.task_id).where(schedules.c.task_id.in_(part))))
    rows = [
        {"task_id": task_id, "definition": msgspec.json.encode(schedule).decode(), "next_fire_at": fire}
        for task_id, schedule, fire in wanted
    ]
    insert_many(tx, schedules, [row | {"missed": 0} for row in rows if row["task_id"] not in known])
    update_many(tx, schedules, [row for row in rows if row["task_id"] in known], match=("task_id",))


def drop_schedules(tx: Transaction, task_ids: Collection[int]) -> None:
    for part in parts(task_ids):
        tx.execute(delete(schedules).where(schedules.c.task_id.in_(part)))


def due(tx: Transaction, now: Moment, limit: int) -> dict[int, tuple[Moment, int]]:
    """Next tick and missed count of schedules whose time has come, locked."""
    query = (
        select(schedules.c.task_id, schedules.c.next_fire_at, schedules.c.missed)
        .where(schedules.c.next_fire_at <= now)
        .order_by(schedules.c.next_fire_at)
        .limit(limit)
    )
    return {row.task_id: (row.next_fire_at, row.missed) for row in tx.rows(skip_locked(query))}


def first_due(tx: Transaction) -> Moment | None:
    """When the next schedule is due."""
    found = tx.value(select(func.min(schedules.c.next_fire_at)).where(schedules.c.next_fire_at > 0))
    return None if found is None else int(found)


def advance(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> int:
    """Move schedules from their tick to the next; the count tells how many were still at it."""
    held = select(schedules.c.task_id, schedules.c.next_fire_at)
    held = held.where(schedules.c.task_id.in_([row["task_id"] for row in rows]))
    waited = {row.task_id: row.next_fire_at for row in tx.rows(held)}
    for moved in (True, False):
        update_many(
            tx,
            schedules,
            [
                {"task_id": row["task_id"], "next_fire_at": row["next"], "missed": row["missed"]}
                for row in rows
                if (row["next"] is not None) == moved
            ],
            match=("task_id",),
        )
    return sum(waited.get(row["task_id"]) == row["fire"] for row in rows)


def known_ticks(tx: Transaction, wanted: Iterable[tuple[int, Moment]]) -> set[tuple[int, Moment]]:
    """Those of ``wanted`` that have fired or were skipped before."""
    found: set[tuple[int, Moment]] = set()
    for part in parts(wanted):
        of_tasks = ticks.c.task_id.in_({task_id for task_id, _ in part})
        at_times = ticks.c.fire_at.in_({fire for _, fire in part})
        rows = tx.rows(select(ticks.c.task_id, ticks.c.fire_at).where(of_tasks, at_times))
        found.update({(row.task_id, row.fire_at) for row in rows} & set(part))
    return found


def add_ticks(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep what came of each tick; one tick cannot be kept twice, whoever fires it."""
    insert_many(tx, ticks, rows)


def newest_ticks(tx: Transaction, task_id: int, limit: int = 20, before: Moment | None = None) -> list[Any]:
    query = select(ticks).where(ticks.c.task_id == task_id).order_by(ticks.c.fire_at.desc()).limit(limit)
    return list(tx.rows(query if before is None else query.where(ticks.c.fire_at < before)))


def set_project(tx: Transaction, name: str, settings: ProjectSettings) -> None:
    table = schema.projects
    values = {name: getattr(settings, name) for name in ("weight", "max_queued", "keep_days", "min_isolation")}
    if tx.value(select(table.c.name).where(table.c.name == name)) is None:
        tx.execute(insert(table).values(name=name, **values))
    else:
        tx.execute(update(table).where(table.c.name == name).values(values))


def project_rows(tx: Transaction) -> list[Any]:
    return list(tx.rows(select(schema.projects).order_by(schema.projects.c.name)))


def limit_rows(tx: Transaction) -> dict[str, int]:
    """The limits of projects and tags."""
    key = schema.limits.c.key
    query = select(key, schema.limits.c.max_running).where(key.like("project:%") | key.like("tag:%"))
    return {row.key: row.max_running for row in tx.rows(query)}
