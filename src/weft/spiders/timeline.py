"""The timelines of runs: their samples, their throughput, and how each compares with the runs before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from weft.clock import SECOND, Moment
from weft.db.database import Database, Transaction
from weft.items import item_store
from weft.items.item_store import last_attempt
from weft.items.model import Timeline
from weft.runs.model import Run, RunState
from weft.spiders import store
from weft.spiders.baseline import DriftMark, RunProfile, median

MOST_SUCCEEDED = 10
"""Of so many runs that succeeded the middle is told."""
MOST_FIELDS = 100
"""Of so many fields, those that most items have, it is told how many have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """A run, or the middle of several, in figures; None: nobody knows."""

    run_id: int | None = None
    state: str | None = None
    seconds: float | None = None
    items: float | None = None
    requests: float | None = None
    errors: float | None = None
    fields: Mapping[str, float] | None = None
    """For each field the share of the items that have it, of a run that has succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A run beside the last one before it that ended, and beside the middle of the last ten that succeeded."""

    run: RunFigures
    previous: RunFigures | None
    median: RunFigures | None
    count: int
    """How many runs the middle is of."""
    marks: Sequence[DriftMark]
    """What is unusual about the run."""


class _DriftResult(msgspec.Struct):
    marks: list[DriftMark] = []


class Timelines:
    """Looks back; what it costs does not depend on how many runs there are."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def curve(self, run_id: int, attempt: int | None = None) -> Timeline | None:
        """How an attempt of a run went, the last that has told anything unless named; None where none has."""

        def work(tx: Transaction) -> Timeline | None:
            number = last_attempt(tx, run_id) if attempt is None else attempt
            return None if number is None else item_store.timeline(tx, (run_id, number))

        return await self._db.read(work)

    async def comparison(self, run: Run) -> RunComparison:
        return await self._db.read(lambda tx: _comparison(tx, run))


def _comparison(tx: Transaction, run: Run) -> RunComparison:
    before = [row for row in store.ended_before(tx, run) if _is_alike(row, run)]
    good = [row for row in before if row.state == RunState.SUCCEEDED][:MOST_SUCCEEDED]
    stats = store.whole_stats_of(tx, {run.id, *(row.id for row in before[:1]), *(row.id for row in good)})
    figures = {row.id: _figures(row, stats.get(row.id, ())) for row in (run, *before[:1], *good)}
    drift = stats[run.id][-1].drift if run.id in stats else None
    return RunComparison(
        run=figures[run.id],
        previous=figures[before[0].id] if before else None,
        median=_median_figures([figures[row.id] for row in good]) if good else None,
        count=len(good),
        marks=[] if drift is None else msgspec.json.decode(drift, type=_DriftResult).marks,
    )


def _is_alike(row: Any, run: Run) -> bool:
    if row.kind != run.kind or row.task_id != run.task_id:
        return False
    return run.task_id is not None or store.spec_of(row).get("spider") == run.spec.spec.get("spider")


def _figures(run: Any, rows: Sequence[Any]) -> RunFigures:
    seconds = _seconds(run.started_at, run.finished_at)
    if not rows:
        return RunFigures(run_id=run.id, state=str(run.state), seconds=seconds)
    told = [item_store.sample_of(msgspec.json.decode(row.stats), row.yielded, 0) for row in rows]
    profile = None if rows[-1].profile is None else msgspec.json.decode(rows[-1].profile, type=RunProfile)
    return RunFigures(
        run_id=run.id,
        state=str(run.state),
        seconds=seconds,
        items=sum(each.items for each in told),
        requests=sum(each.requests for each in told),
        errors=sum(each.errors for each in told),
        fields=None if profile is None else dict(_fullest(profile.fields)),
    )


def _seconds(started_at: Moment | None, finished_at: Moment | None) -> float | None:
    return None if started_at is None or finished_at is None else max((finished_at - started_at) / SECOND, 0.0)


def _fullest(fields: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(fields.items(), key=lambda each: (-each[1], each[0]))[:MOST_FIELDS]


def _median_figures(runs: Sequence[RunFigures]) -> RunFigures:
    known = [each.fields for each in runs if each.fields is not None]
    names = {name for fields in known for name in fields}
    shares = {name: median([fields.get(name, 0.0) for fields in known]) for name in names}
    return RunFigures(
        seconds=_median(runs, lambda each: each.seconds),
        items=_median(runs, lambda each: each.items),
        requests=_median(runs, lambda each: each.requests),
        errors=_median(runs, lambda each: each.errors),
        fields=dict(_fullest(shares)) if known else None,
    )


def _median(runs: Sequence[RunFigures], figure: Callable[[RunFigures], float | None]) -> float | None:
    known = [value for each in runs if (value := figure(each)) is not None]
    return median(known) if known else None


POINTS = 20
"""How many points the curve of a run in a list has."""


@dataclass(frozen=True, slots=True)
class RunThroughput:
    """What a run has yielded, and how many items came each minute between its last samples."""

    items: int
    rates: tuple[int, ...] = ()


class Throughput:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def of(self, run_ids: Sequence[int]) -> dict[int, RunThroughput]:
        """Of each run that yields items; the rates only of those that run."""
        return await self._db.read(lambda tx: _throughput(tx, run_ids))


def _throughput(tx: Transaction, run_ids: Sequence[int]) -> dict[int, RunThroughput]:
    found: dict[int, RunThroughput] = {}
    for run_id, attempts in item_store.yields_by_attempt(tx, run_ids).items():
        last = max(attempts)
        whole = item_store.whole_attempts(tx, run_id) if len(attempts) > 1 else {last}
        items = sum(count for attempt, (count, _) in attempts.items() if attempt in whole)
        found[run_id] = RunThroughput(items, _rates(tx, run_id, last) if attempts[last][1] else ())
    return found


def _rates(tx: Transaction, run_id: int, attempt: int) -> tuple[int, ...]:
    """Items a minute, from one sample to the next."""
    samples = item_store.newest_samples(tx, run_id, attempt, POINTS + 1)
    return tuple(
        max(0, round((items - before) * 60 * SECOND / max(at - since, 1)))
        for (since, before), (at, items) in pairwise(samples)
    )
