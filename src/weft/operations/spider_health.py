"""The health and history of spiders, and the samples of a run compared with earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.clock import iso
from weft.errors import Invalid, NotFound
from weft.items.model import Timeline
from weft.operations.operation import Call, Operations, Time, copied
from weft.operations.paging import Limit, Page, PageCursor, decode_names, encode_cursor
from weft.operations.runs import ConditionResult
from weft.redaction import masked_together
from weft.runs.model import Run
from weft.spiders.baseline import (
    FAILED,
    MOST_BASELINE_RUNS,
    SUCCEEDED,
    UNHEALTHY,
    WORST_FIRST,
    HealthStatus,
    NormalRange,
    ended_runs,
    failures_in_a_row,
    field_fills,
    is_flaky,
    normal_items,
    normal_seconds,
    runs_without_items,
    worst,
)
from weft.spiders.history import PastRun, ProjectHealth, SpiderHealth, SpiderHistory
from weft.spiders.timeline import RunComparison, RunFigures

MOST_EARLIER = 10
"""How many sets of arguments that were given before are told."""


class UsualRangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Between what a number usually is."""

    low: float
    middle: float
    high: float


class PastRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a spider in figures."""

    run_id: int
    task: str
    version: str
    state: str
    outcome: str | None
    reason: str | None
    trigger: str
    queued_at: Time
    started_at: Time | None
    finished_at: Time | None
    seconds: float | None
    items: int
    pages: int
    errors: int
    requests: int | None
    warnings: int | None
    marks: tuple[str, ...]
    """What did not look like success, of one that succeeded."""
    conditions: list[ConditionResult]
    """What had to hold for it to succeed, and what became of each."""
    drifted: bool
    """Whether it was marked as unusual."""
    usual_items: UsualRangeDocument | None
    """What was usual when it ran; null where too few runs came before it."""
    usual_seconds: UsualRangeDocument | None


class FieldFillDocument(msgspec.Struct, frozen=True, kw_only=True):
    """In which share of the items a field is filled, run by run, newest first."""

    name: str
    shares: tuple[float, ...]


class EarlierRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was given."""

    run_id: int
    args: dict[str, Any]
    settings: dict[str, Any]


class SpiderHistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a spider did lately."""

    project: str
    spider: str
    runs: list[PastRunDocument]
    """Newest first."""
    tasks: list[str]
    """Which use it."""
    is_flaky: bool
    """Whether its last twenty runs ended in both ways."""
    last_good_run_id: int | None
    usual_items: UsualRangeDocument | None
    usual_seconds: UsualRangeDocument | None
    fields: list[FieldFillDocument]
    earlier: list[EarlierRunDocument]
    """The last sets of arguments and settings that differ."""


class SpiderHealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a spider of a project did in the project's newest runs, and at least in its own last twenty."""

    spider: str
    runs: int
    succeeded: int
    """Of its last twenty."""
    failed: int
    """Of its last twenty."""
    items: int
    pages: int
    errors: int
    seconds: float
    """Of its runs that have ended, on average."""
    is_flaky: bool
    health: HealthStatus
    """failing: its last runs failed in a row, or more than half of its last twenty did; no_items: its last runs
    succeeded and brought nothing; flaky: some failed; healthy; unknown: none has ended."""
    failed_in_a_row: int
    without_items: int
    """Of its newest runs that succeeded, how many in a row brought nothing."""
    last_run_id: int
    last_state: str
    last_at: Time


class ProjectHealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a project is."""

    project: str
    version: str | None
    """The current one."""
    spiders: int
    deployed_at: Time | None
    deployed_by: str | None
    queued: int
    paused: int
    running: int
    succeeded: int
    """Of its last twenty runs."""
    failed: int
    health: HealthStatus
    """Of the worst of its tasks and spiders, however often the others run."""
    unwell: dict[str, HealthStatus]
    """Those of its tasks and spiders that fail or bring nothing, worst first."""
    last_at: Time | None
    by_spider: list[SpiderHealthDocument] | msgspec.UnsetType = msgspec.UNSET
    """From its newest 500 runs, worst first; lists do not have it."""


def spider_history_document(project: str, spider: str, found: SpiderHistory) -> SpiderHistoryDocument:
    runs = found.runs
    usual, before = _usual_ranges(runs)
    return SpiderHistoryDocument(
        project=project,
        spider=spider,
        runs=[_past_run(each, before[place]) for place, each in enumerate(runs)],
        tasks=list(found.tasks),
        is_flaky=is_flaky([each.state for each in runs]),
        last_good_run_id=next((each.run_id for each in runs if each.state == SUCCEEDED), None),
        usual_items=usual[0],
        usual_seconds=usual[1],
        fields=[
            FieldFillDocument(name=each.name, shares=each.shares)
            for each in field_fills(run.profile for run in runs[:MOST_BASELINE_RUNS] if run.profile is not None)
        ],
        earlier=_earlier_run(runs),
    )


def project_health_document(
    project: str, found: ProjectHealth, by_spider: dict[str, SpiderHealth] | None = None
) -> ProjectHealthDocument:
    spiders = msgspec.UNSET if by_spider is None else _worst_first(by_spider)
    unwell = {name: each for name, each in found.healths.items() if each in UNHEALTHY}
    return ProjectHealthDocument(
        project=project,
        version=found.version,
        spiders=found.spiders,
        deployed_at=iso(found.deployed_at),
        deployed_by=found.deployed_by,
        queued=found.queued,
        paused=found.paused,
        running=found.running,
        succeeded=found.states.count(SUCCEEDED),
        failed=found.states.count(FAILED),
        health=worst(found.healths.values()),
        unwell=dict(sorted(unwell.items(), key=lambda each: (WORST_FIRST.index(each[1]), each[0]))),
        last_at=iso(found.last_at),
        by_spider=spiders,
    )


Usual = tuple[UsualRangeDocument | None, UsualRangeDocument | None]
"""Of items, and of seconds."""


def _usual_ranges(runs: Sequence[PastRun]) -> tuple[Usual, list[Usual]]:
    """What is usual after all of these runs, and what was before each of them, newest first."""
    counts: list[float] = []
    times: list[float] = []
    known: Usual = (None, None)
    before: list[Usual] = []
    for run in reversed(runs):
        before.append(known)
        if run.state == SUCCEEDED and run.seconds is not None:
            counts, times = (
                [run.items, *counts[: MOST_BASELINE_RUNS - 1]],
                [run.seconds, *times[: MOST_BASELINE_RUNS - 1]],
            )
            known = _usual_range(normal_items(counts)), _usual_range(normal_seconds(times))
    return known, before[::-1]


def _past_run(run: PastRun, usual: Usual) -> PastRunDocument:
    fields = {name: getattr(run, name) for name in _COPIED}
    fields["conditions"] = [copied(ConditionResult, each) for each in run.conditions]
    return PastRunDocument(
        **fields,
        queued_at=iso(run.queued_at) or "",
        started_at=iso(run.started_at),
        finished_at=iso(run.finished_at),
        usual_items=usual[0],
        usual_seconds=usual[1],
    )


_COPIED = [
    name for name in PastRunDocument.__struct_fields__ if not name.endswith("_at") and not name.startswith("usual")
]


def _usual_range(band: NormalRange | None) -> UsualRangeDocument | None:
    return (
        None
        if band is None
        else UsualRangeDocument(**{name: round(value, 3) for name, value in band._asdict().items()})
    )


def _earlier_run(runs: Sequence[PastRun]) -> list[EarlierRunDocument]:
    found: dict[bytes, EarlierRunDocument] = {}
    for each in runs:
        args, settings = masked_together(each.args, each.settings)
        given = EarlierRunDocument(run_id=each.run_id, args=args, settings=settings)
        found.setdefault(msgspec.json.encode((given.args, given.settings), order="sorted"), given)
    return list(found.values())[:MOST_EARLIER]


def _worst_first(by_spider: dict[str, SpiderHealth]) -> list[SpiderHealthDocument]:
    order = sorted(by_spider, key=lambda name: (WORST_FIRST.index(by_spider[name].health), name))
    return [_spider_health(name, by_spider[name]) for name in order]


def _spider_health(name: str, spider_health: SpiderHealth) -> SpiderHealthDocument:
    return SpiderHealthDocument(
        spider=name,
        runs=spider_health.runs,
        succeeded=spider_health.states.count(SUCCEEDED),
        failed=spider_health.states.count(FAILED),
        items=spider_health.items,
        pages=spider_health.pages,
        errors=spider_health.errors,
        seconds=round(spider_health.seconds / spider_health.ended, 3) if spider_health.ended else 0.0,
        is_flaky=spider_health.is_flaky,
        health=spider_health.health,
        failed_in_a_row=failures_in_a_row(ended_runs(spider_health.came_out)),
        without_items=runs_without_items(ended_runs(spider_health.came_out)),
        last_run_id=spider_health.last_run_id,
        last_state=spider_health.states[0],
        last_at=iso(spider_health.last_at) or "",
    )


class RunSampleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far an attempt was at a moment."""

    at: Time
    items: int
    requests: int
    errors: int
    memory_bytes: int | None
    """Null where the system does not tell."""


class RunCurveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt went, in samples; the last is how far it is now."""

    run_id: int
    attempt: int | None
    """Null where none has told anything yet."""
    first_item_at: Time | None
    samples: list[RunSampleDocument]
    """Some seconds apart, more of a long run; a few hundred at most."""


class RunFiguresDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or the middle of several, in figures; null where nobody knows."""

    run_id: int | None
    state: str | None
    seconds: float | None
    items: float | None
    requests: float | None
    errors: float | None
    fields: dict[str, float] | None
    """For each field the share of the items that have it, of a run that has succeeded."""


class CurveMarkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is unusual about a run."""

    what: str
    text: str


class RunComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run beside the last one before it that ended, and beside the middle of the last ten that succeeded."""

    run: RunFiguresDocument
    previous: RunFiguresDocument | None
    median: RunFiguresDocument | None
    count: int
    """How many runs the middle is of."""
    marks: list[CurveMarkDocument]
    """What is unusual about the run."""


def curve_document(run_id: int, curve: Timeline | None) -> RunCurveDocument:
    if curve is None:
        return RunCurveDocument(run_id=run_id, attempt=None, first_item_at=None, samples=[])
    samples = [
        RunSampleDocument(
            at=iso(each.at) or "",
            items=each.items,
            requests=each.requests,
            errors=each.errors,
            memory_bytes=each.memory or None,
        )
        for each in curve.samples
    ]
    first_item_at = iso(curve.first_item_at)
    return RunCurveDocument(run_id=run_id, attempt=curve.attempt, first_item_at=first_item_at, samples=samples)


def comparison_document(found: RunComparison) -> RunComparisonDocument:
    return RunComparisonDocument(
        run=_figures(found.run),
        previous=None if found.previous is None else _figures(found.previous),
        median=None if found.median is None else _figures(found.median),
        count=found.count,
        marks=[CurveMarkDocument(what=each.what, text=each.text) for each in found.marks],
    )


def _figures(figures: RunFigures) -> RunFiguresDocument:
    return copied(RunFiguresDocument, figures)


operations = Operations("spider_health")

LONGEST_HISTORY = 100
USUAL_RANGE_EXAMPLE = {"low": 70.0, "middle": 100.0, "high": 130.0}
SECONDS_EXAMPLE = {"low": 5.0, "middle": 12.0, "high": 30.0}
PAST_RUN_EXAMPLE: dict[str, Any] = {
    "run_id": 7,
    "task": "prices",
    "version": "1.10",
    "state": "succeeded",
    "outcome": "succeeded",
    "reason": None,
    "trigger": "schedule",
    "queued_at": "2026-12-01T02:00:00.000Z",
    "started_at": "2026-12-01T02:00:00.100Z",
    "finished_at": "2026-12-01T02:00:12.300Z",
    "seconds": 12.2,
    "items": 104,
    "pages": 110,
    "errors": 0,
    "requests": 112,
    "warnings": 1,
    "marks": [],
    "conditions": [],
    "drifted": False,
    "usual_items": USUAL_RANGE_EXAMPLE,
    "usual_seconds": SECONDS_EXAMPLE,
}
SPIDER_HISTORY_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "spider": "prices",
    "runs": [PAST_RUN_EXAMPLE],
    "tasks": ["prices"],
    "is_flaky": False,
    "last_good_run_id": 7,
    "usual_items": USUAL_RANGE_EXAMPLE,
    "usual_seconds": SECONDS_EXAMPLE,
    "fields": [{"name": "price", "shares": [0.99, 1.0]}],
    "earlier": [{"run_id": 7, "args": {"country": "de"}, "settings": {}}],
}
PROJECT_HEALTH_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "version": "1.10",
    "spiders": 4,
    "deployed_at": "2026-06-01T12:00:00.000Z",
    "deployed_by": "key:ci",
    "queued": 2,
    "paused": 0,
    "running": 1,
    "succeeded": 16,
    "failed": 1,
    "health": "failing",
    "unwell": {"stock": "failing"},
    "last_at": "2026-12-01T02:00:00.000Z",
}
SPIDER_HEALTH_EXAMPLE: dict[str, Any] = {
    "spider": "prices",
    "runs": 40,
    "succeeded": 19,
    "failed": 1,
    "items": 4100,
    "pages": 4400,
    "errors": 3,
    "seconds": 12.4,
    "is_flaky": True,
    "health": "flaky",
    "failed_in_a_row": 0,
    "without_items": 0,
    "last_run_id": 7,
    "last_state": "succeeded",
    "last_at": "2026-12-01T02:00:00.000Z",
}


class ProjectHealthQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which projects."""

    after: PageCursor | None = None
    limit: Limit = 50


class SpiderHistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of which spider, and how far back."""

    spider: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_HISTORY, description="How many runs at most.")] = (
        LONGEST_HISTORY
    )


