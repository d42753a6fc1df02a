"""Curves and comparisons of runs as JSON."""

from __future__ import annotations

import msgspec

from weft.clock import iso
from weft.documents.copying import Time, copied
from weft.items.courses import Comparison, Figures
from weft.items.model import Curve


class SampleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far an attempt was at a moment."""

    at: Time
    items: int
    requests: int
    errors: int
    memory_bytes: int | None
    """Null where the system does not tell."""


class CurveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt went, in samples; the last is how far it is now."""

    run_id: int
    attempt: int | None
    """Null where none has told anything yet."""
    first_item_at: Time | None
    samples: list[SampleDocument]
    """Some seconds apart, more of a long run; a few hundred at most."""


class FiguresDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or the middle of several, in figures; null where nobody knows."""

    run_id: int | None
    state: str | None
    seconds: float | None
    items: float | None
    requests: float | None
    errors: float | None
    fields: dict[str, float] | None
    """For each field the share of the items that have it, of a run that has succeeded."""


class MarkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is unusual about a run."""

    what: str
    text: str


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run beside the last one before it that ended, and beside the middle of the last ten that succeeded."""

    run: FiguresDocument
    previous: FiguresDocument | None
    median: FiguresDocument | None
    count: int
    """How many runs the middle is of."""
    marks: list[MarkDocument]
    """What is unusual about the run."""


def curve_document(run_id: int, curve: Curve | None) -> CurveDocument:
    if curve is None:
        return CurveDocument(run_id=run_id, attempt=None, first_item_at=None, samples=[])
    samples = [
        SampleDocument(
            at=iso(each.at) or "",
            items=each.items,
            requests=each.requests,
            errors=each.errors,
            memory_bytes=each.memory or None,
        )
        for each in curve.samples
    ]
    first_item_at = iso(curve.first_item_at)
    return CurveDocument(run_id=run_id, attempt=curve.attempt, first_item_at=first_item_at, samples=samples)


def comparison_document(found: Comparison) -> ComparisonDocument:
    return ComparisonDocument(
        run=_figures(found.run),
        previous=None if found.previous is None else _figures(found.previous),
        median=None if found.median is None else _figures(found.median),
        count=found.count,
        marks=[MarkDocument(what=each.what, text=each.text) for each in found.marks],
    )


def _figures(figures: Figures) -> FiguresDocument:
    return copied(FiguresDocument, figures)
