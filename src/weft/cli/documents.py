"""The JSON documents of the command line: field names that stay, ids as numbers, times in RFC 3339 and UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from weft.clock import iso
from weft.runs.model import Attempt, Run
from weft.tasks.changes import Change
from weft.tasks.store import Stored
from weft.workers.workers import WorkerInfo


def run_document(run: Run, attempts: Sequence[Attempt] | None = None) -> dict[str, Any]:
    document = _timed({name: getattr(run, name) for name in Run.__dataclass_fields__})
    document |= {"state": run.state.value, "spec": whole(run.spec), "result": run.result}
    if attempts is not None:
        document["attempts"] = [_timed(asdict(each)) for each in attempts]
    return document


def task_document(stored: Stored) -> dict[str, Any]:
    """The task with every field, and what the database adds."""
    definition: dict[str, Any] = whole(stored.task)
    if stored.task.schedule is not None:
        definition["schedule"] = _timed(definition["schedule"])
    added = {"revision": stored.revision, "missed": stored.missed}
    times = {"updated_at": iso(stored.updated_at), "next_fire_at": iso(stored.next_fire_at)}
    return {"id": stored.id} | definition | added | times


def whole(value: Any) -> Any:
    """A structure with all its fields, so that a program finds each of them each time."""
    if isinstance(value, msgspec.Struct):
        return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [whole(each) for each in value]
    return msgspec.to_builtins(value)


def tick_document(tick: Any) -> dict[str, Any]:
    return {
        "fire_at": iso(tick.fire_at),
        "outcome": tick.outcome,
        "run_id": tick.run_id,
        "at": iso(tick.at),
    }


def change_document(change: Change) -> dict[str, Any]:
    changed = {name: {"old": old, "new": new} for name, (old, new) in change.fields.items()}
    return {"what": change.what, "project": change.project, "task": change.name or None, "fields": changed}


def worker_document(worker: WorkerInfo) -> dict[str, Any]:
    document = _timed(asdict(worker))
    return document | {"labels": list(worker.labels), "stats": dict(worker.stats)}


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with moments as texts; a moment is known by its name."""
    return {
        name: iso(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }
