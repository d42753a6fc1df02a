"""Documents as the values that they were made from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from weft.clock import Moment, moment
from weft.operations.runs import AttemptDocument, RunDocument
from weft.operations.tasks import TaskChangeDocument, TaskDocument
from weft.operations.workers import WorkerDocument
from weft.runs.model import Attempt, Run, RunSpec
from weft.tasks import taskfile
from weft.tasks.changes import TaskChange
from weft.tasks.store import StoredTask
from weft.workers.workers import WorkerStatus

ADDED = frozenset({"id", "revision", "missed", "updated_at", "next_fire_at", "starts", "next", "ticks", "runs"})
"""What a document of a task has beside its definition."""


def run_of(document: RunDocument) -> Run:
    fields = {name: getattr(document, name) for name in Run.__dataclass_fields__}
    spec = msgspec.convert(msgspec.to_builtins(document.spec), RunSpec)
    return Run(**_moments(fields) | {"spec": spec})


def attempt_of(document: AttemptDocument) -> Attempt:
    fields = {name: getattr(document, name) for name in document.__struct_fields__}
    return Attempt(**_moments(fields), log_key=None)


def worker_of(document: WorkerDocument) -> WorkerStatus:
    told = {name: getattr(document, name) for name in document.__struct_fields__ if name != "problem"}
    return WorkerStatus(**_moments(told))  # the problem is read from the stats again


def stored_of(document: TaskDocument) -> StoredTask:
    definition: dict[str, Any] = msgspec.to_builtins(document)
    schedule = definition.get("schedule")
    if schedule is not None:
        definition["schedule"] = {name: value for name, value in schedule.items() if value is not None}
    task = taskfile.task_from({name: value for name, value in definition.items() if name not in ADDED}, "the task")
    return StoredTask(
        id=document.id,
        task=task,
        revision=document.revision,
        missed=document.missed,
        updated_at=at(document.updated_at) or 0,
        next_fire_at=at(document.next_fire_at),
    )


def change_of(document: TaskChangeDocument) -> TaskChange:
    what: Any = document.what
    fields = {name: (each.old, each.new) for name, each in document.fields.items()}
    return TaskChange(what=what, project=document.project, name=document.task or "", fields=fields)


def at(text: str | None) -> Moment | None:
    return None if text is None else moment(datetime.fromisoformat(text))


def _moments(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with times as moments; a time is known by its name."""
    return {
        name: at(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }
