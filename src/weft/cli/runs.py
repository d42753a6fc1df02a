"""``weft runs``: what was done, is being done and waits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import ago, answer, fields, note, table, took
from weft.cli.session import ask, full_name
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.app import App
    from weft.runs.model import Attempt, Run

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, help="What was done, is being done and waits."
)

HEADINGS = ("RUN", "TASK", "STATE", "STARTED", "TOOK", "TRY", "WORKER", "WHY")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
LARGEST_ID = 2**63 - 1

run_number = whole("the number of a run", 1, LARGEST_ID)

RunId = Annotated[int, typer.Argument(metavar="ID", parser=run_number, help="The number of a run.")]
RunIds = Annotated[list[int], typer.Argument(metavar="ID...", parser=run_number, help="The numbers of runs.")]


@app.command("list", cls=Command)
def list_(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(metavar="STATE", help=f"Only these: {', '.join(STATES)}.")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this task.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", parser=whole("--limit", 1, 10_000), help="How many at most.")
    ] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=run_number, help="Only older ones than this run.")
    ] = None,
) -> None:
    """List runs, newest first."""
    where = _filter(context, state, task)
    found = ask(context, lambda weft: weft.runs.find(where, before=before, limit=limit))
    from weft.cli.documents import run_document

    answer(context, [run_document(run) for run in found], lambda: runs_table(found))


@app.command(cls=Command)
def show(context: typer.Context, run_id: RunId) -> None:
    """Show one run: how it stands, what it was given, and each attempt."""

    async def look(weft: App) -> tuple[Run, list[Attempt]]:
        return await weft.runs.get(run_id), await weft.runs.attempts(run_id)

    run, attempts = ask(context, look)
    from weft.cli.documents import run_document

    answer(context, run_document(run, attempts), lambda: _run_text(run, attempts))


@app.command(cls=Command)
def cancel(context: typer.Context, run_ids: RunIds) -> None:
    """Cancel runs: a waiting one at once, a running one by asking its worker to stop it."""

    async def cancel_each(weft: App) -> list[Run]:
        for run_id in run_ids:
            await weft.runs.get(run_id)
        return [await weft.runs.cancel(run_id) for run_id in run_ids]

    found = ask(context, cancel_each)
    from weft.cli.documents import run_document

    words = {"running": "is asked to stop"}
    lines = [f"run {run.id} {words.get(run.state, 'is cancelled')}" for run in found]
    answer(context, [run_document(run) for run in found], lambda: "\n".join(lines))


def runs_table(runs: list[Run], *, empty: str = "no runs yet") -> str:
    return table(HEADINGS, (_row(run) for run in runs), empty=empty)


def _row(run: Run) -> tuple[object, ...]:
    name = f"{run.project}/{run.task}"
    return (run.id, name, _state(run), ago(run.started_at), took(run.started_at, run.finished_at)) + (
        run.attempt or "-",
        run.worker,
        run.reason,
    )


def _state(run: Run) -> str:
    """The state, or more exactly how it ended."""
    return run.outcome if run.state == "failed" and run.outcome else run.state.value


def _filter(context: Any, state: str | None, task: str | None) -> dict[str, Any]:
    where: dict[str, Any] = {}
    if state is not None:
        if state not in STATES:
            raise Invalid("--state", state, f"it must be one of {', '.join(STATES)}")
        where["state"] = state
    project = options_of(context).project
    if task is not None:
        project, where["task"] = full_name(context, task)
    return where | ({"project": project} if project else {})


def _run_text(run: Run, attempts: list[Attempt]) -> str:
    attempt_rows = [
        (each.attempt, each.outcome, ago(each.started_at), took(each.started_at, each.finished_at), each.worker)
        + (each.exit_code if each.exit_code is not None else each.signal, each.log_bytes, each.reason)
        for each in attempts
    ]
    headings = ("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "EXIT", "LOG BYTES", "WHY")
    tables = [fields(_run_fields(run)), table(headings, attempt_rows)]
    return "\n\n".join(part for part in tables if part)


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
        ("tick", _when(run.fire_at)),
        ("queued", _when(run.queued_at)),
        ("not before", _when(run.not_before)),
        ("started", _when(run.started_at)),
        ("finished", _when(run.finished_at)),
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


def _when(at: int | None) -> str | None:
    from weft.clock import iso

    return None if at is None else f"{iso(at)} ({ago(at)})"
