"""Documents as the values that they were made from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from weft.clock import Moment, moment
from weft.documents.runs import AttemptDocument, RunDocument
from weft.documents.tasks import ChangeDocument, TaskDocument
from weft.documents.workers import WorkerDocument
from weft.runs.model import Attempt, Run, RunSpec
from weft.tasks import taskfile
from weft.tasks.changes import Change
from weft.tasks.store import Stored
from weft.workers.workers import WorkerInfo

ADDED = frozenset({"id", "revision", "missed", "updated_at", "next_fire_at", "starts", "next", "ticks", "runs"})
"""What a document of a task has beside its definition."""


def run_of(document: RunDocument) -> Run:
    fields = {name: getattr(document, name) for name in Run.__dataclass_fields__}
    spec = msgspec.convert(msgspec.to_builtins(document.spec), RunSpec)
    return Run(**_moments(fields) | {"spec": spec})


def attempt_of(document: AttemptDocument) -> Attempt:
    fields = {name: getattr(document, name) for name in document.__struct_fields__}
    return Attempt(**_moments(fields), log_key=None)


def worker_of(document: WorkerDocument) -> WorkerInfo:
    return WorkerInfo(**_moments({name: getattr(document, name) for name in document.__struct_fields__}))


def stored_of(document: TaskDocument) -> Stored:
    definition: dict[str, Any] = msgspec.to_builtins(document)
    schedule = definition.get("schedule")
    if schedule is not None:
        definition["schedule"] = {name: value for name, value in schedule.items() if value is not None}
    task = taskfile.task({name: value for name, value in definition.items() if name not in ADDED}, "the task")
    return Stored(
        id=document.id,
        task=task,
        revision=document.revision,
        missed=document.missed,
        updated_at=at(document.updated_at) or 0,
        next_fire_at=at(document.next_fire_at),
    )


def change_of(document: ChangeDocument) -> Change:
    what: Any = document.what
    fields = {name: (each.old, each.new) for name, each in document.fields.items()}
    return Change(what=what, project=document.project, name=document.task or "", fields=fields)


def at(text: str | None) -> Moment | None:
    return None if text is None else moment(datetime.fromisoformat(text))


def _moments(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with times as moments; a time is known by its name."""
    return {
        name: at(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }
