"""The SQL of tasks, schedules, ticks and dependencies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec
from sqlalchemy import delete, func, insert, select, true, tuple_, update

from weft.clock import MILLISECOND, Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing, skip_locked, update_many
from weft.db.database import Transaction
from weft.errors import WeftError
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.schedule import Schedule, as_of, next_fires

log = logging.getLogger(__name__)

tasks, schedules, ticks, dependencies = schema.tasks, schema.schedules, schema.ticks, schema.dependencies

sequences = schema.sequences

HIGHEST_REVISION = "task_revisions"
"""The row of ``sequences`` with the highest revision that a deleted task has had."""

MOST_NAMED = 200
"""How many tasks of a project are looked up by their names."""

MOST_AHEAD = 10
"""How many milliseconds the moment of a tick may lie ahead, so that it is told like no other."""

T = TypeVar("T")

_decode = msgspec.json.Decoder(Task).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
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
        if schedule is None or self.task.paused:
            return []
        return next_fires(as_of(schedule, self.updated_at, now), now, count)


def all_tasks(tx: Transaction, project: str | None = None) -> list[StoredTask]:
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


def lock_tasks(tx: Transaction) -> None:
    """Let nobody else change tasks until this transaction ends; runs and ticks go on."""
    tx.rows(select(schema.schema_version.c.version).with_for_update())


def by_names(tx: Transaction, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredTask]:
    """Tasks by project and name."""
    query = select(tasks, schedules.c.next_fire_at, schedules.c.missed).outerjoin(
        schedules, schedules.c.task_id == tasks.c.id
    )
    found: dict[tuple[str, str], StoredTask] = {}
    for project, group in groupby(sorted(set(names)), key=lambda name: name[0]):
        wanted = {name for _, name in group}
        # Very many are found sooner by reading the project whole than by naming each.
        named = tasks.c.name.in_(wanted) if len(wanted) <= MOST_NAMED else true()
        rows = tx.rows(query.where(tasks.c.project == project, named))
        found |= {(project, row.name): stored_of(row) for row in rows if row.name in wanted}
    return found


def by_ids(tx: Transaction, ids: Collection[int], *, lock: bool = False) -> dict[int, StoredTask]:
    """Tasks by id, without those that this weft does not understand."""
    found: dict[int, StoredTask] = {}
    for part in chunks(sorted(ids)):
        query = select(tasks).where(tasks.c.id.in_(part)).order_by(tasks.c.id)
        for row in tx.rows(query.with_for_update() if lock else query):
            try:
                found[row.id] = stored_of(row)
            except (WeftError, msgspec.MsgspecError) as problem:  # one that is not understood must not stop the others
                log.error("task left alone", extra={"task": f"{row.project}/{row.name}", "why": str(problem)})
    return found


def chunks(values: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    """``values`` in lists that one statement can name."""
    left = iter(values)
    while part := list(islice(left, size)):
        yield part


def stored_of(row: Any) -> StoredTask:
    return StoredTask(
        id=row.id,
        task=_decode(row.definition),
        revision=row.revision,
        updated_at=row.updated_at,
        next_fire_at=getattr(row, "next_fire_at", None),
        missed=getattr(row, "missed", None) or 0,
    )


def create(tx: Transaction, new: Sequence[Task], at: Moment) -> None:
    """Add tasks. One that was there before and was deleted begins above every revision that it has had."""
    first = int(tx.value(select(sequences.c.last).where(sequences.c.name == HIGHEST_REVISION)) or 0) + 1
    rows = [_task_row(task, at) | {"revision": first, "created_at": at} for task in new]
    insert_many(tx, tasks, rows)


def change(tx: Transaction, task_id: int, task: Task, revision: int, at: Moment) -> None:
    """Replace the definition, which was at ``revision``."""
    tx.execute(update(tasks).where(tasks.c.id == task_id).values(_task_row(task, at) | {"revision": revision + 1}))


def remove(tx: Transaction, task_ids: Collection[int]) -> None:
    """Delete tasks and all that only they had; their runs stay."""
    for part in chunks(task_ids):
        _keep_highest(tx, int(tx.value(select(func.max(tasks.c.revision)).where(tasks.c.id.in_(part))) or 0))
        tx.execute(delete(tasks).where(tasks.c.id.in_(part)))
        for table in (schedules, ticks, schema.arrivals, dependencies):
            tx.execute(delete(table).where(table.c.task_id.in_(part)))


def _keep_highest(tx: Transaction, revision: int) -> None:
    insert_missing(tx, sequences, {"name": HIGHEST_REVISION, "last": 0})
    lower = (sequences.c.name == HIGHEST_REVISION) & (sequences.c.last < revision)
    tx.execute(update(sequences).where(lower).values(last=revision))


def _task_row(task: Task, at: Moment) -> dict[str, Any]:
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
    for part in chunks(task_id for task_id, _, _ in wanted):
        known.update(row[0] for row in tx.rows(select(schedules.c.task_id).where(schedules.c.task_id.in_(part))))
    rows = [
        {"task_id": task_id, "definition": msgspec.json.encode(schedule).decode(), "next_fire_at": fire}
        for task_id, schedule, fire in wanted
    ]
    insert_many(tx, schedules, [row | {"missed": 0} for row in rows if row["task_id"] not in known])
    update_many(tx, schedules, [row for row in rows if row["task_id"] in known], match=("task_id",))


def drop_schedules(tx: Transaction, task_ids: Collection[int]) -> None:
    for part in chunks(task_ids):
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


def next_fires_after(tx: Transaction, after: int, limit: int) -> dict[int, Moment]:
    """The next ticks of schedules with a higher id; nobody else moves these until the transaction ends."""
    fire, task_id = schedules.c.next_fire_at, schedules.c.task_id
    query = select(task_id, fire).where(task_id > after, fire.is_not(None)).order_by(task_id).limit(limit)
    return {row.task_id: row.next_fire_at for row in tx.rows(query.with_for_update())}


def set_next(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    update_many(tx, schedules, rows, match=("task_id",))


def free_moment(tx: Transaction, task_id: int, at: Moment) -> Moment:
    """The first moment from ``at`` on at which a task has had no tick, also as people are told it: to the millisecond.

    Where each of the next milliseconds has had a tick, it is told like one of them.
    """
    first = at // MILLISECOND
    beyond = first + MOST_AHEAD
    fire = ticks.c.fire_at
    mine = (ticks.c.task_id == task_id, fire >= first * MILLISECOND, fire < beyond * MILLISECOND)
    taken = {row.fire_at for row in tx.rows(select(fire).where(*mine))}
    told = {each // MILLISECOND for each in taken}
    for millisecond in range(first, beyond):
        if millisecond not in told:
            return max(at, millisecond * MILLISECOND)
    while at in taken:
        at += 1
    return at


def with_ticks_after(tx: Transaction, task_ids: Collection[int], at: Moment) -> set[int]:
    """Those of some tasks that have had a tick with a later time."""
    found: set[int] = set()
    for part in chunks(task_ids):
        later = select(ticks.c.task_id).where(ticks.c.task_id.in_(part), ticks.c.fire_at > at).distinct()
        found.update(row[0] for row in tx.rows(later))
    return found


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
    for part in chunks(wanted):
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
    named = ("weight", "max_queued", "keep_days", "min_isolation", "grace_seconds", "may_run_unsandboxed", "may_build")
    values = {name: getattr(settings, name) for name in named}
    values |= {name: _json_text(getattr(settings, name)) for name in ("success_if", "spiders", "spider_env", "network")}
    if tx.value(select(table.c.name).where(table.c.name == name)) is None:
        tx.execute(insert(table).values(name=name, **values))
    else:
        tx.execute(update(table).where(table.c.name == name).values(values))


def _json_text(value: Any) -> str | None:
    """As JSON; nothing where there is nothing."""
    return msgspec.json.encode(value).decode() if value else None


def project_rows(tx: Transaction) -> list[Any]:
    return list(tx.rows(select(schema.projects).order_by(schema.projects.c.name)))


def limit_rows(tx: Transaction) -> dict[str, int]:
    """The limits of projects and tags."""
    key = schema.limits.c.key
    query = select(key, schema.limits.c.max_running).where(key.like("project:%") | key.like("tag:%"))
    return {row.key: row.max_running for row in tx.rows(query)}


arrivals, runs = schema.arrivals, schema.runs


def replace_dependencies(tx: Transaction, task_ids: Sequence[int], edges: Sequence[dict[str, Any]]) -> None:
    """Let ``edges`` be the upstream tasks of ``task_ids``; what had arrived from others no longer counts."""
    by_flow: dict[int, bool] = {}
    old: set[tuple[int, int]] = set()
    for part in chunks(task_ids):
        for row in tx.rows(select(dependencies).where(dependencies.c.task_id.in_(part))):
            old.add((row.task_id, row.upstream_id))
            by_flow[row.task_id] = bool(row.by_flow)
        tx.execute(delete(dependencies).where(dependencies.c.task_id.in_(part)))
    insert_many(tx, dependencies, [edge | {"by_flow": by_flow.get(edge["task_id"], False)} for edge in edges])
    for gone in chunks(sorted(old - {(edge["task_id"], edge["upstream_id"]) for edge in edges})):
        tx.execute(delete(arrivals).where(tuple_(arrivals.c.task_id, arrivals.c.upstream_id).in_(gone)))


def dependency_graph(tx: Transaction) -> dict[int, list[int]]:
    """The upstream tasks of every task that has any."""
    found: dict[int, list[int]] = {}
    for row in tx.rows(select(dependencies.c.task_id, dependencies.c.upstream_id)):
        found.setdefault(row.task_id, []).append(row.upstream_id)
    return found


def set_flow_matching(tx: Transaction, by_flow: Mapping[int, bool]) -> None:
    """Let upstream tasks be matched start by start or not; where that changes, matching begins anew."""
    known = {row.task_id: bool(row.by_flow) for row in tx.rows(select(dependencies))}
    for value in (True, False):
        for part in chunks([task_id for task_id, flow in by_flow.items() if flow is value and known[task_id] != value]):
            tx.execute(update(dependencies).where(dependencies.c.task_id.in_(part)).values(by_flow=value))
            tx.execute(delete(arrivals).where(arrivals.c.task_id.in_(part)))


def downstream_edges(tx: Transaction, upstream_ids: Collection[int]) -> list[Any]:
    """Edges that lead on from ``upstream_ids``."""
    found: list[Any] = []
    for part in chunks(upstream_ids):
        found += tx.rows(select(dependencies).where(dependencies.c.upstream_id.in_(part)))
    return found


def upstream_edges(tx: Transaction, task_ids: Collection[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    query = select(dependencies.c.task_id, dependencies.c.upstream_id).where(dependencies.c.task_id.in_(task_ids))
    for row in tx.rows(query):
        found.setdefault(row.task_id, []).append(row.upstream_id)
    return found


def flows_of_runs(tx: Transaction, run_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Correlation id and trace of runs."""
    query = select(runs.c.id, runs.c.correlation_id, runs.c.traceparent).where(runs.c.id.in_(run_ids))
    return {row.id: (row.correlation_id, row.traceparent) for row in tx.rows(query)}


def record_arrival(tx: Transaction, task_id: int, flow: str, upstream_id: int, run_id: int, met: bool) -> None:
    """Note that an upstream task has ended; a later one of the same flow takes its place."""
    same = (arrivals.c.task_id == task_id, arrivals.c.flow == flow, arrivals.c.upstream_id == upstream_id)
    tx.execute(delete(arrivals).where(*same))
    values = {"task_id": task_id, "flow": flow, "upstream_id": upstream_id, "run_id": run_id, "met": met}
    tx.execute(insert(arrivals).values(values))


def arrivals_of(tx: Transaction, task_id: int, flow: str) -> dict[int, bool]:
    """The upstream tasks that have ended so far, and whether each ended as asked for."""
    query = select(arrivals.c.upstream_id, arrivals.c.met).where(arrivals.c.task_id == task_id, arrivals.c.flow == flow)
    return {row.upstream_id: bool(row.met) for row in tx.rows(query)}


def forget_arrivals(tx: Transaction, task_id: int, flow: str) -> None:
    tx.execute(delete(arrivals).where(arrivals.c.task_id == task_id, arrivals.c.flow == flow))
