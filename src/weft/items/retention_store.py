"""The SQL of retention. Each statement touches a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import ENDED

projects, datasets, stats, items = schema.projects, schema.datasets, schema.run_stats, schema.items
records, revisions, runs, attempts = schema.records, schema.revisions, schema.runs, schema.attempts
chunks, marks = schema.log_chunks, schema.destination_marks


@dataclass(frozen=True, slots=True)
class RetentionEdge:
    """What was last seen before this is old."""

    at: Moment
    run_id: int | None
    """The first run whose items are kept; None where there is none."""


def keep_days(tx: Transaction) -> dict[str, float]:
    """The projects that keep their items for some days only."""
    query = select(projects.c.name, projects.c.keep_days).where(projects.c.keep_days.is_not(None))
    return {row.name: float(row.keep_days) for row in tx.rows(query)}


def runs_after(tx: Transaction, project: str, after: int, limit: int) -> list[Any]:
    """Runs of a project in their order, and whether each has ended."""
    columns = (runs.c.id, runs.c.queued_at, runs.c.finished_at, runs.c.log_key, runs.c.state.in_(ENDED).label("ended"))
    mine = (runs.c.project == project) & (runs.c.id > after)
    return list(tx.rows(select(*columns).where(mine).order_by(runs.c.id).limit(limit)))


def runs_with_data(tx: Transaction, page: Sequence[Any]) -> set[int]:
    """Those of some runs that follow each other which have anything that can be removed.

    Asked for each run by itself, PostgreSQL would read every statistic that there is for each page.
    """
    first, last = page[0].id, page[-1].id
    counted = select(stats.c.run_id).where(stats.c.run_id.between(first, last))
    logged = select(attempts.c.run_id).where(attempts.c.run_id.between(first, last), attempts.c.log_key.is_not(None))
    found = {row[0] for query in (counted, logged) for row in tx.rows(query.distinct())}
    return found | {run.id for run in page if run.log_key is not None}


def attempts_of(tx: Transaction, run_id: int) -> list[tuple[int, int]]:
    """The attempts of a run, and the number of the item that each would yield next."""
    query = select(stats.c.attempt, stats.c.next_seq).where(stats.c.run_id == run_id).order_by(stats.c.attempt)
    return [(row[0], row[1]) for row in tx.rows(query)]


def remove_items(tx: Transaction, run_id: int, attempt: int, first: int, last: int) -> int:
    of_attempt = (items.c.run_id == run_id) & (items.c.attempt == attempt)
    return tx.execute(delete(items).where(of_attempt, items.c.seq.between(first, last))).rowcount


def log_keys(tx: Transaction, run_id: int) -> list[str]:
    of_run = select(runs.c.log_key).where(runs.c.id == run_id, runs.c.log_key.is_not(None))
    of_attempts = select(attempts.c.log_key).where(attempts.c.run_id == run_id, attempts.c.log_key.is_not(None))
    return [row[0] for query in (of_run, of_attempts) for row in tx.rows(query)]


def clear_run(tx: Transaction, run_id: int, gone: list[tuple[int, int]]) -> None:
    """Forget what a run has yielded and printed, once all of it is ``gone``; later, where items came meanwhile."""
    if attempts_of(tx, run_id) != gone:
        return
    for table in (stats, schema.samples, marks, chunks):
        tx.execute(delete(table).where(table.c.run_id == run_id))
    nothing = {"log_key": None, "log_bytes": None}
    tx.execute(update(runs).where(runs.c.id == run_id).values(nothing))
    tx.execute(update(attempts).where(attempts.c.run_id == run_id).values(nothing))


def dataset_ids(tx: Transaction, project: str) -> list[int]:
    return [row[0] for row in tx.rows(select(datasets.c.id).where(datasets.c.project == project))]


def edge(tx: Transaction, dataset_id: int, cutoff: Moment) -> RetentionEdge:
    """Before which a record must have been seen last, so that no item that is kept can be of it."""
    first = tx.value(select(func.min(stats.c.run_id)).where(stats.c.dataset_id == dataset_id))
    began = None if first is None else tx.value(select(runs.c.queued_at).where(runs.c.id == first))
    return RetentionEdge(cutoff if began is None else min(cutoff, int(began)), first)


def records_after(tx: Transaction, dataset_id: int, after: int, before: RetentionEdge, limit: int) -> list[Any]:
    """Records of a dataset in their order, and whether each is old."""
    query = select(records.c.id, records.c.revisions, _is_old(before).label("old"))
    mine = (records.c.dataset_id == dataset_id) & (records.c.id > after)
    return list(tx.rows(query.where(mine).order_by(records.c.id).limit(limit)))


def remove_records(tx: Transaction, ids: Sequence[int], before: RetentionEdge) -> int:
    """Remove those that nobody has seen meanwhile, with all their revisions."""
    removed = tx.execute(delete(records).where(records.c.id.in_(ids), _is_old(before))).rowcount
    left = {row[0] for row in tx.rows(select(records.c.id).where(records.c.id.in_(ids)))}
    tx.execute(delete(revisions).where(revisions.c.record_id.in_([each for each in ids if each not in left])))
    return removed


def remove_revisions(tx: Transaction, ids: Sequence[int], before: RetentionEdge) -> int:
    """Remove revisions that another had replaced before the edge: no item that is kept shows them."""
    query = select(revisions.c.record_id, func.max(revisions.c.number)).where(
        revisions.c.record_id.in_(ids), revisions.c.at < before.at
    )
    if before.run_id is not None:  # a worker's clock may be wrong, the order of runs is not
        query = query.where(revisions.c.run_id < before.run_id)
    shown = tx.rows(query.group_by(revisions.c.record_id).having(func.count() > 1))
    return sum(
        tx.execute(delete(revisions).where(revisions.c.record_id == record_id, revisions.c.number < number)).rowcount
        for record_id, number in shown
    )


def _is_old(before: RetentionEdge) -> ColumnElement[bool]:
    old = records.c.last_seen_at < before.at
    return old if before.run_id is None else and_(old, records.c.last_run_id < before.run_id)
