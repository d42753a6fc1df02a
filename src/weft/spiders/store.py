"""Queries that look back at the runs of spiders: their history, their baseline, and notable events.

A run does not have its spider in a column. Those of one spider are found by the tasks that use it, by its own name,
which runs without a task have, and by the dataset of that name; each is read from its newest end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select, union_all, update

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.items.item_store import whole_attempts
from weft.projects.model import Spider
from weft.runs.model import ENDED, Run, RunState

runs, run_stats, tasks, lanes = schema.runs, schema.run_stats, schema.tasks, schema.lanes
datasets, projects, versions = schema.datasets, schema.projects, schema.versions

SPIDER_KIND = "spider"
MOST_TASKS = 50
"""How many tasks of one spider are read one by one."""
MOST_RARE = 200
"""How many tasks and spiders are looked for beyond the newest runs of their project."""
AT_ONCE = 50
"""How many of them one statement asks for."""

HISTORY_COLUMNS = [
    runs.c[name]
    for name in ("id", "task", "kind", "spec", "state", "outcome", "reason", "trigger", "attempt", "result")
] + [runs.c.queued_at, runs.c.started_at, runs.c.finished_at]
HISTORY_COLUMNS += [
    runs.c[name] for name in ("items", "pages", "requests", "errors", "warnings", "marks", "conditions")
]


class _SpiderSpec(msgspec.Struct):
    spider: str = ""


class _StoredSpec(msgspec.Struct):
    spec: _SpiderSpec


_decode_spiders = msgspec.json.Decoder(tuple[Spider, ...]).decode
_decode_stored = msgspec.json.Decoder(_StoredSpec).decode


def spider_of(row: Any) -> str:
    """Which spider a run is of; empty where that cannot be read."""
    try:
        return _decode_stored(row.spec).spec.spider
    except msgspec.DecodeError:
        return ""


def tasks_of(tx: Transaction, project: str, spider: str) -> list[str]:
    """The tasks of a project that use a spider."""
    name = msgspec.json.encode(spider).decode()
    query = select(tasks.c.name, tasks.c.definition.label("spec")).where(
        tasks.c.project == project, tasks.c.kind == SPIDER_KIND, tasks.c.definition.contains(name, autoescape=True)
    )
    rows = tx.rows(query.order_by(tasks.c.name).limit(MOST_TASKS))
    return [row.name for row in rows if spider_of(row) == spider]


def newest_of_spider(tx: Transaction, project: str, spider: str, named: Collection[str], limit: int) -> Sequence[Any]:
    """The newest runs of a spider, newest first; ``named`` are the tasks that use it."""
    ids = {run_id for task in {spider, *named} for run_id in _ids_of_task(tx, project, task, limit)}
    ids |= set(_ids_of_dataset(tx, project, spider, limit))
    rows = _rows_by_id(tx, sorted(ids, reverse=True))
    return [row for row in rows if row.kind == SPIDER_KIND and spider_of(row) == spider][:limit]


def newest_of_project(tx: Transaction, project: str, limit: int, *, each: int) -> Sequence[Any]:
    """The newest runs of a project, newest first, and of each of its tasks and spiders so many at least."""
    found = tx.rows(select(*HISTORY_COLUMNS).where(runs.c.project == project).order_by(runs.c.id.desc()).limit(limit))
    return [*found, *_rows_by_id(tx, _ids_of_rare(tx, project, found, each))] if len(found) == limit else found


def attempts_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], Any]:
    """What attempts of these runs have yielded, by run and attempt."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"], run_stats.c.profile, run_stats.c.drift)
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    return {(row.run_id, row.attempt): row for row in rows}


def counts_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], int]:
    """How many items attempts of these runs have yielded."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"])
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    return {(row[0], row[1]): row[2] for row in rows}


def live_stats_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], Mapping[str, Any]]:
    """What attempts have counted that did not come to say it at their end."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c.stats)
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    counted = {(row[0], row[1]): text_stats(row[2]) for row in rows}
    return {
        key: {"pages": stats.get("response_received_count"), "errors": stats.get("log_count/ERROR")}
        for key, stats in counted.items()
    }


def live_counts(tx: Transaction, column: str, names: Collection[str]) -> dict[str, int]:
    """How many runs of each of these projects are ready, waiting, running or paused (``trouble``): a column that only
    such runs have."""
    lane = runs.c.ready_lane if column == "ready_lane" else runs.c.lane_id  # a long queue is counted in its index
    those = runs.c.trouble == RunState.PAUSED.value if column == "trouble" else runs.c[column].is_not(None)
    by_lane = select(lane.label("lane"), func.count().label("runs")).where(those).group_by(lane).subquery()
    query = select(lanes.c.project, func.sum(by_lane.c.runs)).join(by_lane, by_lane.c.lane == lanes.c.id)
    rows = tx.rows(query.where(lanes.c.project.in_(list(names))).group_by(lanes.c.project)) if names else ()
    return {project: int(count) for project, count in rows}


def current_code(tx: Transaction, names: Collection[str]) -> dict[str, Any]:
    """The current version of each of these projects that has one."""
    same = (projects.c.name == versions.c.project) & (projects.c.current_version == versions.c.version)
    columns = (versions.c.project, versions.c.version, versions.c.spiders, versions.c.deployed_at)
    query = select(*columns, versions.c.deployed_by).join(projects, same).where(projects.c.name.in_(list(names)))
    return {row.project: row for row in tx.rows(query)} if names else {}


def newest_states(tx: Transaction, project: str, limit: int, *, each: int) -> Sequence[Any]:
    """How the newest runs of a project stand, newest first, and of each of its tasks and spiders so many at least."""
    columns = select(runs.c.id, runs.c.task, runs.c.kind, runs.c.state, runs.c["items"], runs.c.queued_at)
    columns = columns.order_by(runs.c.id.desc())
    found = tx.rows(columns.where(runs.c.project == project).limit(limit))
    if len(found) < limit:
        return found
    rare = _ids_of_rare(tx, project, found, each)
    return [*found, *(tx.rows(columns.where(runs.c.id.in_(rare))) if rare else ())]


def _ids_of_rare(tx: Transaction, project: str, found: Sequence[Any], each: int) -> list[int]:
    """Runs older than those that were found, of tasks and spiders that had fewer than ``each`` among them.

    Without these a spider that runs once a day, and fails, would be forgotten behind one that runs every minute.
    """
    query = select(tasks.c.name).where(tasks.c.project == project).order_by(tasks.c.name).limit(MOST_RARE)
    code = current_code(tx, [project]).get(project)
    spiders = [] if code is None else [one.name for one in _decode_spiders(code.spiders)]
    known, counts = {*(row.name for row in tx.rows(query)), *spiders}, Counter(row.task for row in found)
    rare = sorted(name for name in known if counts[name] < each)[:MOST_RARE]
    newest = [
        select(runs.c.id).where(runs.c.project == project, runs.c.task == name, runs.c.id < found[-1].id)
        for name in rare
    ]
    parts = [
        select(query.order_by(runs.c.id.desc()).limit(each - counts[name]).subquery().c.id)
        for name, query in zip(rare, newest, strict=True)
    ]
    return [row.id for start in range(0, len(parts), AT_ONCE) for row in tx.rows(union_all(*parts[start:][:AT_ONCE]))]


def _ids_of_task(tx: Transaction, project: str, task: str, limit: int) -> list[int]:
    query = select(runs.c.id).where(runs.c.project == project, runs.c.task == task)
    return [row[0] for row in tx.rows(query.order_by(runs.c.id.desc()).limit(limit))]


def _ids_of_dataset(tx: Transaction, project: str, name: str, limit: int) -> list[int]:
    dataset = tx.value(select(datasets.c.id).where(datasets.c.project == project, datasets.c.name == name))
    if dataset is None:
        return []
    query = select(run_stats.c.run_id).where(run_stats.c.dataset_id == dataset)
    return [row[0] for row in tx.rows(query.order_by(run_stats.c.run_id.desc()).limit(limit))]


def _rows_by_id(tx: Transaction, ids: Sequence[int]) -> Sequence[Any]:
    return tx.rows(select(*HISTORY_COLUMNS).where(runs.c.id.in_(list(ids))).order_by(runs.c.id.desc())) if ids else ()


def text_stats(value: object) -> Mapping[str, Any]:
    """What a run said of itself at its end."""
    found = msgspec.json.decode(value) if isinstance(value, str) else None
    return found if isinstance(found, dict) else {}


