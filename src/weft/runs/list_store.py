"""The SQL of reading runs: one, or a page of a filtered list.

A page costs the same however many runs there are. It is read along an index that has runs in their order: of a flow, of
an outcome that is no success, of a project, of a task, or of all. Where several must be read (two projects, three
outcomes), each is a scan by itself, and the scans are merged. What no index answers is looked for among the next few
thousand runs of a scan; where these are too few to fill the page, it names the id to go on from.

Ids rise with time, so a span of time is a span of ids: both ends are found by halving. Runs that were imported have
times of their own; such a span has those that were imported in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import msgspec
from sqlalchemy import ARRAY, BigInteger, ColumnElement, Select, any_, bindparam, func, select

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.lanes import tag_limit
from weft.runs.model import FILTER_COLUMNS, LIMITS, SPEC_FILTERS, Run, RunListing, RunOutcome, RunRow, RunSpec, RunState
from weft.runs.success import MARKED, RunCondition

runs = schema.runs

COLUMN_NAMES = tuple(Run.__dataclass_fields__)
RUN_COLUMNS = [runs.c[name] for name in COLUMN_NAMES]
"""The columns that people and programs see."""
ID_COLUMN = COLUMN_NAMES.index("id")

LOOKED_AT = (2_000, 10_000)
"""How many runs are looked at for one page: first a few, which are enough for most. The scans share them."""

MOST_PROJECTS = 100
"""How many projects are read one by one."""

FAILED = (RunOutcome.FAILED.value, RunOutcome.TIMEOUT.value, RunOutcome.LOST.value, RunOutcome.CONDITION.value, *LIMITS)
CANCELLED = (RunOutcome.CANCELLED.value, RunOutcome.SKIPPED.value)
TROUBLES = {RunState.FAILED.value: FAILED, RunState.CANCELLED.value: CANCELLED}
"""The outcomes of states that are no success: runs that ended so have them in a column with an index."""

IdPage = tuple[list[int], int | None]
"""Ids in the order of the list, and the place to go on from where there may be more."""

_IN_LIST = select(*RUN_COLUMNS).where(runs.c.id.in_(bindparam("ids", expanding=True)))
_IN_ARRAY = select(*RUN_COLUMNS).where(runs.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger()))))
"""One value instead of fifty, where the database has such."""
_decode_spec = msgspec.json.Decoder(RunSpec).decode
_decode_conditions = msgspec.json.Decoder(tuple[RunCondition, ...]).decode
_STATES = {state.value: state for state in RunState}


def get(tx: Transaction, run_id: int, *, lock: bool = False) -> Run | None:
    query = select(*RUN_COLUMNS).where(runs.c.id == run_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else run_of(row)


def run_of(row: RunRow) -> Run:
    """A list has many runs, so columns are taken by place, not by name."""
    fields = dict(zip(COLUMN_NAMES, row, strict=True))
    fields["state"] = _STATES[fields["state"]]
    fields["spec"] = _decode_spec(fields["spec"])
    if fields["result"] is not None:
        fields["result"] = msgspec.json.decode(fields["result"])
    fields["marks"] = () if fields["marks"] is None else tuple(msgspec.json.decode(fields["marks"]))
    fields["conditions"] = () if fields["conditions"] is None else _decode_conditions(fields["conditions"])
    return Run(**fields)


def page(tx: Transaction, wanted: RunListing) -> IdPage:
    """The ids of the next runs that are ``wanted``, and where to go on."""
    scans, asked = _scans(tx, wanted), filter_values(tx, wanted.where)
    if asked is None:
        return [], None
    read = [_read(tx, wanted, scan, len(scans), asked) for scan in scans]
    ids = sorted((run_id for strand_ids, _ in read for run_id in strand_ids), key=wanted.order)
    edge = min((edge for _, edge in read if edge is not None), key=wanted.order, default=None)
    if edge is not None:  # beyond it, some scan has not been looked at
        ids = [run_id for run_id in ids if wanted.order(run_id) <= wanted.order(edge)]
    return (ids[: wanted.limit], ids[wanted.limit - 1]) if len(ids) > wanted.limit else (ids, edge)


def rows(tx: Transaction, ids: Sequence[int]) -> dict[int, RunRow]:
    """The runs of these ids."""
    query = _IN_ARRAY if tx.connection.dialect.name == "postgresql" else _IN_LIST
    found = tx.rows(query, {"ids": ids}) if ids else []
    return {row[ID_COLUMN]: row for row in found}


@dataclass(frozen=True, slots=True)
class IndexScan:
    """Runs that an index has: those whose columns are ``equal``, or who have a value in ``sparse``; else all runs."""

    equal: Mapping[str, str] = field(default_factory=dict)
    sparse: str | None = None
    """A column that few runs have a value in. Its index does not have them in their order."""
    means: tuple[str, ...] = ()
    """What need not be asked for beside it."""


def _scans(tx: Transaction, wanted: RunListing) -> list[IndexScan]:
    """What to read along: whatever is likely to have the fewest."""
    where, state = wanted.where, wanted.where.get("state")
    if "correlation_id" in where:
        return [IndexScan({"correlation_id": where["correlation_id"]})]
    if state == RunState.RUNNING:
        return [IndexScan(sparse="lease_worker", means=("state",))]
    if state == RunState.QUEUED and _queue_is_short(tx):
        return [IndexScan(sparse=column, means=("state",)) for column in WAITING]
    if "mark" in where:
        return [IndexScan({"trouble": MARKED})]
    if state == RunState.PAUSED:
        return [IndexScan({"trouble": RunState.PAUSED.value}, means=("state",))]
    if (outcome := where.get("outcome")) in FAILED + CANCELLED:
        return [IndexScan({"trouble": outcome}, means=("outcome",))]
    if state in TROUBLES:
        return [IndexScan({"trouble": each}, means=("state",)) for each in TROUBLES[state]]
    task = {"task": where["task"]} if "task" in where else {}
    projects = _projects(tx, wanted)
    return [IndexScan()] if projects is None else [IndexScan({"project": each} | task) for each in sorted(projects)]


def _projects(tx: Transaction, wanted: RunListing) -> Collection[str] | None:
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


def _read(tx: Transaction, wanted: RunListing, scan: IndexScan, among: int, given: Mapping[str, Any]) -> IdPage:
    within = wanted.projects if "project" not in scan.equal else None
    rest = tuple(name for name in wanted.where if name not in scan.equal and name not in scan.means)
    windowed = (given["low"], given["high"]) != EVERY_ID
    asked = ScanShape(tuple(scan.equal), scan.sparse, wanted.before is not None, wanted.oldest_first, windowed)
    values = {**given, **scan.equal, "before": wanted.before, "limit": wanted.limit + 1}
    values |= {} if within is None else {"within": sorted(within)}
    if scan.sparse is not None or not (rest or within):
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
class ScanShape:
    """How a scan is read, whatever its values are."""

    equal: tuple[str, ...]
    sparse: str | None
    onward: bool
    oldest_first: bool
    windowed: bool = False
    """Whether only ids from ``low`` to ``high`` are looked at."""

    def along(self, query: Select[Any]) -> Select[Any]:
        """The query for no more than the scan, in its order."""
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
def _query(shape: ScanShape, rest: tuple[str, ...], within: bool, edged: bool) -> Select[Any]:
    """Built once for each way of asking: to build it takes longer than to run it."""
    query = shape.along(select(runs.c.id)).where(*filter_conditions(rest))
    if within:
        query = query.where(without_index("project").in_(bindparam("within", expanding=True)))
    if edged:
        query = query.where(runs.c.id <= bindparam("edge") if shape.oldest_first else runs.c.id >= bindparam("edge"))
    return query.limit(bindparam("limit"))


@lru_cache(1000)
def _edge(shape: ScanShape) -> Select[Any]:
    """The last run of a scan that one page may look at."""
    return shape.along(select(runs.c.id)).limit(1).offset(bindparam("looked"))


lanes = schema.lanes

EVERY_ID = (0, 2**63 - 1)
APART = 1_000
"""How far ids may be from the order of time, where several processes queue runs."""


def filter_values(tx: Transaction, where: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a query; None where no run can be like this."""
    values = dict(where)
    values["low"], values["high"] = _window(tx, where.get("since"), where.get("until"))
    if "tag" in where and not (tagged := _tagged(tx, str(where["tag"]))):
        return None
    values |= {"tag": tagged} if "tag" in where else {}
    values |= {"mark": f'"{where["mark"]}"'} if "mark" in where else {}
    said = {name: msgspec.json.encode(str(where[name])).decode() for name in SPEC_FILTERS if name in where}
    return values | {name: SPEC_FILTERS[name] + value for name, value in said.items()}


