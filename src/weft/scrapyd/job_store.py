"""The SQL of Scrapyd jobs: their names and states, the folders of their files, and imported runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, bindparam, exists, func, insert, or_, select, tuple_, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing
from weft.db.database import Transaction
from weft.items.item_store import items_of
from weft.runs.lanes import lane_of
from weft.runs.lease_store import AttemptKey
from weft.runs.model import NewRun
from weft.runs.store import add, lane_id
from weft.scrapyd.model import ORIGIN
from weft.spiders import store
from weft.spiders.comparer import SAMPLE, profile_of

jobs, runs, workers, events, versions = (
    schema.scrapyd_jobs,
    schema.runs,
    schema.workers,
    schema.events,
    schema.versions,
)

KIND = "spider"
NEWEST_RUNS = 10_000
"""How many of the newest runs, and of the newest events, are looked at for those that have ended; more where more are
wanted."""
BEGUN = runs.c.started_at.is_not(None)
ENDED = and_(runs.c.finished_at.is_not(None), BEGUN)
WAITING = (runs.c.ready_lane.is_not(None), runs.c.not_before.is_not(None), runs.c.trouble == "paused")
"""One of these is true of a run that waits for a worker, for its time, or for somebody who resumes it."""

HAS_ITEMS = or_(
    func.coalesce(runs.c["items"], 0) > 0,
    exists().where(schema.run_stats.c.run_id == runs.c.id, schema.run_stats.c["items"] > 0),
)
"""Counted when it ends, and asked for before; an attempt before the last may have had some too."""

SHOWN = ("id", "project", "spec", "priority", "state", "attempt", "started_at", "finished_at")
ID, ENDED_AT = SHOWN.index("id"), SHOWN.index("finished_at")

_VERSIONS = select(versions.c.version, versions.c.digest).where(versions.c.project == bindparam("project"))
"""Asked at each schedule: to build it takes longer than to run it."""

ProjectFilter = Collection[str] | None
JobName = tuple[str, str]


def run_ids(tx: Transaction, wanted: Collection[JobName]) -> dict[JobName, int]:
    """The run of each (project, job) that there is."""
    if not wanted:
        return {}
    query = select(jobs).where(tuple_(jobs.c.project, jobs.c.job).in_(list(wanted)))
    return {(row.project, row.job): row.run_id for row in tx.rows(query)}


def add_names(tx: Transaction, named: Mapping[JobName, int]) -> None:
    """Remember which run each (project, job) stands for. Where another has just done so, all is run again."""
    insert_many(tx, jobs, [{"project": project, "job": job, "run_id": id_} for (project, job), id_ in named.items()])


def pending_jobs(tx: Transaction, projects: ProjectFilter) -> list[Any]:
    """Project by project, the highest priority first, in the order in which they came."""
    found = [row for waits in WAITING for row in tx.rows(_jobs(projects).where(waits))]
    return sorted(found, key=lambda row: (row.project, -row.priority, row.id))


def running_jobs(tx: Transaction, projects: ProjectFilter) -> list[Any]:
    """Those that have run for longest first; sorted here, since SQLite would rather look at every run than sort."""
    query = _jobs(projects).add_columns(workers.c.pid).where(runs.c.lease_worker.is_not(None))
    return sorted(tx.rows(query.outerjoin(workers, workers.c.id == runs.c.lease_worker)), key=itemgetter(ID))


def finished_jobs(tx: Transaction, projects: ProjectFilter, limit: int) -> list[Any]:
    """The last that have ended, the newest first."""
    rows = [row for strand in _project_filters(projects) for row in tx.rows(_ended(tx, _jobs(strand), strand, limit))]
    known = {row[ID] for row in rows}
    if late := [id_ for id_ in _recently_ended(tx, limit) if id_ not in known]:
        rows += tx.rows(_jobs(projects).where(runs.c.id.in_(late), ENDED))
    rows.sort(key=itemgetter(ENDED_AT, ID), reverse=True)
    return rows[:limit]


def job_counts(tx: Transaction, projects: ProjectFilter, limit: int) -> tuple[int, int, int]:
    """How many wait, run and have ended, the last counted no further than ``limit``."""
    mine = _within(projects)
    waiting = sum(int(tx.value(select(func.count()).where(waits, *mine))) for waits in WAITING)
    held = int(tx.value(select(func.count()).where(runs.c.lease_worker.is_not(None), *mine)))
    some = [_ended(tx, select(runs.c.id), strand, limit).subquery() for strand in _project_filters(projects)]
    over = sum(int(tx.value(select(func.count()).select_from(few))) for few in some)
    return waiting, held, min(over, limit)


def jobs_named(tx: Transaction, job: str, projects: ProjectFilter) -> list[Any]:
    """The jobs of this name, in any of these projects: those who were given it, and else the run of that number."""
    named = [row.run_id for row in tx.rows(select(jobs.c.run_id).where(jobs.c.job == job))]
    rows = list(tx.rows(_jobs(projects).where(runs.c.id.in_(named)))) if named else []
    if not rows and job.isascii() and job.isdigit() and len(job) <= 18:
        rows = [row for row in tx.rows(_jobs(projects).where(runs.c.id == int(job))) if row.job is None]
    return rows


def version_names(tx: Transaction, project: str) -> Sequence[tuple[str, str]]:
    """Name and digest of each version."""
    return [(row[0], row[1]) for row in tx.rows(_VERSIONS, {"project": project})]


def _jobs(projects: ProjectFilter) -> Select[Any]:
    query = select(*(runs.c[name] for name in SHOWN), jobs.c.job, HAS_ITEMS.label("has_items"))
    return query.select_from(runs).outerjoin(jobs, jobs.c.run_id == runs.c.id).where(*_within(projects))


def _within(projects: ProjectFilter) -> list[Any]:
    of_spiders = runs.c.kind == KIND
    return [of_spiders] if projects is None else [of_spiders, runs.c.project.in_(sorted(projects))]


def _project_filters(projects: ProjectFilter) -> list[ProjectFilter]:
    """What is looked through by itself: all runs, or those of each project, so that a busy one hides no other."""
    return [None] if projects is None else [{project} for project in sorted(projects)]


def _ended(tx: Transaction, query: Select[Any], strand: ProjectFilter, limit: int) -> Select[Any]:
    """``query`` for those among the newest runs of a strand that have begun and ended."""
    edge = _oldest_run(tx, strand, max(NEWEST_RUNS, 2 * limit))
    return query.where(*_within(strand), ENDED, runs.c.id > edge).order_by(runs.c.id.desc()).limit(limit)


def _oldest_run(tx: Transaction, strand: ProjectFilter, looked: int) -> int:
    """The run before those that are looked at. Of all runs, numbers tell how many came after it."""
    if strand is None:
        return int(tx.value(select(func.max(runs.c.id))) or 0) - looked
    newest = select(runs.c.id).where(runs.c.project.in_(strand)).order_by(runs.c.id.desc())
    return int(tx.value(newest.limit(1).offset(looked)) or 0)


def _recently_ended(tx: Transaction, limit: int) -> list[int]:
    """Runs whose end is among the newest events, the last of them."""
    edge = select(func.max(events.c.id)).scalar_subquery()
    told = and_(events.c.kind == "run_finished", events.c.id > edge - NEWEST_RUNS, events.c.run_id.is_not(None))
    query = select(events.c.run_id).where(told).order_by(events.c.id.desc())
    return [row[0] for row in tx.rows(query.limit(min(max(1000, 2 * limit), NEWEST_RUNS)))]


attempts, chunks, job_names = schema.attempts, schema.log_chunks, schema.scrapyd_jobs

MOST_FOLDERS = 2_000
"""How many projects, or tasks of one, are walked along."""
NEWEST_OF_TASK = 100
"""How many of the newest runs of a project, or of a task, are looked at for those that a spider has begun."""
SPIDER_BEGUN = and_(runs.c.kind == "spider", runs.c.started_at.is_not(None))


def folder_projects(tx: Transaction) -> Iterator[str]:
    """Every project that has runs."""
    return _distinct_values(tx, runs.c.project)


def folder_tasks(tx: Transaction, project: str) -> Iterator[str]:
    """Every task of a project that has runs."""
    return _distinct_values(tx, runs.c.task, runs.c.project == project)


def newest_specs(tx: Transaction, project: str, task: str | None = None, *, limit: int = 1) -> Sequence[Any]:
    """Spec and end of those that a spider has begun among the newest runs of a project, or of one of its tasks."""
    mine = and_(runs.c.project == project, *([] if task is None else [runs.c.task == task]))
    few = select(runs.c.id).where(mine).order_by(runs.c.id.desc()).limit(NEWEST_OF_TASK).subquery()
    edge = select(func.min(few.c.id)).scalar_subquery()
    query = select(runs.c.spec, runs.c.finished_at).where(mine, runs.c.id >= edge, SPIDER_BEGUN)
    return tx.rows(query.order_by(runs.c.id.desc()).limit(limit))


def task_runs(tx: Transaction, project: str, task: str, limit: int) -> Sequence[Any]:
    """The newest runs of a task that have begun, under the names that Scrapyd's clients know."""
    shown = (runs.c.id, runs.c.attempt, runs.c.spec, runs.c.finished_at, runs.c.log_bytes, job_names.c.job)
    query = select(*shown).select_from(runs).outerjoin(job_names, job_names.c.run_id == runs.c.id)
    mine = and_(runs.c.project == project, runs.c.task == task, SPIDER_BEGUN)
    return tx.rows(query.where(mine).order_by(runs.c.id.desc()).limit(limit))


