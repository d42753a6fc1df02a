"""Destinations as JSON."""

from __future__ import annotations

import msgspec

from weft.clock import iso
from weft.items.destinations import Progress
from weft.items.export.formats import Format


class DestinationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A destination and how it goes."""

    id: int
    project: str
    dataset: str
    url: str
    format: Format
    fields: list[str]
    state: str
    """``active``, or ``failing`` where the newest try failed."""
    problem: str | None
    failures: int
    next_at: str | None
    """When it is tried again, where it fails."""
    delivered: int
    """Items that have arrived."""
    waiting: int
    """Items that are still to be sent, of the newest 1,000 attempts."""
    delivered_at: str | None
    created_at: str | None
    created_by: str


def destination_document(progress: Progress) -> DestinationDocument:
    each = progress.destination
    return DestinationDocument(
        id=each.id,
        project=each.project,
        dataset=each.dataset,
        url=each.url,
        format=each.format,
        fields=list(each.fields),
        state=each.state,
        problem=each.problem,
        failures=each.failures,
        next_at=iso(each.next_at) if each.failures else None,
        delivered=each.delivered,
        waiting=progress.waiting,
        delivered_at=iso(each.delivered_at),
        created_at=iso(each.created_at),
        created_by=each.created_by,
    )
