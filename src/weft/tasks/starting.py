"""Starts of tasks as somebody asks for them, and the runs that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from weft.clock import Moment
from weft.db.database import Transaction
from weft.errors import Invalid, NotFound, WeftError
from weft.runs.model import NewRun, Trigger
from weft.tasks import store
from weft.tasks.model import Task
from weft.tasks.store import Stored

CheckSpec = Callable[[str, Mapping[str, Any]], None]
Known = Mapping[tuple[str, str], Stored]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a stored task, wanted now or at ``not_before``."""

    project: str
    task: str
    params: dict[str, Any] = {}
    priority: int | None = None
    not_before: Moment | None = None
    correlation_id: str = ""
    traceparent: str = ""
    idempotency_key: str | None = None
    by: str = ""


def new_runs(
    tx: Transaction, submits: Sequence[Sequence[Start | NewRun]], check_spec: CheckSpec
) -> list[list[NewRun] | WeftError]:
    """The runs of each submit, each of its task as it is now, or why there are none; a run already stays as it is."""
    starts = [each for asked in submits for each in asked if isinstance(each, Start)]
    known = store.by_names(tx, {(each.project, each.task) for each in starts})
    return [_runs(asked, known, check_spec) for asked in submits]


def _runs(asked: Sequence[Start | NewRun], known: Known, check_spec: CheckSpec) -> list[NewRun] | WeftError:
    try:
        return [each if isinstance(each, NewRun) else _run(each, known, check_spec) for each in asked]
    except (NotFound, Invalid) as problem:
        return problem


def without_task(task: Task, check_spec: CheckSpec, **fields: Any) -> NewRun:
    """A run that belongs to no stored task, as a task of this definition would make it."""
    run = task.new_run(0, Trigger.MANUAL, **fields)
    check_spec(run.kind, run.spec.spec)
    return msgspec.structs.replace(run, task_id=None)


def _run(start: Start, known: Known, check_spec: CheckSpec) -> NewRun:
    stored = known.get((start.project, start.task))
    if stored is None:
        raise NotFound("task", f"{start.project}/{start.task}")
    fields: dict[str, Any] = {name: getattr(start, name) for name in _CARRIED}
    if start.priority is not None:
        fields["priority"] = start.priority
    run = stored.task.new_run(stored.id, Trigger.MANUAL, start.params, **fields)
    check_spec(run.kind, run.spec.spec)
    return run


_CARRIED = ("not_before", "correlation_id", "traceparent", "idempotency_key", "by")