@operations.get(
    "/spider-health",
    needs=Role.VIEWER,
    query=ProjectHealthQuery,
    answer=Page[ProjectHealthDocument],
    example={"items": [PROJECT_HEALTH_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[ProjectHealthDocument]:
    """List the projects by name: their code, what waits and runs, and how their last runs ended."""
    place = decode_names(call.query.after, 1)
    known = sorted(await call.app.tasks.all_settings(call.visible()))
    left = known if place is None else [each for each in known if each > place[0]]
    chosen = left[: call.query.limit]
    found = await call.app.histories.of_projects(chosen)
    onward = encode_cursor((chosen[-1],)) if len(left) > len(chosen) else None
    return Page(items=[project_health_document(name, found[name]) for name in chosen], next=onward)


@operations.get(
    "/projects/{project}/health",
    needs=Role.VIEWER,
    answer=ProjectHealthDocument,
    example=PROJECT_HEALTH_EXAMPLE | {"by_spider": [SPIDER_HEALTH_EXAMPLE]},
)
async def show(call: Call) -> ProjectHealthDocument:
    """Show how a project and each of its spiders did in its newest 500 runs."""
    project = call.path("project")
    call.check(project)
    if not await call.app.tasks.all_settings({project}):
        raise NotFound("project", project)
    by_spider = await call.app.histories.of_project(project)
    found = await call.app.histories.of_projects([project])
    return project_health_document(project, found[project], by_spider)


@operations.get(
    "/projects/{project}/history",
    needs=Role.VIEWER,
    query=SpiderHistoryQuery,
    answer=SpiderHistoryDocument,
    example=SPIDER_HISTORY_EXAMPLE,
)
async def history(call: Call) -> SpiderHistoryDocument:
    """Show the last runs of a spider in figures, what is usual for it, and how well its fields are filled."""
    project, asked = call.path("project"), call.query
    call.check(project)
    found = await call.app.histories.of_spider(project, asked.spider, asked.limit)
    return spider_history_document(project, asked.spider, found)


sample_operations = Operations("samples")

RUN_SAMPLE_EXAMPLE = {
    "at": "2026-12-01T02:00:04.100Z",
    "items": 120,
    "requests": 40,
    "errors": 0,
    "memory_bytes": 71_000_000,
}
RUN_CURVE_EXAMPLE = {
    "run_id": 7,
    "attempt": 1,
    "first_item_at": "2026-12-01T02:00:00.700Z",
    "samples": [RUN_SAMPLE_EXAMPLE],
}
RUN_FIGURES_EXAMPLE = {
    "run_id": 7,
    "state": "succeeded",
    "seconds": 4.1,
    "items": 120.0,
    "requests": 40.0,
    "errors": 0.0,
}
RUN_COMPARISON_EXAMPLE = {
    "run": RUN_FIGURES_EXAMPLE | {"fields": {"title": 1.0, "price": 0.5}},
    "previous": RUN_FIGURES_EXAMPLE | {"run_id": 6, "fields": {"title": 1.0, "price": 0.9}},
    "median": RUN_FIGURES_EXAMPLE | {"run_id": None, "state": None, "fields": {"title": 1.0, "price": 0.9}},
    "count": 10,
    "marks": [{"what": "field:price", "text": "50% of the items have price; before it was 90% to 95%"}],
}


class RunSampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt."""

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Default: the newest that has told anything."""


@sample_operations.get(
    "/runs/{run_id}/samples",
    name="show",
    needs=Role.VIEWER,
    query=RunSampleQuery,
    answer=RunCurveDocument,
    example=RUN_CURVE_EXAMPLE,
)
async def show_samples(call: Call) -> RunCurveDocument:
    """Tell how far an attempt of a run was at some moments: items, requests, errors, memory."""
    run, attempt = await _check_run(call), call.query.attempt
    if attempt is not None and attempt > run.attempt:
        raise Invalid("attempt", attempt, f"run {run.id} has had {run.attempt} attempts")
    return curve_document(run.id, await call.app.courses.curve(run.id, attempt))


@sample_operations.get(
    "/runs/{run_id}/comparison",
    name="comparison",
    needs=Role.VIEWER,
    answer=RunComparisonDocument,
    example=RUN_COMPARISON_EXAMPLE,
)
async def compare_samples(call: Call) -> RunComparisonDocument:
    """Put a run beside the last one before it and beside the middle of the last ten that succeeded."""
    return comparison_document(await call.app.courses.comparison(await _check_run(call)))


async def _check_run(call: Call) -> Run:
    """The run that the address names, of a project where the caller may do this."""
    run = await call.app.runs.get(call.number("run_id", "run"))
    call.check(run.project, f"run {run.id}")
    return run
