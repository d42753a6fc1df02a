"""What is told and remembered of a run when it is queued."""

from __future__ import annotations

from typing import Any

from weft.clock import Moment
from weft.events import Fact
from weft.runs.model import NewRun, RunState
from weft.runs.repeats import digest


def queued_fact(run: NewRun, run_id: int) -> Fact:
    if run.skipped is not None:
        data = {"state": RunState.CANCELLED.value, "outcome": "skipped", "reason": run.skipped}
        return Fact("run_finished", run.project, run_id, run.task_id, data)
    return Fact("run_queued", run.project, run_id, run.task_id, {"by": run.by} if run.by else None)


def key_row(run: NewRun, run_id: int, at: Moment) -> dict[str, Any]:
    """Which run an idempotency key has made."""
    return {"project": run.project, "key": run.idempotency_key, "digest": digest(run), "run_id": run_id, "at": at}
