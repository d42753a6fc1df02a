"""The SQL of success: the conditions of projects, what attempts have counted, and earlier successful runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, or_, select

from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import NOT_KEPT, RunOutcome, RunSpec, RunState
from weft.runs.success import USUAL_OF, RunStats, SpiderSettings, SuccessConditions, run_stats_of

runs, run_stats, projects, attempts = schema.runs, schema.run_stats, schema.projects, schema.attempts

LOOKED_AT = 200
"""Among so many of the newest runs of a task those are looked for that succeeded."""

AttemptKey = tuple[int, int]
"""A run and an attempt of it."""

_decode = msgspec.json.decode
_decode_spec = msgspec.json.Decoder(RunSpec).decode


_conditions = msgspec.json.Decoder(SuccessConditions).decode
_spiders = msgspec.json.Decoder(dict[str, SpiderSettings]).decode

ProjectConditions = tuple[SuccessConditions | None, Mapping[str, SpiderSettings]]
"""Of a project: its own conditions, and what holds for its spiders."""


def project_conditions(tx: Transaction, names: Collection[str]) -> dict[str, ProjectConditions]:
    """What those projects ask for that ask for anything."""
    return {
        row.name: (
            None if row.success_if is None else _conditions(row.success_if),
            {} if row.spiders is None else _spiders(row.spiders),
        )
        for row in tx.rows(_project_conditions(), {"names": sorted(names)})
    }


@cache
def _project_conditions() -> Select[Any]:
    query = select(projects.c.name, projects.c.success_if, projects.c.spiders)
    asks = or_(projects.c.success_if.is_not(None), projects.c.spiders.is_not(None))
    return query.where(projects.c.name.in_(bindparam("names", expanding=True)), asks)


def run_stats_of_attempts(
    tx: Transaction, ended: Mapping[AttemptKey, Mapping[str, Any] | None]
) -> dict[AttemptKey, RunStats]:
    """What each of these attempts has counted, with those that it went on from; the values are what workers told."""
    found: dict[int, list[Any]] = {}
    for row in tx.rows(_stats(), {"ids": sorted({run_id for run_id, _ in ended})}) if ended else ():
        found.setdefault(row.run_id, []).append(row)
    figures: dict[AttemptKey, RunStats] = {}
    for place, told in ended.items():
        rows = [row for row in found.get(place[0], ()) if row.attempt <= place[1]]
        if len(rows) > 1 or (rows and rows[0].attempt != place[1]):
            rows = _counting_attempts(tx, place, rows)
        figures[place] = run_stats_of(told, [_part(row) for row in rows])
    return figures


@cache
def _stats() -> Select[Any]:
    columns = [run_stats.c[name] for name in ("run_id", "attempt", "items", "stats", "missing")]
    named = run_stats.c.run_id.in_(bindparam("ids", expanding=True))
    return select(*columns).where(named).order_by(run_stats.c.run_id, run_stats.c.attempt)


def _part(row: Any) -> tuple[int, Mapping[str, Any], Mapping[str, int]]:
    stats = _decode(row.stats)
    missing = {} if row.missing is None else _decode(row.missing)
    return row._mapping["items"], stats if isinstance(stats, dict) else {}, missing


def _counting_attempts(tx: Transaction, place: AttemptKey, rows: Sequence[Any]) -> list[Any]:
    """The attempt itself, and of a crawl that kept its place those that were given back with it."""
    run = tx.rows(select(runs.c.kind, runs.c.spec).where(runs.c.id == place[0]))[0]
    spec = _decode_spec(run.spec).spec
    if run.kind == "crawl" or spec.get("frontier"):
        return list(rows)
    kept = {place[1]}
    if spec.get("resumable"):
        query = select(attempts.c.attempt, attempts.c.reason)
        query = query.where(attempts.c.run_id == place[0], attempts.c.outcome == RunOutcome.RELEASED.value)
        kept |= {row.attempt for row in tx.rows(query) if NOT_KEPT not in (row.reason or "")}
    return [row for row in rows if row.attempt in kept]


def shares_frontier(tx: Transaction, run_ids: Collection[int]) -> set[int]:
    """Those runs that take their requests from where others take theirs: one of them may find none left."""
    rows = tx.rows(select(runs.c.id, runs.c.spec).where(runs.c.id.in_(sorted(run_ids)))) if run_ids else ()
    return {row.id for row in rows if _decode_spec(row.spec).spec.get("frontier")}


def earlier_successes(tx: Transaction, project: str, task: str, run_id: int) -> list[Any]:
    """Items and pages of the newest runs of a task before this one that succeeded."""
    newest = (
        select(runs.c.state, runs.c["items"], runs.c.pages)
        .where(runs.c.project == project, runs.c.task == task, runs.c.id < run_id)
        .order_by(runs.c.id.desc())
        .limit(LOOKED_AT)
        .subquery()
    )
    query = select(newest.c["items"], newest.c.pages).where(newest.c.state == RunState.SUCCEEDED.value)
    return list(tx.rows(query.limit(USUAL_OF)))
