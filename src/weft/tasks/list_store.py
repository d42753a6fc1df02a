"""The SQL of lists of tasks and schedules, a page at a time, and of the graph of tasks with their newest runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, ScalarSelect, Select, and_, func, literal, or_, select, tuple_

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.tasks import store
from weft.tasks.store import StoredTask, chunks, stored_of

tasks, schedules = schema.tasks, schema.schedules

TaskCursor = tuple[str, str]
"""Project and name: what tasks are ordered by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
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
    after: TaskCursor | None = None
    limit: int = 50


def task_page(
    tx: Transaction, wanted: TaskFilter, *, scheduled: bool = False
) -> tuple[list[StoredTask], TaskCursor | None]:
    """The next tasks that are ``wanted``, and the place to go on from where there may be more; with ``scheduled`` only
    those that have a schedule.

    The database finds those whose definition has the tag as a text anywhere; those that have it as another text, such
    as a parameter, leave the page shorter.
    """
    columns = (tasks.c.project, tasks.c.name)
    query = (
        select(tasks, schedules.c.next_fire_at, schedules.c.missed)
        .join(schedules, schedules.c.task_id == tasks.c.id, isouter=not scheduled)
        .where(*task_conditions(wanted))
        .order_by(*(column.desc() if wanted.backwards else column for column in columns))
        .limit(wanted.limit + 1)
    )
    rows = tx.rows(query)
    found = [stored_of(row) for row in rows[: wanted.limit]]
    onward = (rows[wanted.limit - 1].project, rows[wanted.limit - 1].name) if len(rows) > wanted.limit else None
    return [each for each in found if wanted.tag is None or wanted.tag in each.task.tags], onward


def task_conditions(wanted: TaskFilter) -> list[ColumnElement[bool]]:
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


ticks = schema.ticks

NEVER: Moment = 2**63 - 1
"""Where a schedule stands that waits for no tick: behind all others."""

PAGE_ROWS = 1000
"""How many schedules are looked at in one statement where only some are wanted."""

MOST_PAGES = 5
"""How often a page by time looks further, however few it has found."""

