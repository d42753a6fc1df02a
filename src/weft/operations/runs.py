"""List, start, cancel, pause, resume and rerun runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from weft.access.model import Role
from weft.clock import Moment, iso, moment, seconds
from weft.errors import Invalid, NotFound
from weft.operations.operation import EXAMPLE_TIME, Call, Operations, SharedAnswer, Time, as_example, copied, timed
from weft.operations.paging import Limit, Page, PageCursor, decode_number, encode_cursor, example_page
from weft.redaction import masked_together, unmasked, warning_of
from weft.runs.model import (
    Attempt,
    FoundRuns,
    NewRun,
    Retry,
    Run,
    RunListing,
    RunOutcome,
    RunRow,
    RunSpec,
    RunState,
    Submitted,
    Trigger,
)
from weft.runs.success import MissingNumber, RunCondition, RunMark, SuccessConditions
from weft.tasks.model import Task, check_label
from weft.tasks.schedule import LAST_MOMENT
from weft.tasks.tasks import TaskStart

MOST_KEPT = 10_000
LARGEST_KEPT = 4_000
"""Characters of a spec that is kept as it is shown, so that what is kept stays small."""


class RetryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """When a failed attempt is tried again."""

    count: int
    delay_seconds: float
    factor: float
    max_delay_seconds: float
    jitter: float
    on: tuple[str, ...]
    losses: int


class RunSpecDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker was given; what looks secret is masked."""

    spec: dict[str, Any]
    params: dict[str, Any]
    labels: tuple[str, ...]
    tags: tuple[str, ...]
    timeout_seconds: float
    grace_seconds: float | None
    """How long it may take to end once it is stopped; null: 10."""
    log_bytes: int
    retry: RetryDocument
    version: str | None
    """Of the project's code, where it executes that."""
    success_if: SuccessConditions | None
    """What its task asks for; ``conditions`` has that of its spider and project too."""


class AttemptDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run that has ended."""

    attempt: int
    worker: str | None
    started_at: Time | None
    finished_at: Time | None
    outcome: str
    reason: str | None
    exit_code: int | None
    signal: int | None
    log_bytes: int | None
    late_from: int | None
    """The byte from which on its log came late, when the attempt had been given up as lost; null where none did."""


class ConditionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a run must meet to succeed, and what became of it."""

    name: str
    """finish_reason, errors, warnings, items, pages, requests or fields."""
    bound: str
    """one_of, max, min, min_percent_of_usual or missing_max_percent."""
    limit: float | tuple[str, ...]
    of: str
    """Who has set it: task, spider or project."""
    field: str | None
    """Of the items, where it is about one."""
    found: float | str | None
    """What was counted; null before the end, and where nothing was."""
    usual: float | None
    """What the count is compared with, where it is compared with what is usual."""
    held: bool | None
    """Null before the end, and where a number to decide by is missing."""
    undecided: MissingNumber | None
    """The number that is missing at the end: count (it never arrived), items (there are none, so no share of them is
    known) or usual (too few runs of the task succeeded); null where it was decided."""


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run: how it stands, what it was given and what came of it."""

    id: int
    project: str
    task: str
    task_id: int | None
    kind: str
    trigger: str
    priority: int
    state: RunState
    attempt: int
    tries: int
    losses: int
    worker: str | None
    cancel_requested: bool
    fire_at: Time | None
    queued_at: Time | None
    not_before: Time | None
    started_at: Time | None
    finished_at: Time | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    correlation_id: str
    traceparent: str
    spec: RunSpecDocument
    result: dict[str, Any] | None
    items: int | None
    """What its last attempt has counted, as the four that follow; null where nobody knows."""
    pages: int | None
    requests: int | None
    errors: int | None
    warnings: int | None
    finish_reason: str | None
    """With which its spider closed."""
    marks: tuple[str, ...]
    """What does not look like success, of a run that succeeded: errors, finish_reason, no_requests, no_items,
    undecided (a condition could not be decided, and the reason says for want of which number)."""
    conditions: list[ConditionResult]
    """What must hold for it to succeed; empty where nothing must."""
    attempts: list[AttemptDocument] | msgspec.UnsetType = msgspec.UNSET

    @property
    def ended_attempts(self) -> list[AttemptDocument]:
        """Those that are told, which a list of runs does not do."""
        return [] if self.attempts is msgspec.UNSET else self.attempts


def run_document(run: Run, attempts: Sequence[Attempt] | None = None) -> RunDocument:
    """One run by itself, with its attempts where they are wanted."""
    fields = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    fields |= {"spec": spec_document(run.spec), "result": None if run.result is None else dict(run.result)}
    fields |= {"conditions": [copied(ConditionResult, each) for each in run.conditions]}
    ended = msgspec.UNSET if attempts is None else [attempt_document(each) for each in attempts]
    return RunDocument(**timed(fields), attempts=ended)


def spec_document(spec: RunSpec) -> RunSpecDocument:
    shown_spec, shown_params = masked_together(spec.spec, spec.params)
    return RunSpecDocument(
        spec=shown_spec,
        params=shown_params,
        labels=spec.labels,
        tags=spec.tags,
        timeout_seconds=spec.timeout_seconds,
        grace_seconds=spec.grace_seconds,
        log_bytes=spec.log_bytes,
        retry=retry_document(spec.retry),
        version=None if spec.code is None else spec.code.version,
        success_if=spec.success_if,
    )


@lru_cache(1000)
def retry_document(retry: Retry) -> RetryDocument:
    return copied(RetryDocument, retry)


def attempt_document(attempt: Attempt) -> AttemptDocument:
    return copied(AttemptDocument, attempt)


def listed_run(row: RunRow) -> RunDocument:
    """A run of a list, straight from its row: a page has many, and most have the spec of another."""
    (
        id_, project, task, task_id, kind, state, trigger, priority, attempt, tries, losses, worker, cancel_requested,
        fire_at, queued_at, not_before, started_at, finished_at, outcome, reason, exit_code, signal, correlation_id,
        traceparent, spec, result, items, pages, requests, errors, warnings, finish_reason, marks, conditions,
    ) = row  # fmt: skip
    return RunDocument(
        id=id_,
        project=project,
        task=task,
        task_id=task_id,
        kind=kind,
        trigger=trigger,
        priority=priority,
        state=state,
        attempt=attempt,
        tries=tries,
        losses=losses,
        worker=worker,
        cancel_requested=cancel_requested,
        fire_at=iso(fire_at),
        queued_at=iso(queued_at),
        not_before=iso(not_before),
        started_at=iso(started_at),
        finished_at=iso(finished_at),
        outcome=outcome,
        reason=reason,
        exit_code=exit_code,
        signal=signal,
        correlation_id=correlation_id,
        traceparent=traceparent,
        spec=cast(RunSpecDocument, _kept_spec(spec) if len(spec) <= LARGEST_KEPT else _shown_spec(spec)),
        result=None if result is None else cast("dict[str, Any]", msgspec.Raw(result.encode())),
        items=items,
        pages=pages,
        requests=requests,
        errors=errors,
        warnings=warnings,
        finish_reason=finish_reason,
        marks=() if marks is None else cast("tuple[str, ...]", msgspec.Raw(marks.encode())),
        conditions=[] if conditions is None else _shown_conditions(conditions),
    )


def _shown_conditions(stored: str) -> list[ConditionResult]:
    return [copied(ConditionResult, each) for each in msgspec.json.decode(stored, type=list[RunCondition])]


def _shown_spec(stored: str) -> msgspec.Raw:
    """The document of a stored spec, as JSON that is put in its place."""
    return msgspec.Raw(msgspec.json.encode(spec_document(_decode_spec(stored))))


_kept_spec = lru_cache(MOST_KEPT)(_shown_spec)
_decode_spec = msgspec.json.Decoder(RunSpec).decode


MOST_CACHED = 10_000
LARGEST_CACHED = 2_000
FINISHED_COLUMN = tuple(Run.__dataclass_fields__).index("finished_at")


class FinishedRunCache:
    """Documents of runs that have ended, which never change: each is made once, however often it is listed."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}

    def shown(self, found: FoundRuns) -> list[msgspec.Raw]:
        """The documents of a page, in its order."""
        fresh = {run_id: msgspec.json.encode(listed_run(row)) for run_id, row in found.rows.items()}
        for run_id, row in found.rows.items():
            self._keep(run_id, row, fresh[run_id])
        return [msgspec.Raw(found.known.get(run_id) or fresh[run_id]) for run_id in found.ids]

    def _keep(self, run_id: int, row: RunRow, document: bytes) -> None:
        if row[FINISHED_COLUMN] is None or len(document) > LARGEST_CACHED:
            return
        if len(self.kept) >= MOST_CACHED:
            del self.kept[next(iter(self.kept))]
        self.kept[run_id] = document


MOST_AT_ONCE = 10_000
LARGEST_BATCH = 16 << 20

Correlation = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[!-~]*$(?!\n)")]
StartTime = Annotated[datetime, msgspec.Meta(tz=True)]


class TaskStartInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a task is started."""

    params: dict[str, Any] = {}
    """Parameters of the task; the others have their defaults."""
    priority: int | None = None
    """Of this run instead of the task's."""
    not_before: StartTime | None = None
    """When it may start; at once where it is not told."""
    correlation_id: Correlation = ""
    """What this run is a part of; made up where it is not told."""
    masked_from: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    """An earlier run: values that are sent masked, as they are shown there, are taken from it."""


class RunInput(TaskStartInput, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run to be queued: of a stored ``task``, or of a ``kind`` and its ``spec``."""

    project: str = "default"
    task: str | None = None
    idempotency_key: str | None = None
    kind: str | None = None
    spec: dict[str, Any] = {}
    name: str | None = None
    """Name of a run of a kind in lists. Default: its kind."""
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    grace_seconds: float | None = None
    log_bytes: int = 10_000_000
    retry: Retry = Retry()
    success_if: SuccessConditions | None = None
    """What must hold at its end, or it has failed; of spiders only."""


class RunBatchInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs that are queued together, or not at all."""

    runs: list[RunInput]


StartInput = TypeVar("StartInput", bound=TaskStartInput)

OWN_FIELDS = ("spec", "labels", "tags", "timeout_seconds", "grace_seconds", "log_bytes", "retry", "success_if")
"""What a run of a kind may say of itself, as a task does."""


async def with_masked_values(call: Call, body: StartInput, project: str, task: str | None) -> StartInput:
    """The body with the values of the run that it names in the place of their masks.

    Only of a run of the same task, or, for those who may start any spec, of the same project: whoever starts a task
    must not learn what another was given.
    """
    if body.masked_from is None:
        return body
    found = await call.app.runs.projects_of([body.masked_from])
    if found.get(body.masked_from) != project:
        raise NotFound("run", f"{body.masked_from} in project {project}", hidden=True)
    call.check(project, f"run {body.masked_from}", role=Role.OPERATOR if task is not None else Role.DEVELOPER)
    run = await call.app.runs.get(body.masked_from)
    if task is not None and run.task != task:
        raise Invalid("masked_from", body.masked_from, f"it must be a run of the task {task}")
    spec, params = run.spec.spec, run.spec.params
    if isinstance(spec.get("args"), dict):  # the form of a spider shows parameters among its arguments
        spec = spec | {"args": params | spec["args"]}
    shown_spec, shown_params = masked_together(spec, params)
    changed: dict[str, Any] = {"params": unmasked(body.params, shown_params, params)}
    if isinstance(body, RunInput):
        changed["spec"] = unmasked(body.spec, shown_spec, spec)
    return msgspec.structs.replace(body, **changed)


class RunStarter:
    """Turns what one request asks for into runs; each project is checked once."""

    def __init__(self, call: Call) -> None:
        self._call, self._trace = call, call.traceparent
        self._allowed: set[tuple[str, Role]] = set()

    def prepare(self, body: RunInput, key: str | None, where: str = "the run") -> TaskStart | NewRun:
        if (body.task is None) == (body.kind is None):
            raise Invalid(where, TASK_AND_KIND[body.task is None], "it must have either a task or a kind")
        if body.task is not None:
            return self._of_task(body, body.task, key)
        return self._of_kind(body, body.kind or "", key)

    def _of_task(self, body: RunInput, task: str, key: str | None) -> TaskStart:
        for name in ("name", *OWN_FIELDS):
            if getattr(body, name) != getattr(DEFAULT_RUN, name):
                raise Invalid(name, getattr(body, name), "it is said by the task; leave it out")
        self._check(body.project, Role.OPERATOR, f"task {body.project}/{task}")
        return TaskStart(
            project=body.project, task=task, params=body.params, priority=body.priority, **self._carried(body, key)
        )

    def _of_kind(self, body: RunInput, kind: str, key: str | None) -> NewRun:
        if body.params:
            raise Invalid("params", body.params, "only a stored task has parameters; leave it out")
        self._check(body.project, Role.DEVELOPER)
        fields = {name: getattr(body, name) for name in OWN_FIELDS}
        task = Task(name=body.name or kind, project=body.project, kind=kind, priority=body.priority or 0, **fields)
        return self._call.app.tasks.loose(task, **self._carried(body, key))

    def _check(self, project: str, role: Role, target: str = "") -> None:
        if (project, role) not in self._allowed:
            self._call.check(project, target, role=role)
            self._allowed.add((project, role))

    def _carried(self, body: RunInput, key: str | None) -> dict[str, Any]:
        return {
            "not_before": start_moment(body.not_before, "not_before"),
            "correlation_id": body.correlation_id,
            "traceparent": self._trace,
            "idempotency_key": body.idempotency_key if body.idempotency_key is not None else key,
            "by": self._call.caller.actor,
        }


DEFAULT_RUN = RunInput()
TASK_AND_KIND = {True: "without both", False: "with both"}


def start_moment(when: datetime | None, what: str) -> Moment | None:
    if when is None:
        return None
    found = moment(when)
    if not 0 <= found < LAST_MOMENT:
        raise Invalid(what, when.isoformat(), f"it must be from 1970 to {iso(LAST_MOMENT)}")
    return found


EXAMPLE_TRACE = "0af7651916cd43dd8448eb211c80319c"
_example_run = Run(
    id=7,
    project="shop",
    task="prices",
    task_id=3,
    kind="shell",
    state=RunState.SUCCEEDED,
    trigger="schedule",
    priority=0,
    attempt=1,
    tries=1,
    losses=0,
    worker="crawler-1",
    cancel_requested=False,
    fire_at=EXAMPLE_TIME,
    queued_at=EXAMPLE_TIME,
    not_before=None,
    started_at=EXAMPLE_TIME + seconds(0.02),
    finished_at=EXAMPLE_TIME + seconds(4.1),
    outcome="succeeded",
    reason=None,
    exit_code=0,
    signal=None,
    correlation_id=EXAMPLE_TRACE,
    traceparent=f"00-{EXAMPLE_TRACE}-b7ad6b7169203331-01",
    spec=RunSpec(spec={"argv": ["crawl", "prices"]}, params={"country": "de"}),
    result=None,
)
_example_attempt = Attempt(
    attempt=1,
    worker="crawler-1",
    started_at=EXAMPLE_TIME + seconds(0.02),
    finished_at=EXAMPLE_TIME + seconds(4.1),
    outcome="succeeded",
    reason=None,
    exit_code=0,
    signal=None,
    log_key=None,
    log_bytes=512,
    late_from=None,
)
ATTEMPT_EXAMPLE = as_example(attempt_document(_example_attempt))
RUN_EXAMPLE = as_example(run_document(_example_run))
SHOWN_RUN_EXAMPLE = as_example(run_document(_example_run, [_example_attempt]))
SUBMITTED_EXAMPLE = {"run_id": 7, "fresh": True, "why": "", "warning": ""}


operations = Operations("runs")

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
QueuedTime = Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, with its zone.")]
RunIds = Annotated[list[RunId], msgspec.Meta(min_length=1, max_length=500)]

IDEMPOTENCY_HEADER = {"Idempotency-Key": "Used twice, it makes one run; the second answer names the first run."}
TRACE_HEADER = {"traceparent": "The trace that the run goes on with (W3C Trace Context)."}


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list."""

    project: str | None = None
    task: str | None = None
    kind: str | None = None
    state: RunState | None = None
    trigger: Trigger | None = None
    outcome: RunOutcome | None = None
    correlation_id: str | None = None
    worker: str | None = None
    """The name of the worker that its last attempt ran on."""
    tag: str | None = None
    spider: str | None = None
    version: str | None = None
    """Of its project's code."""
    mark: RunMark | None = None
    """Those that succeeded with this mark."""
    since: QueuedTime | None = None
    """Queued then or later."""
    until: QueuedTime | None = None
    """Queued before."""
    sort: Literal["-id", "id"] = "-id"
    after: PageCursor | None = None
    limit: Limit = 50


QUERY_FIELDS = ("task", "kind", "state", "trigger", "outcome", "correlation_id", "worker", "spider", "version", "mark")


@operations.get("/runs", needs=Role.VIEWER, query=RunQuery, answer=Page[RunDocument], example=example_page(RUN_EXAMPLE))
async def list_(call: Call) -> SharedAnswer[Page[RunDocument]]:
    """List runs, newest first.

    A filter that few runs meet may give a short page, even an empty one; as long as it has a ``next``, there may be
    more.
    """
    asked: RunQuery = call.query
    listing = RunListing(
        where=_where(asked),
        projects=call.visible(asked.project),
        before=decode_number(asked.after),
        limit=asked.limit,
        oldest_first=asked.sort == "id",
    )

    async def found() -> Page[RunDocument]:
        seen = await call.app.runs.page(listing, call.finished_runs.kept)
        items = cast("list[RunDocument]", call.finished_runs.shown(seen))  # encoded already
        return Page(items=items, next=None if seen.next is None else encode_cursor(seen.next))

    return await call.shared((asked, listing.projects), found)


def _where(asked: RunQuery) -> dict[str, Any]:
    where: dict[str, Any] = {name: str(value) for name in QUERY_FIELDS if (value := getattr(asked, name)) is not None}
    if asked.tag is not None:
        check_label("tag", asked.tag)
        where["tag"] = asked.tag
    return where | {name: moment(at) for name in ("since", "until") if (at := getattr(asked, name)) is not None}


@operations.post(
    "/runs",
    needs=Role.OPERATOR,
    body=RunInput,
    answer=Submitted,
    status=202,
    headers=IDEMPOTENCY_HEADER | TRACE_HEADER,
    audited=False,
    example=SUBMITTED_EXAMPLE,
    example_body={"project": "shop", "task": "prices", "params": {"country": "fr"}},
)
async def start(call: Call) -> Submitted:
    """Queue a run: of a stored task, or, for developers, of a kind and a spec."""
    body = await with_masked_values(call, call.body, call.body.project, call.body.task)
    asked = RunStarter(call).prepare(body, call.header("idempotency-key"))
    [submitted] = await call.app.tasks.submit([asked])
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return _with_warning(submitted, call.body)


@operations.post(
    "/runs/batch",
    needs=Role.OPERATOR,
    body=RunBatchInput,
    answer=Page[Submitted],
    status=202,
    headers={"Idempotency-Key": "Each run gets this key with its place in the batch, unless it has its own."}
    | TRACE_HEADER,
    largest_body=LARGEST_BATCH,
    audited=False,
    example=example_page(SUBMITTED_EXAMPLE),
    example_body={"runs": [{"project": "shop", "task": "prices", "params": {"country": "fr"}}]},
)
async def start_many(call: Call) -> Page[Submitted]:
    """Queue up to 10,000 runs in one transaction, all or none; the answer has them in the same order."""
    body: RunBatchInput = call.body
    if not 1 <= len(body.runs) <= MOST_AT_ONCE:
        raise Invalid("runs", f"{len(body.runs)} runs", f"there must be from 1 to {MOST_AT_ONCE}")
    starter, key = RunStarter(call), call.header("idempotency-key")
    runs = [await with_masked_values(call, each, each.project, each.task) for each in body.runs]
    asked = [
        starter.prepare(each, None if key is None else f"{key}:{place}", f"runs[{place}]")
        for place, each in enumerate(runs)
    ]
    submitted = await call.app.tasks.submit(asked)
    return Page(items=[_with_warning(one, given) for one, given in zip(submitted, body.runs, strict=True)])


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are now, and how many ended not long ago."""

    ready: int
    held: int
    """Those of them that a limit of runs at once holds back."""
    waiting: int
    """For their time, or for their next try."""
    paused: int
    running: int
    ended: dict[str, int]
    """By outcome; a busy system counts only the newest."""


class RunCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to count."""

    project: str | None = None
    within_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 3600
    """How long ago a run may have ended."""


@operations.get(
    "/runs/counts",
    needs=Role.VIEWER,
    query=RunCountQuery,
    answer=RunCounts,
    example={"ready": 3, "held": 0, "waiting": 0, "paused": 0, "running": 10, "ended": {"succeeded": 120, "failed": 2}},
)
async def counts(call: Call) -> RunCounts:
    """Count the runs that wait, run and ended not long ago."""
    asked: RunCountQuery = call.query
    projects = call.visible(asked.project)
    ended = await call.app.runs.ended(within_seconds=asked.within_seconds, projects=projects)
    held = await call.app.runs.held(projects)
    return RunCounts(**await call.app.runs.counts(projects), held=held, ended=ended)


@operations.get("/runs/{run_id}", needs=Role.VIEWER, answer=RunDocument, example=SHOWN_RUN_EXAMPLE)
async def show(call: Call) -> RunDocument:
    """Show one run, with every attempt of it that has ended."""
    run_id = await _checked(call)
    return run_document(await call.app.runs.get(run_id), await call.app.runs.attempts(run_id))


@operations.get(
    "/runs/{run_id}/attempts",
    needs=Role.VIEWER,
    answer=Page[AttemptDocument],
    example=example_page(ATTEMPT_EXAMPLE),
)
async def attempts(call: Call) -> Page[AttemptDocument]:
    """List the attempts of a run that have ended."""
    run_id = await _checked(call)
    return Page(items=[attempt_document(each) for each in await call.app.runs.attempts(run_id)])


@operations.post("/runs/{run_id}/cancel", needs=Role.OPERATOR, answer=RunDocument, status=202, example=RUN_EXAMPLE)
async def cancel(call: Call) -> RunDocument:
    """Cancel a run: a waiting one at once, a running one by asking its worker to stop it."""
    return run_document(await call.app.runs.cancel(await _checked(call), _by(call)))


@operations.post("/runs/{run_id}/pause", needs=Role.OPERATOR, answer=RunDocument, status=202, example=RUN_EXAMPLE)
async def pause(call: Call) -> RunDocument:
    """Pause a resumable run: a waiting one at once, a running one by asking its worker to stop it where it is."""
    return run_document(await call.app.pauses.pause(await _checked(call)))


@operations.post("/runs/{run_id}/resume", needs=Role.OPERATOR, answer=RunDocument, status=202, example=RUN_EXAMPLE)
async def resume(call: Call) -> RunDocument:
    """Let a paused run go on from its place."""
    return run_document(await call.app.pauses.resume(await _checked(call)))


@operations.post("/runs/{run_id}/again", needs=Role.OPERATOR, answer=Submitted, status=202, example=SUBMITTED_EXAMPLE)
async def again(call: Call) -> Submitted:
    """Queue an ended run once more, as a new run with the spec that it had."""
    submitted = await call.app.runs.again(await _checked(call))
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return submitted


class RunIdsInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several runs."""

    ids: RunIds


class CancelResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a cancel of several did to one of them."""

    run_id: int
    done: bool
    """False where the run had ended before."""
    state: RunState


class RerunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a repetition of several did for one of them."""

    run_id: int
    new_run_id: int | None
    """Null where the run has not ended yet."""


@operations.post(
    "/runs/cancel",
    needs=Role.OPERATOR,
    body=RunIdsInput,
    answer=Page[CancelResult],
    status=202,
    example=example_page({"run_id": 7, "done": True, "state": "cancelled"}),
    example_body={"ids": [7, 8]},
)
async def cancel_many(call: Call) -> Page[CancelResult]:
    """Cancel several runs in one transaction; those that have ended stay as they are."""
    ids = await _all_checked(call)
    found = await call.app.runs.cancel_many(ids, _by(call))
    return Page(items=[CancelResult(run_id=id_, done=done, state=state) for id_, (done, state) in found.items()])


@operations.post(
    "/runs/again",
    needs=Role.OPERATOR,
    body=RunIdsInput,
    answer=Page[RerunResult],
    status=202,
    example=example_page({"run_id": 7, "new_run_id": 9}),
    example_body={"ids": [7]},
)
async def again_many(call: Call) -> Page[RerunResult]:
    """Queue several ended runs once more, in one transaction; those that have not ended are left out."""
    found = await call.app.runs.again_many(await _all_checked(call))
    return Page(
        items=[RerunResult(run_id=old, new_run_id=None if new is None else new.run_id) for old, new in found.items()]
    )


async def _checked(call: Call) -> int:
    """The run that the address names, of a project where the caller may do this."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.projects_of([run_id])
    if run_id not in found:
        raise NotFound("run", run_id)
    call.check(found[run_id], f"run {run_id}")
    return run_id


async def _all_checked(call: Call) -> list[int]:
    ids = sorted(set(call.body.ids))
    found = await call.app.runs.projects_of(ids)
    for run_id in ids:
        if run_id not in found:
            raise NotFound("run", run_id)
        call.check(found[run_id], f"run {run_id}")
    return ids


def _with_warning(submitted: Submitted, given: RunInput) -> Submitted:
    warning = warning_of(given.spec, given.params)
    return msgspec.structs.replace(submitted, warning=warning) if warning else submitted


def _by(call: Call) -> str:
    return f"cancelled by {call.caller.name}"
