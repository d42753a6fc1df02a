"""Queries for those who look back at spiders: the newest runs of one, or of a project, along an index.

A run does not have its spider in a column. Those of one spider are found by the tasks that use it, by its own name,
which runs without a task have, and by the dataset of that name; each is read from its newest end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, select

from weft.db import schema
from weft.db.database import Transaction

runs, run_stats, tasks, lanes = schema.runs, schema.run_stats, schema.tasks, schema.lanes
datasets, projects, versions = schema.datasets, schema.projects, schema.versions

KIND = "spider"
MOST_TASKS = 50
"""How many tasks of one spider are read one by one."""

SEEN = [
    runs.c[name]
    for name in ("id", "task", "kind", "spec", "state", "outcome", "reason", "trigger", "attempt", "result")
] + [runs.c.queued_at, runs.c.started_at, runs.c.finished_at]


class _Spec(msgspec.Struct):
    spider: str = ""


class _Stored(msgspec.Struct):
    spec: _Spec


_spider_in = msgspec.json.Decoder(_Stored).decode


def spider_of(row: Any) -> str:
    """Which spider a run is of; empty where that cannot be read."""
    try:
        return _spider_in(row.spec).spec.spider
    except msgspec.DecodeError:
        return ""


def tasks_of(tx: Transaction, project: str, spider: str) -> list[str]:
    """The tasks of a project that use a spider."""
    name = msgspec.json.encode(spider).decode()
    query = select(tasks.c.name, tasks.c.definition.label("spec")).where(
        tasks.c.project == project, tasks.c.kind == KIND, tasks.c.definition.contains(name, autoescape=True)
    )
    rows = tx.rows(query.order_by(tasks.c.name).limit(MOST_TASKS))
    return [row.name for row in rows if spider_of(row) == spider]


def newest_of_spider(tx: Transaction, project: str, spider: str, named: Collection[str], limit: int) -> Sequence[Any]:
    """The newest runs of a spider, newest first; ``named`` are the tasks that use it."""
    ids = {run_id for task in {spider, *named} for run_id in _ids_of_task(tx, project, task, limit)}
    ids |= set(_ids_of_dataset(tx, project, spider, limit))
    rows = _rows(tx, sorted(ids, reverse=True))
    return [row for row in rows if row.kind == KIND and spider_of(row) == spider][:limit]


def newest_of_project(tx: Transaction, project: str, limit: int) -> Sequence[Any]:
    """The newest runs of a project, newest first."""
    return tx.rows(select(*SEEN).where(runs.c.project == project).order_by(runs.c.id.desc()).limit(limit))


def yields_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], Any]:
    """What attempts of these runs have yielded, by run and attempt."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"], run_stats.c.profile, run_stats.c.drift)
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    return {(row.run_id, row.attempt): row for row in rows}


def counts_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], int]:
    """How many items attempts of these runs have yielded."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c["items"])
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    return {(row[0], row[1]): row[2] for row in rows}


def so_far_of(tx: Transaction, run_ids: Collection[int]) -> dict[tuple[int, int], Mapping[str, Any]]:
    """What attempts have counted that did not come to say it at their end."""
    columns = (run_stats.c.run_id, run_stats.c.attempt, run_stats.c.stats)
    rows = tx.rows(select(*columns).where(run_stats.c.run_id.in_(list(run_ids)))) if run_ids else ()
    counted = {(row[0], row[1]): texts(row[2]) for row in rows}
    return {
        key: {"pages": stats.get("response_received_count"), "errors": stats.get("log_count/ERROR")}
        for key, stats in counted.items()
    }


def live_counts(tx: Transaction, column: str, names: Collection[str]) -> dict[str, int]:
    """How many runs of each of these projects are ready, waiting or running: a column that only such runs have."""
    lane = runs.c.ready_lane if column == "ready_lane" else runs.c.lane_id  # a long queue is counted in its index
    lively = select(lane.label("lane"), func.count().label("runs")).where(runs.c[column].is_not(None))
    by_lane = lively.group_by(lane).subquery()
    query = select(lanes.c.project, func.sum(by_lane.c.runs)).join(by_lane, by_lane.c.lane == lanes.c.id)
    rows = tx.rows(query.where(lanes.c.project.in_(list(names))).group_by(lanes.c.project)) if names else ()
    return {project: int(count) for project, count in rows}


def current_code(tx: Transaction, names: Collection[str]) -> dict[str, Any]:
    """The current version of each of these projects that has one."""
    same = (projects.c.name == versions.c.project) & (projects.c.current_version == versions.c.version)
    columns = (versions.c.project, versions.c.version, versions.c.spiders, versions.c.deployed_at)
    query = select(*columns, versions.c.deployed_by).join(projects, same).where(projects.c.name.in_(list(names)))
    return {row.project: row for row in tx.rows(query)} if names else {}


def newest_states(tx: Transaction, project: str, limit: int) -> Sequence[Any]:
    """How the newest runs of a project stand, newest first."""
    columns = (runs.c.id, runs.c.state, runs.c.queued_at, runs.c.finished_at)
    return tx.rows(select(*columns).where(runs.c.project == project).order_by(runs.c.id.desc()).limit(limit))


def _ids_of_task(tx: Transaction, project: str, task: str, limit: int) -> list[int]:
    query = select(runs.c.id).where(runs.c.project == project, runs.c.task == task)
    return [row[0] for row in tx.rows(query.order_by(runs.c.id.desc()).limit(limit))]


def _ids_of_dataset(tx: Transaction, project: str, name: str, limit: int) -> list[int]:
    dataset = tx.value(select(datasets.c.id).where(datasets.c.project == project, datasets.c.name == name))
    if dataset is None:
        return []
    query = select(run_stats.c.run_id).where(run_stats.c.dataset_id == dataset)
    return [row[0] for row in tx.rows(query.order_by(run_stats.c.run_id.desc()).limit(limit))]


def _rows(tx: Transaction, ids: Sequence[int]) -> Sequence[Any]:
    return tx.rows(select(*SEEN).where(runs.c.id.in_(list(ids))).order_by(runs.c.id.desc())) if ids else ()


def texts(value: object) -> Mapping[str, Any]:
    """What a run said of itself at its end."""
    found = msgspec.json.decode(value) if isinstance(value, str) else None
    return found if isinstance(found, dict) else {}
