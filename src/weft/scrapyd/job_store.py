"""The SQL of jobs: which run each name stands for, and the runs of spiders in Scrapyd's three lists.

What waits and what runs is found by sparse indexes, however many runs have ended. What has ended is looked for among
the newest runs, and among those whose end the newest events tell: a crawl of many days has an old number when it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, select, tuple_

from weft.db import schema
from weft.db.bulk import insert_many
from weft.db.database import Transaction

jobs, runs, workers, events, versions = (
    schema.scrapyd_jobs,
    schema.runs,
    schema.workers,
    schema.events,
    schema.versions,
)

KIND = "spider"
LOOKED_AT = 10_000
"""How many of the newest runs, and of the newest events, are looked at for those that have ended; more where more are
wanted."""
BEGUN = runs.c.started_at.is_not(None)
ENDED = and_(runs.c.finished_at.is_not(None), BEGUN)
WAITING = (runs.c.ready_lane, runs.c.not_before)
"""One of these a run has that waits for a worker, or for its time."""

SHOWN = ("id", "project", "spec", "priority", "state", "attempt", "started_at", "finished_at")
ID, ENDED_AT = SHOWN.index("id"), SHOWN.index("finished_at")

_VERSIONS = select(versions.c.version, versions.c.digest).where(versions.c.project == bindparam("project"))
"""Asked at each schedule: to build it takes longer than to run it."""

Projects = Collection[str] | None
Key = tuple[str, str]


def known(tx: Transaction, wanted: Collection[Key]) -> dict[Key, int]:
    """The run of each (project, job) that there is."""
    if not wanted:
        return {}
    query = select(jobs).where(tuple_(jobs.c.project, jobs.c.job).in_(list(wanted)))
    return {(row.project, row.job): row.run_id for row in tx.rows(query)}


def keep(tx: Transaction, named: Mapping[Key, int]) -> None:
    """Remember which run each (project, job) stands for. Where another has just done so, all is run again."""
    insert_many(tx, jobs, [{"project": project, "job": job, "run_id": id_} for (project, job), id_ in named.items()])


def pending(tx: Transaction, projects: Projects) -> list[Any]:
    """Project by project, the highest priority first, in the order in which they came."""
    found = [row for column in WAITING for row in tx.rows(_jobs(projects).where(column.is_not(None)))]
    return sorted(found, key=lambda row: (row.project, -row.priority, row.id))


def running(tx: Transaction, projects: Projects) -> list[Any]:
    """Those that have run for longest first; sorted here, since SQLite would rather look at every run than sort."""
    query = _jobs(projects).add_columns(workers.c.pid).where(runs.c.lease_worker.is_not(None))
    return sorted(tx.rows(query.outerjoin(workers, workers.c.id == runs.c.lease_worker)), key=itemgetter(ID))


def finished(tx: Transaction, projects: Projects, limit: int) -> list[Any]:
    """The last that have ended, the newest first."""
    rows = [row for strand in _strands(projects) for row in tx.rows(_ended(tx, _jobs(strand), strand, limit))]
    known = {row[ID] for row in rows}
    if late := [id_ for id_ in _ended_of_late(tx, limit) if id_ not in known]:
        rows += tx.rows(_jobs(projects).where(runs.c.id.in_(late), ENDED))
    rows.sort(key=itemgetter(ENDED_AT, ID), reverse=True)
    return rows[:limit]


def counts(tx: Transaction, projects: Projects, limit: int) -> tuple[int, int, int]:
    """How many wait, run and have ended, the last counted no further than ``limit``."""
    mine = _within(projects)
    waiting = sum(int(tx.value(select(func.count()).where(column.is_not(None), *mine))) for column in WAITING)
    held = int(tx.value(select(func.count()).where(runs.c.lease_worker.is_not(None), *mine)))
    some = [_ended(tx, select(runs.c.id), strand, limit).subquery() for strand in _strands(projects)]
    over = sum(int(tx.value(select(func.count()).select_from(few))) for few in some)
    return waiting, held, min(over, limit)


def found(tx: Transaction, job: str, projects: Projects) -> list[Any]:
    """The jobs of this name, in any of these projects: those who were given it, and else the run of that number."""
    named = [row.run_id for row in tx.rows(select(jobs.c.run_id).where(jobs.c.job == job))]
    rows = list(tx.rows(_jobs(projects).where(runs.c.id.in_(named)))) if named else []
    if not rows and job.isascii() and job.isdigit() and len(job) <= 18:
        rows = [row for row in tx.rows(_jobs(projects).where(runs.c.id == int(job))) if row.job is None]
    return rows


def version_names(tx: Transaction, project: str) -> Sequence[tuple[str, str]]:
    """Name and digest of each version."""
    return [(row[0], row[1]) for row in tx.rows(_VERSIONS, {"project": project})]


def _jobs(projects: Projects) -> Select[Any]:
    query = select(*(runs.c[name] for name in SHOWN), jobs.c.job)
    return query.select_from(runs).outerjoin(jobs, jobs.c.run_id == runs.c.id).where(*_within(projects))


def _within(projects: Projects) -> list[Any]:
    of_spiders = runs.c.kind == KIND
    return [of_spiders] if projects is None else [of_spiders, runs.c.project.in_(sorted(projects))]


def _strands(projects: Projects) -> list[Projects]:
    """What is looked through by itself: all runs, or those of each project, so that a busy one hides no other."""
    return [None] if projects is None else [{project} for project in sorted(projects)]


def _ended(tx: Transaction, query: Select[Any], strand: Projects, limit: int) -> Select[Any]:
    """``query`` for those among the newest runs of a strand that have begun and ended."""
    edge = _edge(tx, strand, max(LOOKED_AT, 2 * limit))
    return query.where(*_within(strand), ENDED, runs.c.id > edge).order_by(runs.c.id.desc()).limit(limit)


def _edge(tx: Transaction, strand: Projects, looked: int) -> int:
    """The run before those that are looked at. Of all runs, numbers tell how many came after it."""
    if strand is None:
        return int(tx.value(select(func.max(runs.c.id))) or 0) - looked
    newest = select(runs.c.id).where(runs.c.project.in_(strand)).order_by(runs.c.id.desc())
    return int(tx.value(newest.limit(1).offset(looked)) or 0)


def _ended_of_late(tx: Transaction, limit: int) -> list[int]:
    """Runs whose end is among the newest events, the last of them."""
    edge = select(func.max(events.c.id)).scalar_subquery()
    told = and_(events.c.kind == "run_finished", events.c.id > edge - LOOKED_AT, events.c.run_id.is_not(None))
    query = select(events.c.run_id).where(told).order_by(events.c.id.desc())
    return [row[0] for row in tx.rows(query.limit(min(max(1000, 2 * limit), LOOKED_AT)))]
