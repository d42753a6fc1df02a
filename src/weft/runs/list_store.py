"""The SQL of looking at runs: one, or a page of many.

A page costs the same however many runs there are. It is read along an index that has runs in their order: of a flow, of
an outcome that is no success, of a task, of a project, or of all. Where several must be read (two projects, three
outcomes), each is a strand by itself, and the strands are merged. What no index answers is looked for among the next
few thousand runs of a strand; where these are too few to fill the page, it names the place to go on from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select

from weft.db import schema
from weft.db.database import Transaction
from weft.runs.listing import Found, Listing, Row
from weft.runs.model import Outcome, Run, RunSpec, RunState

runs = schema.runs

NAMES = tuple(Run.__dataclass_fields__)
RUN = [runs.c[name] for name in NAMES]
"""The columns that people and programs see."""
ID = NAMES.index("id")

MOST_LOOKED_AT = 10_000
"""How many runs of a strand are looked at for one page."""

_FAILED = (Outcome.FAILED.value, Outcome.TIMEOUT.value, Outcome.LOST.value)
_CANCELLED = (Outcome.CANCELLED.value, Outcome.SKIPPED.value)
TROUBLES = {each: (each,) for each in _FAILED + _CANCELLED}
"""Outcomes that are no success: runs that ended so have them in a column with an index."""
TROUBLED = {RunState.FAILED.value: _FAILED, RunState.CANCELLED.value: _CANCELLED}
"""The outcomes of a state."""

SPARSE: dict[str, ColumnElement[bool]] = {
    RunState.QUEUED.value: or_(runs.c.ready_lane.is_not(None), runs.c.not_before.is_not(None)),
    RunState.RUNNING.value: runs.c.lease_worker.is_not(None),
}
"""States of runs that have not ended: those that have a column which others lack. They are few, or the newest."""

_decode_spec = msgspec.json.Decoder(RunSpec).decode
_STATES = {state.value: state for state in RunState}


def get(tx: Transaction, run_id: int, *, lock: bool = False) -> Run | None:
    query = select(*RUN).where(runs.c.id == run_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else run_of(row)


def run_of(row: Row) -> Run:
    """A list has many runs, so columns are taken by place, not by name."""
    fields = dict(zip(NAMES, row, strict=True))
    fields["state"] = _STATES[fields["state"]]
    fields["spec"] = _decode_spec(fields["spec"])
    if fields["result"] is not None:
        fields["result"] = msgspec.json.decode(fields["result"])
    return Run(**fields)


def page(tx: Transaction, wanted: Listing) -> Found:
    """The next runs that are ``wanted``, and where to go on."""
    read = [_read(tx, wanted, strand) for strand in _strands(tx, wanted)]
    rows = sorted((row for found in read for row in found.rows), key=lambda row: wanted.order(row[ID]))
    edges = [found.next for found in read if found.next is not None]
    edge = min(edges, key=wanted.order) if edges else None
    if edge is not None:  # beyond it, some strand has not been looked at
        rows = [row for row in rows if wanted.order(row[ID]) <= wanted.order(edge)]
    if len(rows) > wanted.limit:
        return Found(rows[: wanted.limit], rows[wanted.limit - 1][ID])
    return Found(rows, edge)


@dataclass(frozen=True, slots=True)
class Strand:
    """Runs that an index has: those whose ``column`` is ``value``, or who are sparse, or all."""

    column: str | None = None
    value: str | None = None
    sparse: str | None = None


def _strands(tx: Transaction, wanted: Listing) -> list[Strand]:
    """What to read along: whatever is likely to have the fewest."""
    where, state = wanted.where, wanted.where.get("state")
    if "correlation_id" in where:
        return [Strand("correlation_id", where["correlation_id"])]
    if state == RunState.RUNNING or (state == RunState.QUEUED and _queue_is_short(tx)):
        return [Strand(sparse=str(state))]
    if troubles := TROUBLES.get(str(where.get("outcome"))) or TROUBLED.get(str(state)):
        return [Strand("trouble", trouble) for trouble in troubles]
    if "task" in where:
        return [Strand("task", where["task"])]
    projects = {where["project"]} if "project" in where else wanted.projects
    return [Strand()] if projects is None else [Strand("project", project) for project in sorted(projects)]


def _queue_is_short(tx: Transaction) -> bool:
    """Whether so few wait that they can be sorted. In a long queue the newest runs are those that wait."""
    some = select(runs.c.id).where(SPARSE[RunState.QUEUED.value]).limit(MOST_LOOKED_AT).subquery()
    return int(tx.value(select(func.count()).select_from(some))) < MOST_LOOKED_AT


def _read(tx: Transaction, wanted: Listing, strand: Strand) -> Found:
    rest = {name: value for name, value in wanted.where.items() if name != strand.column}
    within = wanted.projects if strand.column != "project" else None
    values = {**rest, "of": strand.value, "before": wanted.before, "limit": wanted.limit + 1}
    values |= {} if within is None else {"within": sorted(within)}
    shape = Shape(strand.column, strand.sparse, wanted.before is not None, wanted.oldest_first)
    if strand.sparse is not None or not (rest or within is not None):
        return Found(tx.rows(_query(shape, tuple(rest), within is not None, False), values), None)
    values["edge"] = tx.value(_edge(shape), {"of": strand.value, "before": wanted.before, "looked": MOST_LOOKED_AT})
    rows = tx.rows(_query(shape, tuple(rest), within is not None, values["edge"] is not None), values)
    return Found(rows, values["edge"] if len(rows) <= wanted.limit else None)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a strand is read, whatever its values are."""

    column: str | None
    sparse: str | None
    onward: bool
    oldest_first: bool


@lru_cache(1000)
def _query(shape: Shape, rest: tuple[str, ...], within: bool, edged: bool) -> Select[Any]:
    """Built once for each way of asking: to build it takes longer than to run it."""
    query = _along(select(*RUN), shape).where(*(_beside(name) == bindparam(name) for name in rest))
    if within:
        query = query.where(_beside("project").in_(bindparam("within", expanding=True)))
    if edged:
        query = query.where(runs.c.id <= bindparam("edge") if shape.oldest_first else runs.c.id >= bindparam("edge"))
    return query.limit(bindparam("limit"))


@lru_cache(1000)
def _edge(shape: Shape) -> Select[Any]:
    """The last run of a strand that one page may look at."""
    return _along(select(runs.c.id), shape).limit(1).offset(bindparam("looked"))


def _along(query: Select[Any], shape: Shape) -> Select[Any]:
    if shape.column is not None:
        query = query.where(runs.c[shape.column] == bindparam("of"))
    if shape.sparse is not None:
        query = query.where(SPARSE[shape.sparse])
    if shape.onward:
        query = query.where(runs.c.id > bindparam("before") if shape.oldest_first else runs.c.id < bindparam("before"))
    return query.order_by(runs.c.id if shape.oldest_first else runs.c.id.desc())


def _beside(name: str) -> ColumnElement[Any]:
    """A column as a value, so that no database thinks of reading along an index of its own."""
    return runs.c[name].concat("")
