"""An event as it leaves weft."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.clock import iso
from weft.events import Event


class EventDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fact: what happened, when and to what."""

    id: int
    at: str | None
    kind: str
    project: str
    """Empty for what belongs to no project, such as a worker."""
    run_id: int | None
    task_id: int | None
    data: dict[str, Any]


def event_document(event: Event) -> EventDocument:
    return EventDocument(
        id=event.id,
        at=iso(event.at),
        kind=event.kind,
        project=event.project,
        run_id=event.run_id,
        task_id=event.task_id,
        data=dict(event.data),
    )
