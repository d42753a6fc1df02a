"""The SQL of what comes after what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select, tuple_, update

from weft.db import schema
from weft.db.bulk import insert_many
from weft.db.database import Transaction
from weft.tasks.store import parts

dependencies, arrivals, runs = schema.dependencies, schema.arrivals, schema.runs


def replace(tx: Transaction, task_ids: Sequence[int], edges: Sequence[dict[str, Any]]) -> None:
    """Let ``edges`` be the forerunners of ``task_ids``; what had arrived from others no longer counts."""
    by_flow: dict[int, bool] = {}
    old: set[tuple[int, int]] = set()
    for part in parts(task_ids):
        for row in tx.rows(select(dependencies).where(dependencies.c.task_id.in_(part))):
            old.add((row.task_id, row.upstream_id))
            by_flow[row.task_id] = bool(row.by_flow)
        tx.execute(delete(dependencies).where(dependencies.c.task_id.in_(part)))
    insert_many(tx, dependencies, [edge | {"by_flow": by_flow.get(edge["task_id"], False)} for edge in edges])
    for gone in parts(sorted(old - {(edge["task_id"], edge["upstream_id"]) for edge in edges})):
        tx.execute(delete(arrivals).where(tuple_(arrivals.c.task_id, arrivals.c.upstream_id).in_(gone)))


def graph(tx: Transaction) -> dict[int, list[int]]:
    """The forerunners of every task that has any."""
    found: dict[int, list[int]] = {}
    for row in tx.rows(select(dependencies.c.task_id, dependencies.c.upstream_id)):
        found.setdefault(row.task_id, []).append(row.upstream_id)
    return found


def set_by_flow(tx: Transaction, by_flow: Mapping[int, bool]) -> None:
    """Let forerunners be matched start by start or not; where that changes, matching begins anew."""
    known = {row.task_id: bool(row.by_flow) for row in tx.rows(select(dependencies))}
    for value in (True, False):
        for part in parts([task_id for task_id, flow in by_flow.items() if flow is value and known[task_id] != value]):
            tx.execute(update(dependencies).where(dependencies.c.task_id.in_(part)).values(by_flow=value))
            tx.execute(delete(arrivals).where(arrivals.c.task_id.in_(part)))


def successors(tx: Transaction, upstream_ids: Collection[int]) -> list[Any]:
    """Edges that lead on from ``upstream_ids``."""
    found: list[Any] = []
    for part in parts(upstream_ids):
        found += tx.rows(select(dependencies).where(dependencies.c.upstream_id.in_(part)))
    return found


def forerunners(tx: Transaction, task_ids: Collection[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    query = select(dependencies.c.task_id, dependencies.c.upstream_id).where(dependencies.c.task_id.in_(task_ids))
    for row in tx.rows(query):
        found.setdefault(row.task_id, []).append(row.upstream_id)
    return found


def flows_of(tx: Transaction, run_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Correlation id and trace of runs."""
    query = select(runs.c.id, runs.c.correlation_id, runs.c.traceparent).where(runs.c.id.in_(run_ids))
    return {row.id: (row.correlation_id, row.traceparent) for row in tx.rows(query)}


def arrive(tx: Transaction, task_id: int, flow: str, upstream_id: int, run_id: int, met: bool) -> None:
    """Note that a forerunner has ended; a later one of the same flow takes its place."""
    same = (arrivals.c.task_id == task_id, arrivals.c.flow == flow, arrivals.c.upstream_id == upstream_id)
    tx.execute(delete(arrivals).where(*same))
    values = {"task_id": task_id, "flow": flow, "upstream_id": upstream_id, "run_id": run_id, "met": met}
    tx.execute(insert(arrivals).values(values))


def arrived(tx: Transaction, task_id: int, flow: str) -> dict[int, bool]:
    """The forerunners that have ended so far, and whether each ended as asked for."""
    query = select(arrivals.c.upstream_id, arrivals.c.met).where(arrivals.c.task_id == task_id, arrivals.c.flow == flow)
    return {row.upstream_id: bool(row.met) for row in tx.rows(query)}


def forget(tx: Transaction, task_id: int, flow: str) -> None:
    tx.execute(delete(arrivals).where(arrivals.c.task_id == task_id, arrivals.c.flow == flow))
