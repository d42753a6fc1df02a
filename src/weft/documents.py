"""What leaves weft as JSON: the same documents from the API, the command line and webhooks.

Field names stay, ids are numbers, times are texts in RFC 3339 and UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weft.clock import iso
from weft.runs.model import Attempt, Run, RunSpec, RunState

Time = str


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
    spec: RunSpec
    result: dict[str, Any] | None
    attempts: list[AttemptDocument] | msgspec.UnsetType = msgspec.UNSET


def run_document(run: Run, attempts: Sequence[Attempt] | None = None) -> RunDocument:
    fields = {name: getattr(run, name) for name in _RUN_FIELDS}
    listed = msgspec.UNSET if attempts is None else [attempt_document(each) for each in attempts]
    return RunDocument(**_timed(fields), attempts=listed)


def attempt_document(attempt: Attempt) -> AttemptDocument:
    return AttemptDocument(**_timed({name: getattr(attempt, name) for name in AttemptDocument.__struct_fields__}))


_RUN_FIELDS = [name for name in RunDocument.__struct_fields__ if name != "attempts"]


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with moments as texts; a moment is known by its name."""
    return {
        name: iso(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }
