"""What leaves weft as JSON: the same documents from the API, the command line and webhooks.

Field names stay, every field is always there, ids are numbers, times are texts in RFC 3339 and UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from weft.clock import Moment, iso
from weft.runs.model import Attempt, Retry, Run, RunSpec, RunState
from weft.tasks.changes import Change
from weft.tasks.model import Task
from weft.tasks.store import Stored
from weft.tasks.words import starts
from weft.workers.workers import WorkerInfo

Time = str
T = TypeVar("T", bound=msgspec.Struct)


class RetryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """When a failed attempt is tried again."""

    count: int
    delay_seconds: float
    factor: float
    max_delay_seconds: float
    jitter: float
    on: tuple[str, ...]
    losses: int


class SpecDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker was given."""

    spec: dict[str, Any]
    params: dict[str, Any]
    labels: tuple[str, ...]
    tags: tuple[str, ...]
    timeout_seconds: float
    grace_seconds: float
    log_bytes: int
    retry: RetryDocument


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
    spec: SpecDocument
    result: dict[str, Any] | None
    attempts: list[AttemptDocument] | msgspec.UnsetType = msgspec.UNSET


class ScheduleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """When a task fires."""

    cron: str | None
    every_seconds: float | None
    once_at: Time | None
    start_at: Time | None
    zone: str
    jitter_seconds: float
    misfire: str
    catch_up_seconds: float
    catch_up_cap: int
    overlap: str


class AfterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A forerunner, and how it must end."""

    task: str
    on: str


class DedupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are dropped as duplicates."""

    params: tuple[str, ...]
    window_seconds: float


class TickDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one tick of a schedule."""

    fire_at: Time | None
    outcome: str
    run_id: int | None
    at: Time | None


class TaskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its definition and what weft adds. One that is shown by itself also has what starts it, in words."""

    id: int
    name: str
    project: str
    kind: str
    spec: dict[str, Any]
    description: str
    params: dict[str, Any]
    schedule: ScheduleDocument | None
    after: list[AfterDocument]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    priority: int
    timeout_seconds: float
    grace_seconds: float
    retry: RetryDocument
    max_running: int | None
    dedup: DedupDocument | None
    log_bytes: int
    paused: bool
    revision: int
    missed: int
    updated_at: Time | None
    next_fire_at: Time | None
    starts: str | msgspec.UnsetType = msgspec.UNSET
    next: list[Time | None] | msgspec.UnsetType = msgspec.UNSET
    ticks: list[TickDocument] | msgspec.UnsetType = msgspec.UNSET
    runs: list[RunDocument] | msgspec.UnsetType = msgspec.UNSET


class ChangedField(msgspec.Struct, frozen=True, kw_only=True):
    old: Any
    new: Any


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an apply does."""

    what: str
    project: str
    task: str | None
    fields: dict[str, ChangedField]


class WorkerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A worker and how it is."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    labels: tuple[str, ...]
    capacity: int
    running: int
    done: int
    state: str
    started_at: Time | None
    seen_at: Time | None
    stats: dict[str, Any]


def run_document(run: Run, attempts: Sequence[Attempt] | None = None) -> RunDocument:
    """Field by field, not in a loop: a list has many runs."""
    return RunDocument(
        id=run.id,
        project=run.project,
        task=run.task,
        task_id=run.task_id,
        kind=run.kind,
        trigger=run.trigger,
        priority=run.priority,
        state=run.state,
        attempt=run.attempt,
        tries=run.tries,
        losses=run.losses,
        worker=run.worker,
        cancel_requested=run.cancel_requested,
        fire_at=iso(run.fire_at),
        queued_at=iso(run.queued_at),
        not_before=iso(run.not_before),
        started_at=iso(run.started_at),
        finished_at=iso(run.finished_at),
        outcome=run.outcome,
        reason=run.reason,
        exit_code=run.exit_code,
        signal=run.signal,
        correlation_id=run.correlation_id,
        traceparent=run.traceparent,
        spec=spec_document(run.spec),
        result=None if run.result is None else dict(run.result),
        attempts=msgspec.UNSET if attempts is None else [attempt_document(each) for each in attempts],
    )


def spec_document(spec: RunSpec) -> SpecDocument:
    return SpecDocument(
        spec=spec.spec,
        params=spec.params,
        labels=spec.labels,
        tags=spec.tags,
        timeout_seconds=spec.timeout_seconds,
        grace_seconds=spec.grace_seconds,
        log_bytes=spec.log_bytes,
        retry=retry_document(spec.retry),
    )


@lru_cache(1000)
def retry_document(retry: Retry) -> RetryDocument:
    return _copied(RetryDocument, retry)


def attempt_document(attempt: Attempt) -> AttemptDocument:
    return _copied(AttemptDocument, attempt)


def task_document(stored: Stored, **more: Any) -> TaskDocument:
    """The task with every field, and what the database adds."""
    task = stored.task
    fields = {name: getattr(task, name) for name in _TASK_FIELDS}
    fields |= {name: getattr(stored, name) for name in ("id", "revision", "missed", "updated_at", "next_fire_at")}
    return TaskDocument(
        **_timed(fields),
        schedule=None if task.schedule is None else _copied(ScheduleDocument, task.schedule),
        after=[_copied(AfterDocument, each) for each in task.after],
        retry=retry_document(task.retry),
        dedup=None if task.dedup is None else _copied(DedupDocument, task.dedup),
        **more,
    )


def task_page(stored: Stored, ahead: Sequence[Moment], **more: Any) -> TaskDocument:
    """The task with what starts it, in words, and the times that lie ahead."""
    return task_document(stored, starts=starts(stored.task), next=[iso(at) for at in ahead], **more)


def tick_document(tick: Any) -> TickDocument:
    return TickDocument(fire_at=iso(tick.fire_at), outcome=tick.outcome, run_id=tick.run_id, at=iso(tick.at))


def change_document(change: Change) -> ChangeDocument:
    fields = {name: ChangedField(old=old, new=new) for name, (old, new) in change.fields.items()}
    return ChangeDocument(what=change.what, project=change.project, task=change.name or None, fields=fields)


def worker_document(worker: WorkerInfo) -> WorkerDocument:
    return _copied(WorkerDocument, worker)


def _copied(kind: type[T], value: object) -> T:
    return kind(**_timed({name: getattr(value, name) for name in kind.__struct_fields__}))


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with moments as texts; a moment is known by its name."""
    return {
        name: iso(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }


_TASK_FIELDS = [name for name in Task.__struct_fields__ if name not in ("schedule", "after", "retry", "dedup")]
