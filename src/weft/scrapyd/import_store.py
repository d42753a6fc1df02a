"""The SQL of an import: runs that ended before weft knew them, their logs, and what they have yielded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import insert, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction
from weft.items import compare_store
from weft.items.collect_store import Place
from weft.items.comparer import SAMPLE, profile_of
from weft.items.store import items_of
from weft.runs.lanes import lane_of
from weft.runs.model import NewRun
from weft.runs.store import add, lane_id
from weft.scrapyd.import_model import ORIGIN

jobs, runs, run_stats, projects = schema.scrapyd_jobs, schema.runs, schema.run_stats, schema.projects

ATTEMPT = 1
"""The only one that an imported run has."""


@dataclass(frozen=True, slots=True)
class Named:
    """The run that a name stands for."""

    run_id: int
    spider: str
    origin: str | None
    """What the job was called in Scrapyd; None where the run was not imported after its end."""
    finished_at: Moment | None
    has_log: bool


class _Spider(msgspec.Struct, frozen=True):
    spider: str = ""


class _Spec(msgspec.Struct, frozen=True):
    spec: _Spider = _Spider()


class _Result(msgspec.Struct, frozen=True):
    imported: str = ""
    job: str = ""


def named(tx: Transaction, project: str, names: Collection[str]) -> dict[str, Named]:
    """The runs that these names stand for already."""
    query = select(jobs.c.job, runs.c.id, runs.c.spec, runs.c.result, runs.c.finished_at, runs.c.log_key)
    query = query.join(runs, runs.c.id == jobs.c.run_id).where(jobs.c.project == project, jobs.c.job.in_(list(names)))
    return {row.job: _named(row) for row in tx.rows(query)}


def _named(row: Any) -> Named:
    spider = msgspec.json.decode(row.spec, type=_Spec).spec.spider
    result = _Result()
    if row.result is not None:
        try:
            result = msgspec.json.decode(row.result, type=_Result)
        except msgspec.MsgspecError:
            pass  # the result of a run of another kind, which says something else
    origin = result.job if result.imported == ORIGIN else None
    return Named(row.id, spider, origin, row.finished_at, row.log_key is not None)


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
    counts = dict.fromkeys(("items", "new_things", "changed_things", "refused", "invalid", "told_at"), 0)
    row = {"run_id": run_id, "attempt": ATTEMPT, "dataset_id": dataset_id, "next_seq": 1, "stats": stats, "at": at}
    insert_missing(tx, run_stats, row | counts | {"uncompared": None})


def set_dataset(tx: Transaction, run_id: int, dataset_id: int) -> None:
    """Let the items of a run of which only numbers were known go to a dataset."""
    this = (run_stats.c.run_id == run_id) & (run_stats.c.attempt == ATTEMPT) & run_stats.c.dataset_id.is_(None)
    tx.execute(update(run_stats).where(this).values(dataset_id=dataset_id))


def counted(tx: Transaction, run_id: int) -> int | None:
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
    place: Place = (run_id, ATTEMPT)
    query = select(run_stats, runs.c.started_at, runs.c.finished_at, runs.c.state)
    query = query.join(runs, runs.c.id == run_stats.c.run_id).where(run_stats.c.run_id == run_id)
    row = tx.execute(query).first()
    if row is None or row.state != "succeeded" or row.profile is not None:
        return
    sample = [each.data for each in items_of(tx, place, 0, SAMPLE)[0]]
    profile = msgspec.json.encode(profile_of(row, sample)).decode()
    compare_store.compared(tx, run_id, ATTEMPT, profile, None)


def version_digests(tx: Transaction, project: str) -> dict[str, str]:
    """The digest of each version of a project."""
    versions = schema.versions
    query = select(versions.c.version, versions.c.digest).where(versions.c.project == project)
    rows: Sequence[Any] = tx.rows(query)
    return {row.version: row.digest for row in rows}