def earlier_bytes(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How long the logs of attempts are that were followed by another, by run."""
    query = select(attempts.c.run_id, func.sum(attempts.c.log_bytes)).where(attempts.c.run_id.in_(run_ids))
    return _byte_sums(tx, query.group_by(attempts.c.run_id), run_ids)


def live_bytes(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How much is known of the logs of attempts that run, by run."""
    query = select(chunks.c.run_id, func.sum(func.length(chunks.c.data))).where(chunks.c.run_id.in_(run_ids))
    return _byte_sums(tx, query.group_by(chunks.c.run_id), run_ids)


def _byte_sums(tx: Transaction, query: Any, run_ids: Sequence[int]) -> dict[int, int]:
    return {row[0]: int(row[1] or 0) for row in tx.rows(query)} if run_ids else {}


def _distinct_values(tx: Transaction, column: ColumnElement[str], *within: ColumnElement[bool]) -> Iterator[str]:
    """Each value of a column once, in order, by a step of the index."""
    last = ""
    for _ in range(MOST_FOLDERS):
        found: str | None = tx.value(select(func.min(column)).where(*within, column > last))
        if found is None:
            return
        yield found
        last = found


run_stats, projects = schema.run_stats, schema.projects

ATTEMPT = 1
"""The only one that an imported run has."""


@dataclass(frozen=True, slots=True)
class NamedRun:
    """The run that a name stands for."""

    run_id: int
    spider: str
    origin: str | None
    """What the job was called in Scrapyd; None where the run was not imported after its end."""
    finished_at: Moment | None
    has_log: bool


class _ImportedSpider(msgspec.Struct, frozen=True):
    spider: str = ""


class _ImportedSpec(msgspec.Struct, frozen=True):
    spec: _ImportedSpider = _ImportedSpider()


class _ImportedResult(msgspec.Struct, frozen=True):
    imported: str = ""
    job: str = ""


def named_runs(tx: Transaction, project: str, names: Collection[str]) -> dict[str, NamedRun]:
    """The runs that these names stand for already."""
    query = select(jobs.c.job, runs.c.id, runs.c.spec, runs.c.result, runs.c.finished_at, runs.c.log_key)
    query = query.join(runs, runs.c.id == jobs.c.run_id).where(jobs.c.project == project, jobs.c.job.in_(list(names)))
    return {row.job: _named_run(row) for row in tx.rows(query)}


def _named_run(row: Any) -> NamedRun:
    spider = msgspec.json.decode(row.spec, type=_ImportedSpec).spec.spider
    result = _ImportedResult()
    if row.result is not None:
        try:
            result = msgspec.json.decode(row.result, type=_ImportedResult)
        except msgspec.MsgspecError:
            pass  # the result of a run of another kind, which says something else
    origin = result.job if result.imported == ORIGIN else None
    return NamedRun(row.id, spider, origin, row.finished_at, row.log_key is not None)


def add_ended(tx: Transaction, run: NewRun, job: str, ending: Mapping[str, Any], at: Moment) -> int:
    """A run that has ended, under the name of its job; nobody ever sees it wait. Without events: it is no news."""
    run_id = int(add(tx, [run], [lane_id(tx, lane_of(run))], at)[0])
    fixed = {"attempt": ATTEMPT, "tries": 1, "ready_lane": None, "live_task": None, "not_before": None}
    tx.execute(update(runs).where(runs.c.id == run_id).values({**fixed, **ending}))
    tx.execute(insert(jobs).values(project=run.project, job=job, run_id=run_id))
    return run_id


def set_log(tx: Transaction, run_id: int, key: str, size: int) -> None:
    tx.execute(update(runs).where(runs.c.id == run_id).values(log_key=key, log_bytes=size))


def keep_days(tx: Transaction, project: str) -> float | None:
    """For how long a project keeps items and logs; None: for ever."""
    found = tx.value(select(projects.c.keep_days).where(projects.c.name == project))
    return None if found is None else float(found)


def begin_stats(tx: Transaction, run_id: int, dataset_id: int | None, stats: str, at: Moment) -> None:
    """Begin to count what an imported run has yielded, unless that was begun. It is compared with no other."""
    counts = dict.fromkeys(("items", "new_records", "changed_records", "refused", "invalid", "told_at"), 0)
    row = {"run_id": run_id, "attempt": ATTEMPT, "dataset_id": dataset_id, "next_seq": 1, "stats": stats, "at": at}
    insert_missing(tx, run_stats, row | counts | {"uncompared": None})


def set_dataset(tx: Transaction, run_id: int, dataset_id: int) -> None:
    """Let the items of a run of which only numbers were known go to a dataset."""
    this = (run_stats.c.run_id == run_id) & (run_stats.c.attempt == ATTEMPT) & run_stats.c.dataset_id.is_(None)
    tx.execute(update(run_stats).where(this).values(dataset_id=dataset_id))


def counted_items(tx: Transaction, run_id: int) -> int | None:
    """The number of the item that is waited for next; None where nothing was counted yet."""
    this = (run_stats.c.run_id == run_id) & (run_stats.c.attempt == ATTEMPT)
    found = tx.value(select(run_stats.c.next_seq).where(this))
    return None if found is None else int(found)


def has_dataset(tx: Transaction, run_id: int) -> bool:
    """Whether items of the run were looked at before."""
    this = (run_stats.c.run_id == run_id) & (run_stats.c.attempt == ATTEMPT)
    return tx.value(select(run_stats.c.dataset_id).where(this)) is not None


def keep_profile(tx: Transaction, run_id: int) -> None:
    """Let later runs be compared with this one, where it succeeded and all of its items are there."""
    place: AttemptKey = (run_id, ATTEMPT)
    query = select(run_stats, runs.c.started_at, runs.c.finished_at, runs.c.state)
    query = query.join(runs, runs.c.id == run_stats.c.run_id).where(run_stats.c.run_id == run_id)
    row = tx.execute(query).first()
    if row is None or row.state != "succeeded" or row.profile is not None:
        return
    sample = [each.data for each in items_of(tx, place, 0, SAMPLE)[0]]
    profile = msgspec.json.encode(profile_of(row, sample)).decode()
    store.save_comparison(tx, run_id, ATTEMPT, profile, None)


def version_digests(tx: Transaction, project: str) -> dict[str, str]:
    """The digest of each version of a project."""
    versions = schema.versions
    query = select(versions.c.version, versions.c.digest).where(versions.c.project == project)
    rows: Sequence[Any] = tx.rows(query)
    return {row.version: row.digest for row in rows}
