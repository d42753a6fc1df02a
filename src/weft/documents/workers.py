"""Workers as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.documents.copying import Time, copied
from weft.workers.workers import WorkerInfo


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


def worker_document(worker: WorkerInfo) -> WorkerDocument:
    return copied(WorkerDocument, worker)
