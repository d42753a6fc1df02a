"""How runs went: their curves, and how they stand beside those before them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.documents.courses import ComparisonDocument, CurveDocument, comparison_document, curve_document
from weft.errors import Invalid
from weft.runs.model import Run

operations = Operations("samples")

SAMPLE = {"at": "2026-12-01T02:00:04.100Z", "items": 120, "requests": 40, "errors": 0, "memory_bytes": 71_000_000}
CURVE = {"run_id": 7, "attempt": 1, "first_item_at": "2026-12-01T02:00:00.700Z", "samples": [SAMPLE]}
FIGURES = {"run_id": 7, "state": "succeeded", "seconds": 4.1, "items": 120.0, "requests": 40.0, "errors": 0.0}
COMPARISON = {
    "run": FIGURES | {"fields": {"title": 1.0, "price": 0.5}},
    "previous": FIGURES | {"run_id": 6, "fields": {"title": 1.0, "price": 0.9}},
    "median": FIGURES | {"run_id": None, "state": None, "fields": {"title": 1.0, "price": 0.9}},
    "count": 10,
    "marks": [{"what": "field:price", "text": "50% of the items have price; before it was 90% to 95%"}],
}


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt."""

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """The newest that has told anything unless told."""


@operations.get("/runs/{run_id}/samples", needs=Role.VIEWER, query=Which, answer=CurveDocument, example=CURVE)
async def show(call: Call) -> CurveDocument:
    """Tell how far an attempt of a run was at some moments: items, requests, errors, memory."""
    run, attempt = await _checked(call), call.query.attempt
    if attempt is not None and attempt > run.attempt:
        raise Invalid("attempt", attempt, f"run {run.id} has had {run.attempt} attempts")
    return curve_document(run.id, await call.app.courses.curve(run.id, attempt))


@operations.get("/runs/{run_id}/comparison", needs=Role.VIEWER, answer=ComparisonDocument, example=COMPARISON)
async def comparison(call: Call) -> ComparisonDocument:
    """Put a run beside the last one before it and beside the middle of the last ten that succeeded."""
    return comparison_document(await call.app.courses.comparison(await _checked(call)))


async def _checked(call: Call) -> Run:
    """The run that the address names, of a project where the caller may do this."""
    run = await call.app.runs.get(call.number("run_id", "run"))
    call.check(run.project, f"run {run.id}")
    return run
