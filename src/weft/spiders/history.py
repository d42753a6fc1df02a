"""The front door to the history of spiders: the runs of one, all spiders of a project, all projects.

However long the history is, a query costs the same: the newest runs count, up to a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weft.clock import SECOND, Moment
from weft.db.database import Database, Transaction
from weft.projects.model import Spider
from weft.runs.model import RunSpec
from weft.runs.success import RunCondition
from weft.spiders import store
from weft.spiders.baseline import MOST_BASELINE_RUNS, HealthStatus, RunProfile, RunResult, health_of, is_flaky

MOST_OF_PROJECT = 500
"""How many of a project's newest runs its overview is made from."""
MOST_STATES = 20
"""How many of its newest runs tell how a project is."""
MOST_HEALTH = 300
"""How many of its newest runs tell how well its tasks do; of each task, at least its own last twenty."""
MOST_SILENT = 100
"""Of how many runs that said nothing at their end the statistics are read."""

_conditions_of = msgspec.json.Decoder(tuple[RunCondition, ...]).decode
_spec_of = msgspec.json.Decoder(RunSpec).decode
_spiders_of = msgspec.json.Decoder(tuple[Spider, ...]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run of a spider in figures."""

    run_id: int
    task: str
    version: str
    state: str
    outcome: str | None
    reason: str | None
    trigger: str
    queued_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    items: int
    pages: int
    errors: int
    requests: int | None
    warnings: int | None
    marks: tuple[str, ...]
    conditions: tuple[RunCondition, ...]
    args: Mapping[str, Any]
    settings: Mapping[str, Any]
    profile: RunProfile | None
    """Of a run that succeeded: the figures that later ones are compared with."""
    drifted: bool

    @property
    def seconds(self) -> float | None:
        return _seconds(self.started_at, self.finished_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpiderHistory:
    """What a spider did lately, newest first, and the tasks that use it."""

    runs: Sequence[PastRun]
    tasks: Sequence[str]


@dataclass(slots=True)
class SpiderHealth:
    """How one spider of a project did lately."""

    runs: int = 0
    items: int = 0
    pages: int = 0
    seconds: float = 0.0
    """Of the runs that have ended, all together."""
    ended: int = 0
    errors: int = 0
    states: list[str] = field(default_factory=list)
    """How its newest runs stand, newest first."""
    came_out: list[RunResult] = field(default_factory=list)
    """How its newest runs that have ended came out, newest first."""
    last_run_id: int = 0
    last_at: Moment = 0

    @property
    def is_flaky(self) -> bool:
        return is_flaky(self.states)

    @property
    def health(self) -> HealthStatus:
        return health_of(self.came_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHealth:
    """How a project is."""

    version: str | None
    spiders: int
    deployed_at: Moment | None
    deployed_by: str | None
    queued: int
    paused: int
    running: int
    states: Sequence[str]
    """How its newest runs stand, newest first."""
    healths: Mapping[str, HealthStatus]
    """How well each of its tasks does; a spider that was run by hand counts as one."""
    last_at: Moment | None


class SpiderHistories:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def of_spider(self, project: str, spider: str, limit: int) -> SpiderHistory:
        def work(tx: Transaction) -> SpiderHistory:
            tasks = store.tasks_of(tx, project, spider)
            rows = store.newest_of_spider(tx, project, spider, tasks, limit)
            yields, told = store.attempts_of(tx, [row.id for row in rows]), _stats_by_run(tx, rows)
            runs = [_past_run(row, yields.get((row.id, row.attempt)), told[row.id]) for row in rows]
            return SpiderHistory(runs=runs, tasks=tasks)

        return await self._db.read(work)

    async def of_project(self, project: str) -> dict[str, SpiderHealth]:
        """Each spider that is among the newest runs of a project, and those of its tasks and current code."""

        def work(tx: Transaction) -> dict[str, SpiderHealth]:
            newest = store.newest_of_project(tx, project, MOST_OF_PROJECT, each=MOST_BASELINE_RUNS)
            rows = [row for row in newest if row.kind == store.SPIDER_KIND]
            counts, told = store.counts_of(tx, [row.id for row in rows]), _stats_by_run(tx, rows)
            found: dict[str, SpiderHealth] = {}
            for row in rows:
                if spider := store.spider_of(row):
                    _count(found.setdefault(spider, SpiderHealth()), row, counts, told[row.id])
            return found

        return await self._db.read(work)

    async def of_projects(self, names: Collection[str]) -> dict[str, ProjectHealth]:
        return await self._db.read(lambda tx: _spider_healths(tx, names))


def _stats_by_run(tx: Transaction, rows: Sequence[Any]) -> dict[int, Mapping[str, Any]]:
    """What each run said at its end; of those that were cut short or still run, the newest, what they have counted."""
    silent = [row.id for row in rows if row.result is None and row.started_at is not None]
    so_far = store.live_stats_of(tx, silent[:MOST_SILENT])
    return {row.id: store.text_stats(row.result) or so_far.get((row.id, row.attempt), {}) for row in rows}


def _past_run(row: Any, yielded: Any, told: Mapping[str, Any]) -> PastRun:
    spec = _spec_of(row.spec)
    args, settings = spec.spec.get("args"), spec.spec.get("settings")
    names = ("task", "state", "outcome", "reason", "trigger", "queued_at", "started_at", "finished_at")
    profile = None if yielded is None else yielded.profile
    return PastRun(
        run_id=row.id,
        version=spec.code.version if spec.code else "",
        items=_whole(told.get("items")) if yielded is None else yielded.items,
        pages=_whole(told.get("pages") if row.pages is None else row.pages),
        errors=_whole(told.get("errors") if row.errors is None else row.errors),
        requests=row.requests,
        warnings=row.warnings,
        marks=() if row.marks is None else tuple(msgspec.json.decode(row.marks)),
        conditions=() if row.conditions is None else _conditions_of(row.conditions),
        args={**(args if isinstance(args, dict) else {}), **spec.params},
        settings=settings if isinstance(settings, dict) else {},
        profile=None if profile is None else msgspec.json.decode(profile, type=RunProfile),
        drifted=yielded is not None and yielded.drift is not None,
        **{name: getattr(row, name) for name in names},
    )


def _count(
    spider_health: SpiderHealth, row: Any, counts: Mapping[tuple[int, int], int], told: Mapping[str, Any]
) -> None:
    spider_health.runs += 1
    items = counts.get((row.id, row.attempt), _whole(told.get("items")))
    spider_health.items += items
    spider_health.pages += _whole(told.get("pages") if row.pages is None else row.pages)
    spider_health.errors += _whole(told.get("errors") if row.errors is None else row.errors)
    spider_health.came_out.append(RunResult(row.state, items))
    if (seconds := _seconds(row.started_at, row.finished_at)) is not None:
        spider_health.seconds += seconds
        spider_health.ended += 1
    if len(spider_health.states) < MOST_BASELINE_RUNS:
        spider_health.states.append(row.state)
    if not spider_health.last_run_id:
        spider_health.last_run_id, spider_health.last_at = row.id, row.queued_at


def _spider_healths(tx: Transaction, names: Collection[str]) -> dict[str, ProjectHealth]:
    code = store.current_code(tx, names)
    columns = ("ready_lane", "not_before", "trouble", "lease_worker")
    ready, waiting, paused, running = (store.live_counts(tx, column, names) for column in columns)
    found = {}
    for name in names:
        now, newest = code.get(name), store.newest_states(tx, name, MOST_HEALTH, each=MOST_BASELINE_RUNS)
        tasks: dict[str, list[RunResult]] = {}
        for row in newest:
            tasks.setdefault(row.task, []).append(
                RunResult(row.state, row._mapping["items"] if row.kind == store.SPIDER_KIND else None)
            )
        found[name] = ProjectHealth(
            version=None if now is None else now.version,
            spiders=0 if now is None else len(_spiders_of(now.spiders)),
            deployed_at=None if now is None else now.deployed_at,
            deployed_by=None if now is None else now.deployed_by,
            queued=ready.get(name, 0) + waiting.get(name, 0),
            paused=paused.get(name, 0),
            running=running.get(name, 0),
            states=[row.state for row in newest[:MOST_STATES]],
            healths={task: health_of(runs) for task, runs in tasks.items()},
            last_at=newest[0].queued_at if newest else None,
        )
    return found


def _seconds(started_at: Moment | None, finished_at: Moment | None) -> float | None:
    if started_at is None or finished_at is None:
        return None
    return max((finished_at - started_at) / SECOND, 0.0)


def _whole(value: object) -> int:
    """A spider may put anything into its statistics."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
