"""Runs as people see them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.cli.output import ago, fields, table, took
from weft.clock import iso
from weft.runs.model import Attempt, Run

HEADINGS = ("RUN", "TASK", "STATE", "STARTED", "TOOK", "TRY", "WORKER", "WHY")


def runs_table(runs: Sequence[Run], *, empty: str = "no runs yet") -> str:
    return table(HEADINGS, (_row(run) for run in runs), empty=empty)


def _row(run: Run) -> tuple[object, ...]:
    name = f"{run.project}/{run.task}"
    times = (ago(run.started_at), took(run.started_at, run.finished_at))
    return (run.id, name, state(run), *times, run.attempt or "-", run.worker, run.reason)


def state(run: Run) -> str:
    """The state, or more exactly how it ended."""
    return run.outcome if run.state == "failed" and run.outcome else run.state.value


def run_text(run: Run, attempts: Sequence[Attempt], brought: Sequence[tuple[str, object]] = ()) -> str:
    headings = ("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "EXIT", "LOG BYTES", "WHY")
    tables = [fields([*_run_fields(run), *brought]), table(headings, (_attempt_row(each) for each in attempts))]
    return "\n\n".join(part for part in tables if part)


def _attempt_row(each: Attempt) -> tuple[object, ...]:
    times = (ago(each.started_at), took(each.started_at, each.finished_at))
    code = each.exit_code if each.signal is None else f"signal {each.signal}"
    return (each.attempt, each.outcome, *times, each.worker, code, each.log_bytes, each.reason)


def _run_fields(run: Run) -> list[tuple[str, object]]:
    spec = run.spec
    return [
        ("run", run.id),
        ("task", f"{run.project}/{run.task}"),
        ("kind", run.kind),
        ("state", run.state.value),
        ("outcome", run.outcome),
        ("why", run.reason),
        ("exit code", run.exit_code),
        ("signal", run.signal),
        ("result", run.result),
        ("cancelling", "asked to stop" if run.cancel_requested and run.state == "running" else None),
        ("trigger", run.trigger),
        ("tick", when(run.fire_at)),
        ("queued", when(run.queued_at)),
        ("not before", when(run.not_before)),
        ("started", when(run.started_at)),
        ("finished", when(run.finished_at)),
        ("took", took(run.started_at, run.finished_at)),
        ("worker", run.worker),
        ("attempt", run.attempt),
        ("priority", run.priority),
        ("labels", spec.labels),
        ("tags", spec.tags),
        ("timeout", f"{spec.timeout_seconds:g} s" if spec.timeout_seconds else None),
        ("params", spec.params),
        ("spec", spec.spec),
        ("correlation", run.correlation_id),
        ("trace", run.traceparent),
    ]


def when(at: int | None) -> str | None:
    return None if at is None else f"{iso(at)} ({ago(at)})"
