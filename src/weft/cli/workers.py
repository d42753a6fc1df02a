"""``weft workers`` and ``weft top``: list and drain workers, and watch the queue, the runs and the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, number, options_of
from weft.cli.output import ago, answer, as_json, fields, table
from weft.cli.session import ask

if TYPE_CHECKING:
    from weft.app import App
    from weft.runs.model import Run
    from weft.workers.workers import WorkerStatus

app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="List and manage workers.")

HEADINGS = ("WORKER", "STATE", "RUNNING", "DONE", "LABELS", "LAST SEEN", "VERSION")


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List workers, and those that left within the last hour."""
    found = ask(context, lambda weft: weft.workers.all())
    from weft.operations.workers import worker_document

    answer(context, [worker_document(worker) for worker in found], lambda: workers_table(found))


@app.command(cls=WeftCommand)
def show(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The name or id of a worker.")]
) -> None:
    """Show a worker and its circuit breakers."""
    worker = ask(context, lambda weft: weft.workers.get(name))
    from weft.operations.workers import worker_document

    answer(context, worker_document(worker), lambda: _worker_text(worker))


@app.command(cls=WeftCommand)
def drain(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The name or id of a worker.")]
) -> None:
    """Drain a worker: it takes no more runs, finishes those that it has, and exits."""

    async def work(weft: App) -> WorkerStatus:
        return await weft.workers.drain((await weft.workers.get(name)).id)

    worker = ask(context, work, changes=True)
    from weft.operations.workers import worker_document

    sentence = f"worker {worker.name} leaves once its runs have ended ({worker.running} now)"
    answer(context, worker_document(worker), lambda: sentence)


@app.command(cls=WeftCommand)
def token(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Its name; default: join.")] = "join",
    hours: Annotated[float, typer.Option(help="How many hours it may be used.", min=0.01, max=24 * 365)] = 24.0,
    allow_label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="A label that the worker may have; default: any.")
    ] = None,
) -> None:
    """Create a join token for one remote worker. It is shown only once."""
    from weft.clock import iso, now, seconds

    expires_at = now() + seconds(hours * 3600)
    key, secret = ask(
        context,
        lambda weft: weft.keys.create(
            name, {}, by="command line", kind="join", expires_at=expires_at, labels=allow_label or None
        ),
        changes=True,
    )
    answer(context, {"id": key.id, "token": secret, "expires_at": iso(expires_at)}, lambda: secret)


def workers_table(workers: list[WorkerStatus], *, empty: str = "no worker is there; `weft worker` starts one") -> str:
    if not any(worker.problem for worker in workers):
        return table(HEADINGS, (_row(worker) for worker in workers), empty=empty)
    return table((*HEADINGS, "PROBLEM"), ((*_row(worker), worker.problem or "") for worker in workers), empty=empty)


def _row(worker: WorkerStatus) -> tuple[object, ...]:
    running = f"{worker.running}/{worker.capacity}"
    return (worker.name, worker.state, running, worker.done, worker.labels, ago(worker.seen_at), worker.version)


def _worker_text(worker: WorkerStatus) -> str:
    from weft.cli.runs import moment_text

    columns = ("target", "project", "state", "failures")
    breakers = [tuple(each.get(column, "") for column in columns) for each in _breakers(worker)]
    parts = [
        fields(
            [
                ("worker", worker.name),
                ("id", worker.id),
                ("state", worker.state),
                ("problem", worker.problem),
                ("running", f"{worker.running} of {worker.capacity}"),
                ("done", worker.done),
                ("labels", worker.labels),
                ("host", worker.host),
                ("process", worker.pid),
                ("version", worker.version),
                ("started", moment_text(worker.started_at)),
                ("last seen", moment_text(worker.seen_at)),
            ]
        ),
        table(("BREAKER", "PROJECT", "STATE", "FAILURES"), breakers),
    ]
    return "\n\n".join(part for part in parts if part)


def _breakers(worker: WorkerStatus) -> list[dict[str, object]]:
    found = worker.stats.get("breakers", [])
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


SHOWN_RUNS = 8
"""How many runs each part of the view shows."""

WINDOW_SECONDS = 60
GOOD_OUTCOMES = ("succeeded", "cancelled", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSnapshot:
    """All that one look shows."""

    live: Mapping[str, int]
    ended: Mapping[str, int]
    """How many runs ended in the last minute, by outcome."""
    running: Sequence[Run]
    failed: Sequence[Run]
    workers: Sequence[WorkerStatus]


def top(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", parser=number("--interval", 0.1, 3600), help="How often to look.")
    ] = 2.0,
) -> None:
    """Watch the queue, running and failed runs, and the workers; Ctrl-C ends it."""
    if options_of(context).json:
        print(as_json(_top_document(ask(context, fetch_top))))
    elif once:
        print(top_text(ask(context, fetch_top)))
    else:
        ask(context, lambda weft: _watch_top(weft, interval))


async def fetch_top(app: App) -> TopSnapshot:
    return TopSnapshot(
        live={**await app.runs.counts(), "held": await app.runs.held()},
        ended=await app.runs.ended(within_seconds=WINDOW_SECONDS),
        running=await app.runs.find({"state": "running"}, limit=SHOWN_RUNS),
        failed=await app.runs.find({"state": "failed"}, limit=SHOWN_RUNS),
        workers=await app.workers.all(),
    )


def top_text(frame: TopSnapshot) -> str:
    from weft.cli.runs import runs_table

    parts = [
        _top_headline(frame),
        "RUNNING\n" + runs_table(frame.running, empty="nothing runs"),
        "FAILED\n" + runs_table(frame.failed, empty="nothing has failed"),
        "WORKERS\n" + workers_table(list(frame.workers)),
    ]
    return "\n\n".join(parts)


def _top_headline(frame: TopSnapshot) -> str:
    """The counts: what waits, what runs, and how the runs of the last minute ended, with a mark on what is bad."""
    names = ("ready", *(["held"] if frame.live["held"] else []), "waiting", "paused", "running")
    shown = {**frame.live, "ready": frame.live["ready"] - frame.live["held"]}
    told = "   ".join(f"{name} {shown[name]}" for name in names)
    outcomes = [f"{'' if each in GOOD_OUTCOMES else '! '}{count} {each}" for each, count in sorted(frame.ended.items())]
    return (
        f"{told}   ended in the last minute {sum(frame.ended.values())}{': ' if outcomes else ''}{', '.join(outcomes)}"
    )


async def _watch_top(app: App, interval: float) -> None:
    """Draw a new frame every few seconds on a screen of its own, which leaves no trace."""
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(Text.from_ansi(top_text(await fetch_top(app)), no_wrap=True), refresh=True)
            await asyncio.sleep(interval)


def _top_document(frame: TopSnapshot) -> dict[str, Any]:
    from weft.operations.runs import run_document
    from weft.operations.workers import worker_document

    return {
        "live": dict(frame.live),
        "ended_in_the_last_minute": dict(frame.ended),
        "running": [run_document(run) for run in frame.running],
        "failed": [run_document(run) for run in frame.failed],
        "workers": [worker_document(worker) for worker in frame.workers],
    }
