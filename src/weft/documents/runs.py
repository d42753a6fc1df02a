"""Runs as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec

from weft.clock import iso
from weft.documents.copying import Time, copied, timed
from weft.runs.listing import Row
from weft.runs.model import Attempt, Retry, Run, RunSpec, RunState

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
    version: str | None
    """Of the project's code, where it executes that."""


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


def run_document(run: Run, attempts: Sequence[Attempt] | None = None) -> RunDocument:
    """One run by itself, with its attempts where they are wanted."""
    fields = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    fields |= {"spec": spec_document(run.spec), "result": None if run.result is None else dict(run.result)}
    ended = msgspec.UNSET if attempts is None else [attempt_document(each) for each in attempts]
    return RunDocument(**timed(fields), attempts=ended)


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
        version=None if spec.code is None else spec.code.version,
    )


@lru_cache(1000)
def retry_document(retry: Retry) -> RetryDocument:
    return copied(RetryDocument, retry)


def attempt_document(attempt: Attempt) -> AttemptDocument:
    return copied(AttemptDocument, attempt)


def listed(row: Row) -> RunDocument:
    """A run of a list, straight from its row: a page has many, and most have the spec of another."""
    (
        id_, project, task, task_id, kind, state, trigger, priority, attempt, tries, losses, worker, cancel_requested,
        fire_at, queued_at, not_before, started_at, finished_at, outcome, reason, exit_code, signal, correlation_id,
        traceparent, spec, result,
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
        spec=cast(SpecDocument, _kept_spec(spec) if len(spec) <= LARGEST_KEPT else _shown_spec(spec)),
        result=None if result is None else cast("dict[str, Any]", msgspec.Raw(result.encode())),
    )


def _shown_spec(stored: str) -> msgspec.Raw:
    """The document of a stored spec, as JSON that is put in its place."""
    return msgspec.Raw(msgspec.json.encode(spec_document(_decode_spec(stored))))


_kept_spec = lru_cache(MOST_KEPT)(_shown_spec)
_decode_spec = msgspec.json.Decoder(RunSpec).decode