MOST_LOOKED_AT = 40
"""Of so many runs before this one those are chosen that it is compared with."""


def ended_before(tx: Transaction, run: Run) -> list[Any]:
    """Runs of the same task, or of the same spider, that were executed and have ended, newest first."""
    columns = [runs.c.id, runs.c.kind, runs.c.task_id, runs.c.state, runs.c.started_at, runs.c.finished_at]
    if run.task_id is None:  # of runs without a task only their name is sure to be the same
        columns.append(runs.c.spec)
    same = (runs.c.project == run.project) & (runs.c.task == run.task) & (runs.c.id < run.id)
    rows = tx.rows(select(*columns).where(same).order_by(runs.c.id.desc()).limit(MOST_LOOKED_AT))
    return [row for row in rows if row.state in ENDED and None not in (row.started_at, row.finished_at)]


def whole_stats_of(tx: Transaction, run_ids: Collection[int]) -> dict[int, Sequence[Any]]:
    """For each run the rows of those attempts that together are what it has yielded, the last one last."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"].label("yielded"), run_stats.c.stats)
    query = select(*columns, run_stats.c.profile, run_stats.c.drift).where(run_stats.c.run_id.in_(run_ids))
    found: dict[int, list[Any]] = {}
    for row in tx.rows(query.order_by(run_stats.c.run_id, run_stats.c.attempt)):
        found.setdefault(row.run_id, []).append(row)
    return {run_id: _whole_attempts(tx, run_id, rows) for run_id, rows in found.items()}


def spec_of(row: Any) -> dict[str, Any]:
    return msgspec.json.decode(row.spec, type=_AnySpec).spec


class _AnySpec(msgspec.Struct):
    spec: dict[str, Any]


def _whole_attempts(tx: Transaction, run_id: int, rows: list[Any]) -> Sequence[Any]:
    if len(rows) == 1:
        return rows
    whole = whole_attempts(tx, run_id)
    return [row for row in rows if row.attempt in whole]


def not_compared(tx: Transaction, limit: int) -> Sequence[Any]:
    """Attempts that were not looked at since they began, with the state of their run."""
    query = select(run_stats, runs.c.state, runs.c.project, runs.c.task_id, runs.c.started_at, runs.c.finished_at)
    query = query.add_columns(runs.c.attempt.label("last_attempt"))
    query = query.join(runs, runs.c.id == run_stats.c.run_id).where(run_stats.c.uncompared.is_not(None))
    over = runs.c.finished_at.is_not(None) | (runs.c.attempt > run_stats.c.attempt)
    return tx.rows(query.where(over).order_by(run_stats.c.uncompared).limit(limit))


def profiles_before(tx: Transaction, dataset_id: int, run_id: int, limit: int) -> list[str]:
    """The profiles of the newest runs of a dataset before this one."""
    query = select(run_stats.c.profile).where(
        run_stats.c.dataset_id == dataset_id, run_stats.c.run_id < run_id, run_stats.c.profile.is_not(None)
    )
    return [row.profile for row in tx.rows(query.order_by(run_stats.c.run_id.desc()).limit(limit))]


def save_comparison(tx: Transaction, run_id: int, attempt: int, profile: str | None, drift: str | None) -> None:
    """Keep what was found; the attempt is not looked at again."""
    this = and_(run_stats.c.run_id == run_id, run_stats.c.attempt == attempt)
    tx.execute(update(run_stats).where(this).values(profile=profile, drift=drift, uncompared=None))


events = schema.events


def events_of_kinds(tx: Transaction, kinds: Collection[str], low: int, below: int) -> Sequence[Any]:
    """The events of these kinds with ids from ``low`` on and below another, newest first."""
    return tx.rows(_kinds_query(), {"kinds": sorted(kinds), "low": low, "below": below})


@cache
def _kinds_query() -> Select[Any]:
    there = (_between(), events.c.kind.in_(bindparam("kinds", expanding=True)))
    return select(events).where(*there).order_by(events.c.id.desc())


def _between() -> ColumnElement[bool]:
    return (events.c.id >= bindparam("low")) & (events.c.id < bindparam("below"))


def first_event_at(tx: Transaction, low: int) -> Moment | None:
    """When the first event from an id on was."""
    found: Moment | None = tx.value(select(events.c.at).where(events.c.id >= low).order_by(events.c.id).limit(1))
    return found
