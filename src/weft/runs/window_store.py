"""The SQL of what may be asked of runs beside the index that they are read along: columns, tags, words of their specs,
and when they were queued.

Ids rise with time, so a span of time is a span of ids: both ends are found by halving. Runs that were imported have
times of their own; such a span has those that were imported in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, func, select

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.lanes import tag_limit
from weft.runs.listing import COLUMNS, IN_SPEC

runs, lanes = schema.runs, schema.lanes

EVERY_ID = (0, 2**63 - 1)
APART = 1_000
"""How far ids may be from the order of time, where several processes queue runs."""


def prepared(tx: Transaction, where: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of a query; None where no run can be like this."""
    values = dict(where)
    values["low"], values["high"] = _window(tx, where.get("since"), where.get("until"))
    if "tag" in where and not (tagged := _tagged(tx, str(where["tag"]))):
        return None
    values |= {"tag": tagged} if "tag" in where else {}
    said = {name: msgspec.json.encode(str(where[name])).decode() for name in IN_SPEC if name in where}
    return values | {name: IN_SPEC[name] + value for name, value in said.items()}


def conditions(names: Sequence[str]) -> list[ColumnElement[bool]]:
    return [_condition(name) for name in names]


def beside(name: str) -> ColumnElement[Any]:
    """A column as a value, so that no database thinks of reading along an index of its own."""
    return runs.c[name].concat("")


def _condition(name: str) -> ColumnElement[bool]:
    if name in COLUMNS:
        return beside(name) == bindparam(name)
    if name in IN_SPEC:
        return func.replace(runs.c.spec, bindparam(name), "") != runs.c.spec  # LIKE has no case on some databases
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
        row = tx.rows(_next(), {"middle": middle, "high": high})
        if not row or row[0].queued_at >= at:
            high = middle
        else:
            low = row[0].id + 1
    return low


@cache
def _next() -> Select[Any]:
    """The first run from an id on."""
    there = (runs.c.id >= bindparam("middle"), runs.c.id < bindparam("high"))
    return select(runs.c.id, runs.c.queued_at).where(*there).order_by(runs.c.id).limit(1)
