"""The SQL of looking at runs: one, or a page of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, or_, select

from weft.db import schema
from weft.db.database import Transaction
from weft.runs.listing import Listing, Row
from weft.runs.model import Outcome, Run, RunSpec, RunState

runs = schema.runs

NAMES = tuple(Run.__dataclass_fields__)
RUN = [runs.c[name] for name in NAMES]
"""The columns that people and programs see."""
PLACE_OF_ID = NAMES.index("id")

_decode_spec = msgspec.json.Decoder(RunSpec).decode
_STATES = {state.value: state for state in RunState}


def get(tx: Transaction, run_id: int, *, lock: bool = False) -> Run | None:
    query = select(*RUN).where(runs.c.id == run_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else run_of(row)


def page(tx: Transaction, wanted: Listing) -> Sequence[Row]:
    """The rows of the runs that are ``wanted``.

    Each of its projects is read by itself, along its own index, so that a project with few runs is found as quickly as
    one with millions.
    """
    if wanted.projects is None:
        return _rows(tx, wanted, wanted.where)
    named = wanted.where.get("project")
    each = [
        _rows(tx, wanted, {**wanted.where, "project": project})
        for project in sorted(wanted.projects)
        if named in (None, project)
    ]
    if len(each) == 1:
        return each[0]
    together = sorted((row for rows in each for row in rows), key=_id, reverse=not wanted.oldest_first)
    return together[: wanted.limit]


def run_of(row: Row) -> Run:
    """A list has many runs, so columns are taken by place, not by name."""
    fields = dict(zip(NAMES, row, strict=True))
    fields["state"] = _STATES[fields["state"]]
    fields["spec"] = _decode_spec(fields["spec"])
    if fields["result"] is not None:
        fields["result"] = msgspec.json.decode(fields["result"])
    return Run(**fields)


def _rows(tx: Transaction, wanted: Listing, where: Mapping[str, Any]) -> Sequence[Row]:
    few = where.get("state")
    query = _query(tuple(where), few if few in FEW else None, wanted.before is not None, wanted.oldest_first)
    return tx.rows(query, {**where, "before": wanted.before, "limit": wanted.limit})


@lru_cache(1000)
def _query(names: tuple[str, ...], few: str | None, onward: bool, oldest_first: bool) -> Select[Any]:
    """Built once for each way of asking: to build it takes longer than to run it."""
    query = select(*RUN).where(*(runs.c[name] == bindparam(name) for name in names))
    if few is not None:
        query = query.where(FEW[few])
    if onward:
        query = query.where(runs.c.id > bindparam("before") if oldest_first else runs.c.id < bindparam("before"))
    return query.order_by(runs.c.id if oldest_first else runs.c.id.desc()).limit(bindparam("limit"))


FEW: dict[str, ColumnElement[bool]] = {
    RunState.QUEUED.value: or_(runs.c.ready_lane.is_not(None), runs.c.not_before.is_not(None)),
    RunState.RUNNING.value: runs.c.lease_worker.is_not(None),
    RunState.FAILED.value: runs.c.trouble.in_([Outcome.FAILED.value, Outcome.TIMEOUT.value, Outcome.LOST.value]),
    RunState.CANCELLED.value: runs.c.trouble.in_([Outcome.CANCELLED.value, Outcome.SKIPPED.value]),
}
"""States that few runs are in are found by a column that only those have, since that has an index."""


def _id(row: Row) -> int:
    return int(row[PLACE_OF_ID])
