"""The SQL of looking at runs: one, or a page of many.

A page costs the same however many runs there are. It is read along an index that has runs in their order: of a flow, of
an outcome that is no success, of a project, of a task, or of all. Where several must be read (two projects, three
outcomes), each is a strand by itself, and the strands are merged. What no index answers is looked for among the next
few thousand runs of a strand; where these are too few to fill the page, it names the place to go on from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import ARRAY, BigInteger, ColumnElement, Select, any_, bindparam, func, select

from weft.db import schema
from weft.db.database import Transaction
from weft.runs.listing import Listing, Row
from weft.runs.model import LIMITS, Outcome, Run, RunSpec, RunState
from weft.runs.window_store import EVERY_ID, beside, conditions, prepared

runs = schema.runs

NAMES = tuple(Run.__dataclass_fields__)
RUN = [runs.c[name] for name in NAMES]
"""The columns that people and programs see."""
ID = NAMES.index("id")

LOOKED_AT = (2_000, 10_000)
"""How many runs are looked at for one page: first a few, which are enough for most. The strands share them."""

MOST_PROJECTS = 100
"""How many projects are read one by one."""

FAILED = (Outcome.FAILED.value, Outcome.TIMEOUT.value, Outcome.LOST.value, *LIMITS)
CANCELLED = (Outcome.CANCELLED.value, Outcome.SKIPPED.value)
TROUBLES = {RunState.FAILED.value: FAILED, RunState.CANCELLED.value: CANCELLED}
"""The outcomes of states that are no success: runs that ended so have them in a column with an index."""

Page = tuple[list[int], int | None]
"""Ids in the order of the list, and the place to go on from where there may be more."""

_IN_LIST = select(*RUN).where(runs.c.id.in_(bindparam("ids", expanding=True)))
_IN_ARRAY = select(*RUN).where(runs.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger()))))
"""One value instead of fifty, where the database has such."""
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


def page(tx: Transaction, wanted: Listing) -> Page:
    """The ids of the next runs that are ``wanted``, and where to go on."""
    strands, asked = _strands(tx, wanted), prepared(tx, wanted.where)
    if asked is None:
        return [], None
    read = [_read(tx, wanted, strand, len(strands), asked) for strand in strands]
    ids = sorted((run_id for strand_ids, _ in read for run_id in strand_ids), key=wanted.order)
    edge = min((edge for _, edge in read if edge is not None), key=wanted.order, default=None)
    if edge is not None:  # beyond it, some strand has not been looked at
        ids = [run_id for run_id in ids if wanted.order(run_id) <= wanted.order(edge)]
    return (ids[: wanted.limit], ids[wanted.limit - 1]) if len(ids) > wanted.limit else (ids, edge)


def rows(tx: Transaction, ids: Sequence[int]) -> dict[int, Row]:
    """The runs of these ids."""
    query = _IN_ARRAY if tx.connection.dialect.name == "postgresql" else _IN_LIST
    found = tx.rows(query, {"ids": ids}) if ids else []
    return {row[ID]: row for row in found}


@dataclass(frozen=True, slots=True)
class Strand:
    """Runs that an index has: those whose columns are ``equal``, or who have a value in ``sparse``; else all runs."""

    equal: Mapping[str, str] = field(default_factory=dict)
    sparse: str | None = None
    """A column that few runs have a value in. Its index does not have them in their order."""
    means: tuple[str, ...] = ()
    """What need not be asked for beside it."""


def _strands(tx: Transaction, wanted: Listing) -> list[Strand]:
    """What to read along: whatever is likely to have the fewest."""
    where, state = wanted.where, wanted.where.get("state")
    if "correlation_id" in where:
        return [Strand({"correlation_id": where["correlation_id"]})]
    if state == RunState.RUNNING:
        return [Strand(sparse="lease_worker", means=("state",))]
    if state == RunState.QUEUED and _queue_is_short(tx):
        return [Strand(sparse=column, means=("state",)) for column in WAITING]
    if (outcome := where.get("outcome")) in FAILED + CANCELLED:
        return [Strand({"trouble": outcome}, means=("outcome",))]
    if state in TROUBLES:
        return [Strand({"trouble": each}, means=("state",)) for each in TROUBLES[state]]
    task = {"task": where["task"]} if "task" in where else {}
    projects = _projects(tx, wanted)
    return [Strand()] if projects is None else [Strand({"project": each} | task) for each in sorted(projects)]


def _projects(tx: Transaction, wanted: Listing) -> Collection[str] | None:
    """Those whose runs are read one by one. A task has its name in one project, so all are asked for it."""
    if "project" in wanted.where:
        return [wanted.where["project"]]
    if wanted.projects is not None or "task" not in wanted.where:
        return wanted.projects
    every = tx.rows(select(schema.lanes.c.project).distinct().limit(MOST_PROJECTS + 1))
    return [row[0] for row in every] if len(every) <= MOST_PROJECTS else None


WAITING = ("ready_lane", "not_before")
"""One of these a run has that waits for a worker, or for its time."""


def _queue_is_short(tx: Transaction) -> bool:
    """Whether so few wait that they can be sorted. In a long queue the newest runs are those that wait."""
    most = LOOKED_AT[-1]
    return all(int(tx.value(_count(column), {"most": most})) < most for column in WAITING)


@lru_cache
def _count(column: str) -> Select[Any]:
    some = select(runs.c.id).where(runs.c[column].is_not(None)).limit(bindparam("most")).subquery()
    return select(func.count()).select_from(some)


def _read(tx: Transaction, wanted: Listing, strand: Strand, among: int, given: Mapping[str, Any]) -> Page:
    within = wanted.projects if "project" not in strand.equal else None
    rest = tuple(name for name in wanted.where if name not in strand.equal and name not in strand.means)
    windowed = (given["low"], given["high"]) != EVERY_ID
    asked = Shape(tuple(strand.equal), strand.sparse, wanted.before is not None, wanted.oldest_first, windowed)
    values = {**given, **strand.equal, "before": wanted.before, "limit": wanted.limit + 1}
    values |= {} if within is None else {"within": sorted(within)}
    if strand.sparse is not None or not (rest or within):
        return _ids(tx, _query(asked, rest, within is not None, False), values), None
    for looked in LOOKED_AT:
        values["edge"] = edge = tx.value(_edge(asked), values | {"looked": max(1, looked // among)})
        ids = _ids(tx, _query(asked, rest, within is not None, edge is not None), values)
        if len(ids) > wanted.limit or edge is None:
            return ids, None
    return ids, edge


def _ids(tx: Transaction, query: Select[Any], values: Mapping[str, Any]) -> list[int]:
    return [row[0] for row in tx.rows(query, values)]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a strand is read, whatever its values are."""

    equal: tuple[str, ...]
    sparse: str | None
    onward: bool
    oldest_first: bool
    windowed: bool = False
    """Whether only ids from ``low`` to ``high`` are looked at."""

    def along(self, query: Select[Any]) -> Select[Any]:
        """The query for no more than the strand, in its order."""
        place: ColumnElement[int] = runs.c.id
        if self.sparse is not None:
            place = runs.c.id + 0  # else SQLite would rather look at every run than sort the few
            query = query.where(runs.c[self.sparse].is_not(None))
        query = query.where(*(runs.c[name] == bindparam(name) for name in self.equal))
        if self.onward:
            query = query.where(place > bindparam("before") if self.oldest_first else place < bindparam("before"))
        if self.windowed:
            query = query.where(place >= bindparam("low"), place <= bindparam("high"))
        return query.order_by(place if self.oldest_first else place.desc())


@lru_cache(1000)
def _query(shape: Shape, rest: tuple[str, ...], within: bool, edged: bool) -> Select[Any]:
    """Built once for each way of asking: to build it takes longer than to run it."""
    query = shape.along(select(runs.c.id)).where(*conditions(rest))
    if within:
        query = query.where(beside("project").in_(bindparam("within", expanding=True)))
    if edged:
        query = query.where(runs.c.id <= bindparam("edge") if shape.oldest_first else runs.c.id >= bindparam("edge"))
    return query.limit(bindparam("limit"))


@lru_cache(1000)
def _edge(shape: Shape) -> Select[Any]:
    """The last run of a strand that one page may look at."""
    return shape.along(select(runs.c.id)).limit(1).offset(bindparam("looked"))
