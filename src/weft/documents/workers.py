"""Workers as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.documents.copying import Time, copied
from weft.workers.workers import WorkerInfo, WorkerRun


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


class WorkerRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a worker has, or had last."""

    id: int
    project: str
    task: str
    kind: str
    state: str
    attempt: int
    started_at: Time | None
    finished_at: Time | None
    outcome: str | None
    reason: str | None


def worker_run_document(run: WorkerRun) -> WorkerRunDocument:
    return copied(WorkerRunDocument, run)


def worker_document(worker: WorkerInfo) -> WorkerDocument:
    return copied(WorkerDocument, worker)
