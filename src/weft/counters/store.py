"""What is counted under which names, and the SQL of these counters.

What is counted is only ever inserted (``count_entries``), so that no two transactions wait for the same row. One
process folds it into ``counts`` a moment later; who reads adds up both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Update, bindparam, case, delete, func, or_, select, update

from weft.clock import SECOND, Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing_many, skip_locked
from weft.db.database import Transaction
from weft.metrics import FETCH_BOUNDS

ITEMS, PAGES, ERRORS, BYTES = "items", "pages", "errors", "bytes"
MESSAGES = "messages"
"""From queues."""
ASKS, ASKS_MET = "asks", "asks_met"
"""How often crawls asked for hosts, and how often they were given any."""
URLS, ENDED, STATE = "urls/", "ended/", "state/"
"""URLs that crawls have finished, and runs that have ended: by state and by outcome."""
FETCH, DISPATCH, LATENESS = "fetch_seconds", "dispatch_seconds", "lateness_seconds"
SUM = "sum"
"""Of a histogram, in microseconds; its other counts have the upper bound of their bucket at the end of their name."""

MOST_AT_ONCE = 2**40
"""By how much a spider, which may say anything of itself, can make a counter grow at once."""
BEYOND = "+Inf"

OF_STATS = {
    "response_received_count": PAGES,
    "log_count/ERROR": ERRORS,
    "downloader/response_bytes": BYTES,
    "crawl/asks": ASKS,
    "crawl/asks_met": ASKS_MET,
    **{f"crawl/urls/{state}": URLS + state for state in ("done", "failed", "skipped")},
    **{f"weft/fetch_seconds/{bound}": f"{FETCH}/{bound}" for bound in (*map("{:g}".format, FETCH_BOUNDS), BEYOND)},
}
"""The statistics of attempts that are counted, by the names that spiders and crawls give them."""
FETCH_SUM = "weft/fetch_seconds"

BY_WORKER = frozenset((ITEMS, PAGES, ERRORS, BYTES))
BY_TIME = (ITEMS, PAGES, ERRORS, BYTES, ASKS, ASKS_MET, URLS, STATE)
"""What is kept minute by minute as well: names, or how they begin."""


@dataclass(frozen=True, slots=True)
class CounterIncrement:
    """How much more there is of what, since it was last counted."""

    project: str
    values: Mapping[str, int]
    name: str = ""
    """The spider or the crawl."""
    worker: str = ""


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """Counts of one step after the other; the last step is not over yet."""

    begins_at: Moment
    step_seconds: int
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def of(self, metric: str) -> Sequence[int]:
        return self.counts.get(metric) or [0] * self.steps

    @property
    def steps(self) -> int:
        return STEPS[self.step_seconds]


MINUTE, TEN_MINUTES = 60, 600
STEPS = {MINUTE: 60, TEN_MINUTES: 144}
"""Seconds that are counted together, and how many of them are shown: an hour and a day."""


def merged(counts: Iterable[CounterIncrement]) -> list[CounterIncrement]:
    """One for each project, name and worker; none that counts nothing."""
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for each in counts:
        found.setdefault((each.project, each.name, each.worker), Counter()).update(each.values)
    return [
        CounterIncrement(project, {metric: value for metric, value in values.items() if value > 0}, name, worker)
        for (project, name, worker), values in sorted(found.items())
        if any(value > 0 for value in values.values())
    ]


def growth(counted: Mapping[str, int], stats: Mapping[str, Any]) -> dict[str, int]:
    """What the statistics of an attempt tell beyond what was counted of them before."""
    told = {metric: _number(stats[name]) for name, metric in OF_STATS.items() if name in stats}
    told[f"{FETCH}/{SUM}"] = _microseconds(stats.get(FETCH_SUM))
    found = {metric: value - counted.get(metric, 0) for metric, value in told.items()}
    return {metric: min(value, MOST_AT_ONCE) for metric, value in found.items() if value > 0}


def observed(metric: str, bounds: tuple[float, ...], spans: Iterable[Moment]) -> dict[str, int]:
    """Values of a histogram."""
    found: dict[int, int] = {}
    total = 0
    for span in spans:
        place = bisect_left(bounds, span / SECOND)
        found[place] = found.get(place, 0) + 1
        total += max(span, 0)
    if not found:
        return {}
    names = _bucket_names(bounds)
    return {f"{metric}/{names[place]}": count for place, count in found.items()} | {f"{metric}/{SUM}": total}


@cache
def _bucket_names(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map("{:g}".format, bounds), BEYOND)


def is_by_time(metric: str) -> bool:
    return metric.startswith(BY_TIME)


def is_by_worker(metric: str) -> bool:
    return metric in BY_WORKER or metric.startswith(ENDED)


def _number(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 2**53:
        return 0
    return int(value)


def _microseconds(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 2**33:
        return 0
    return round(value * SECOND)


counts, entries, workers = schema.counts, schema.count_entries, schema.workers

KEY = ("step", "at", "project", "name", "worker", "metric")
TOTAL = 0
"""The step of a count of all time."""
LARGEST = 2**61
"""A count that is so large stays as it is."""

CounterKey = tuple[int, Moment, str, str, str, str]
CounterEntry = tuple[Moment, CounterIncrement]


def add(tx: Transaction, counted: Sequence[CounterIncrement], at: Moment) -> None:
    """Count this, in the transaction that makes it true."""
    rows = [
        {
            "at": at,
            "project": each.project,
            "name": each.name,
            "worker": each.worker,
            "counted": msgspec.json.encode(each.values).decode(),
        }
        for each in merged(counted)
    ]
    insert_many(tx, entries, rows)


def unfolded(tx: Transaction) -> list[CounterEntry]:
    """What was counted and is not folded yet."""
    return [(row.at, _count(row)) for row in tx.rows(select(entries).order_by(entries.c.id))]


def has_unfolded(tx: Transaction) -> bool:
    return tx.value(select(entries.c.id).limit(1)) is not None


def take(tx: Transaction, limit: int) -> list[CounterEntry]:
    """Remove the oldest entries, to be folded in this transaction; those that another takes are passed over."""
    rows = tx.rows(skip_locked(select(entries).order_by(entries.c.id).limit(limit)))
    ids = [row.id for row in rows]
    if ids:
        tx.execute(delete(entries).where(entries.c.id.in_(ids)))
    return [(row.at, _count(row)) for row in rows]


def _count(row: Any) -> CounterIncrement:
    return CounterIncrement(row.project, msgspec.json.decode(row.counted), row.name, row.worker)


def grow(tx: Transaction, by: Mapping[CounterKey, int]) -> None:
    """Let counts grow, each by so much; in the order of their keys, so that two never wait for each other."""
    rows = [dict(zip(KEY, key, strict=True)) for key in sorted(by)]
    insert_missing_many(tx, counts, [row | {"value": 0} for row in rows])
    if rows:
        tx.execute(
            _grow(), [{f"m_{name}": row[name] for name in KEY} | {"by": min(by[_key(row)], LARGEST)} for row in rows]
        )


def _key(row: Mapping[str, Any]) -> CounterKey:
    return row["step"], row["at"], row["project"], row["name"], row["worker"], row["metric"]


@cache
def _grow() -> Update:
    more = case((counts.c.value >= LARGEST, counts.c.value), else_=counts.c.value + bindparam("by"))
    return update(counts).where(*(counts.c[name] == bindparam(f"m_{name}") for name in KEY)).values(value=more)


def totals(tx: Transaction) -> dict[tuple[str, str, str, str], int]:
    """All counts of all time, by project, name, worker and metric."""
    columns = (counts.c.project, counts.c.name, counts.c.worker, counts.c.metric, counts.c.value)
    return {(row[0], row[1], row[2], row[3]): int(row[4]) for row in tx.rows(select(*columns).where(_are_totals()))}


def names(tx: Transaction) -> set[tuple[str, str]]:
    """The spiders and crawls that are counted by themselves, with their projects."""
    query = select(counts.c.project, counts.c.name).where(_are_totals(), counts.c.name != "").distinct()
    return {(row[0], row[1]) for row in tx.rows(query)}


def _are_totals() -> ColumnElement[bool]:
    return (counts.c.step == TOTAL) & (counts.c.at == 0)


def since(
    tx: Transaction, step: int, first: Moment, projects: Collection[str] | None
) -> Sequence[tuple[Moment, str, int]]:
    """What was counted in each step from one on, of all projects or of some."""
    query = select(counts.c.at, counts.c.metric, func.sum(counts.c.value))
    query = query.where(counts.c.step == step, counts.c.at >= first)
    if projects is not None:
        query = query.where(counts.c.project.in_(list(projects)))
    return [(row[0], row[1], int(row[2])) for row in tx.rows(query.group_by(counts.c.at, counts.c.metric))]


def forget(tx: Transaction, before: Mapping[int, Moment]) -> int:
    """Remove steps that are no longer shown, by their length, and the counts of workers that are forgotten."""
    old = or_(*((counts.c.step == step) & (counts.c.at < first) for step, first in before.items()))
    gone = _are_totals() & (counts.c.worker != "") & counts.c.worker.not_in(select(workers.c.name))
    return sum(tx.execute(delete(counts).where(condition)).rowcount for condition in (old, gone))