UpcomingCursor = tuple[Moment, int]
"""The next tick of a schedule, or NEVER, and the id of its task: what schedules are ordered by in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingQuery:
    """Which schedules to list by what fires next, and from where on."""

    projects: Collection[str] | None = None
    """None for all."""
    name: str | None = None
    paused: bool | None = None
    after: UpcomingCursor | None = None
    limit: int = 50


def schedules_by_name(tx: Transaction, wanted: TaskFilter) -> tuple[list[StoredTask], TaskCursor | None]:
    """The next tasks by project and name that have a schedule, and the place to go on from where there are more."""
    return task_page(tx, wanted, scheduled=True)


def schedules_by_time(tx: Transaction, wanted: UpcomingQuery) -> tuple[list[StoredTask], UpcomingCursor | None]:
    """The next tasks by the tick that their schedules wait for, and the turn to go on from where there may be more.

    Those that wait for none come last, by the age of their tasks.
    """
    found: list[StoredTask] = []
    after: UpcomingCursor | None = wanted.after or (0, 0)
    if wanted.paused:  # what is paused waits for no tick
        after = max(after or (0, 0), (NEVER, 0))
    for _ in range(MOST_PAGES):
        if after is None or after[0] == NEVER or len(found) == wanted.limit:
            break
        after = _add_upcoming(tx, wanted, after, found)
    if after is not None and after[0] < NEVER:
        return found, after
    return found, _resting(tx, wanted, after or (NEVER, 0), found)


def _add_upcoming(
    tx: Transaction, wanted: UpcomingQuery, after: UpcomingCursor, found: list[StoredTask]
) -> UpcomingCursor | None:
    """Add those of the next schedules that are wanted, as far as the page has room; return where to go on, if any
    schedule that waits for a tick is left."""
    room = wanted.limit - len(found)
    some = room + 1 if wanted.projects is None and wanted.name is None else PAGE_ROWS
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


def _resting(
    tx: Transaction, wanted: UpcomingQuery, after: UpcomingCursor, found: list[StoredTask]
) -> UpcomingCursor | None:
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


def _named(wanted: UpcomingQuery) -> list[ColumnElement[bool]]:
    """Tasks of one name are few, and sooner found by it than by looking at every schedule."""
    if wanted.name is None:
        return []
    return [schedules.c.task_id.in_(select(tasks.c.id).where(tasks.c.name == wanted.name))]


def _wanted(wanted: UpcomingQuery, part: Any) -> Select[Any]:
    asked = TaskFilter(projects=wanted.projects, name=wanted.name, paused=wanted.paused)
    joined = select(tasks, part.c.next_fire_at, part.c.missed).join(part, part.c.task_id == tasks.c.id)
    return joined.where(*task_conditions(asked))


def last_ticks(tx: Transaction, task_ids: Sequence[int]) -> dict[int, Any]:
    """What came of the last tick of each task that has had one."""
    found: dict[int, Any] = {}
    for part in chunks(task_ids):
        last = select(func.max(ticks.c.fire_at)).where(ticks.c.task_id == tasks.c.id).scalar_subquery()
        of_tasks = select(tasks.c.id, last.label("fire_at")).where(tasks.c.id.in_(part)).subquery()
        same: ColumnElement[bool] = and_(ticks.c.task_id == of_tasks.c.id, ticks.c.fire_at == of_tasks.c.fire_at)
        found |= {row.task_id: row for row in tx.rows(select(ticks).join(of_tasks, same))}
    return found


runs, dependencies = schema.runs, schema.dependencies

MOST_EDGES = 2000
MOST_TICKS = 5000
LARGEST_ID = 2**63 - 1

RUN_COLUMNS = tuple(
    runs.c[name] for name in ("id", "state", "outcome", "reason", "queued_at", "started_at", "finished_at")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """Tasks that come after others, or before."""

    tasks: Sequence[StoredTask]
    edges: Sequence[tuple[int, int, str]]
    """The id of the upstream task, that of the task, and how the first must end."""
    newest: dict[int, Any]
    """The newest run of each task that has one."""
    is_whole: bool
    """False where there are more edges than are told."""


def newest_runs(tx: Transaction, task_ids: Collection[int]) -> dict[int, Any]:
    """How the newest run of each task stands, by the id of the task."""
    found: dict[int, Any] = {}
    newest = _newest_run_id(tx.connection.dialect.name)
    for part in chunks(task_ids):
        of_tasks = select(tasks.c.id.label("of"), newest.label("run_id")).where(tasks.c.id.in_(part)).subquery()
        query = select(of_tasks.c.of, *RUN_COLUMNS).join(of_tasks, runs.c.id == of_tasks.c.run_id)
        found |= {row.of: row for row in tx.rows(query)}
    return found


def _newest_run_id(dialect: str) -> ScalarSelect[int]:
    """The newest run of a task, with a task.

    PostgreSQL would rather walk back through all runs until it meets one of the task, which may be never; where whole
    rows are compared, it takes the index that has them in this order.
    """
    if dialect != "postgresql":
        of_task = (runs.c.project == tasks.c.project, runs.c.task == tasks.c.name)
        return select(func.max(runs.c.id)).where(*of_task).scalar_subquery()
    row = tuple_(runs.c.project, runs.c.task, runs.c.id)
    first, last = (tuple_(tasks.c.project, tasks.c.name, literal(each, BigInteger)) for each in (0, LARGEST_ID))
    order = (runs.c.project.desc(), runs.c.task.desc(), runs.c.id.desc())
    return select(runs.c.id).where(row >= first, row <= last).order_by(*order).limit(1).scalar_subquery()


def task_graph(tx: Transaction, projects: Collection[str] | None, around: int | None = None) -> TaskGraph:
    """What comes after what, of projects or of all, or ``around`` one task; edges of which one end may not be seen are
    left out."""
    one, other = dependencies.c.upstream_id, dependencies.c.task_id
    query = select(one, other, dependencies.c.on)
    if around is not None:
        query = query.where(or_(one == around, other == around))
    elif projects is not None:
        query = query.join(tasks, tasks.c.id == other).where(tasks.c.project.in_(projects))
    rows = tx.rows(query.order_by(other, one).limit(MOST_EDGES + 1))
    ids = {each for row in rows[:MOST_EDGES] for each in (row.upstream_id, row.task_id)}
    found = {
        task_id: stored
        for task_id, stored in store.by_ids(tx, ids).items()
        if projects is None or stored.task.project in projects
    }
    edges = [(row.upstream_id, row.task_id, row.on) for row in rows[:MOST_EDGES]]
    return TaskGraph(
        tasks=sorted(found.values(), key=lambda stored: (stored.task.project, stored.task.name)),
        edges=[edge for edge in edges if edge[0] in found and edge[1] in found],
        newest=newest_runs(tx, list(found)),
        is_whole=len(rows) <= MOST_EDGES,
    )


def ticks_between(tx: Transaction, task_ids: Collection[int], start: Moment, end: Moment) -> dict[int, list[Any]]:
    """What came of the ticks of tasks from ``start`` up to ``end``, and how the runs stand that came of them."""
    found: dict[int, list[Any]] = {task_id: [] for task_id in task_ids}
    columns = (ticks.c.task_id, ticks.c.fire_at, ticks.c.outcome, ticks.c.run_id, runs.c.state)
    for part in chunks(task_ids):
        query = select(*columns).outerjoin(runs, runs.c.id == ticks.c.run_id)
        query = query.where(ticks.c.task_id.in_(part), ticks.c.fire_at >= start, ticks.c.fire_at < end)
        for row in tx.rows(query.limit(MOST_TICKS)):
            found[row.task_id].append(row)
    return found