def filter_conditions(names: Sequence[str]) -> list[ColumnElement[bool]]:
    return [_filter_condition(name) for name in names]


def without_index(name: str) -> ColumnElement[Any]:
    """A column as a value, so that no database thinks of reading along an index of its own."""
    return runs.c[name].concat("")


def _filter_condition(name: str) -> ColumnElement[bool]:
    if name in FILTER_COLUMNS:
        return without_index(name) == bindparam(name)
    if name in SPEC_FILTERS:
        return func.replace(runs.c.spec, bindparam(name), "") != runs.c.spec  # LIKE has no case on some databases
    if name == "mark":
        return func.replace(runs.c.marks, bindparam(name), "") != runs.c.marks
    if name == "tag":
        return runs.c.lane_id.in_(bindparam(name, expanding=True))
    return runs.c.queued_at >= bindparam(name) if name == "since" else runs.c.queued_at < bindparam(name)


def _tagged(tx: Transaction, tag: str) -> list[int]:
    """The lanes of runs that have a tag: each tag has a limit, and with it lanes of its own."""
    named = lanes.c.limits.contains(f":{tag}", autoescape=True)
    query = select(lanes.c.id, lanes.c.project, lanes.c.limits).where(named)
    return [row.id for row in tx.rows(query) if tag_limit(row.project, tag) in msgspec.json.decode(row.limits)]


def _window(tx: Transaction, since: Moment | None, until: Moment | None) -> tuple[int, int]:
    if since is None and until is None:
        return EVERY_ID
    last = int(tx.value(select(runs.c.id).order_by(runs.c.id.desc()).limit(1)) or 0)
    low = EVERY_ID[0] if since is None else max(0, _first_at(tx, since, last) - APART)
    high = EVERY_ID[1] if until is None else _first_at(tx, until, last) + APART
    return low, high


def _first_at(tx: Transaction, at: Moment, last: int) -> int:
    """About the first id of those that were queued at a moment or later: one step in the index a halving."""
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        row = tx.rows(_next_queued(), {"middle": middle, "high": high})
        if not row or row[0].queued_at >= at:
            high = middle
        else:
            low = row[0].id + 1
    return low


@cache
def _next_queued() -> Select[Any]:
    """The first run from an id on."""
    there = (runs.c.id >= bindparam("middle"), runs.c.id < bindparam("high"))
    return select(runs.c.id, runs.c.queued_at).where(*there).order_by(runs.c.id).limit(1)
