"""``weft top``: the queue, the runs and the workers, as they are now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import number, options_of
from weft.cli.output import as_json
from weft.cli.session import ask

if TYPE_CHECKING:
    from weft.app import App
    from weft.runs.model import Run
    from weft.workers.workers import WorkerInfo

SHOWN = 8
"""How many runs each part of the view shows."""

WINDOW_SECONDS = 60
FINE = ("succeeded", "cancelled", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """All that one look shows."""

    live: Mapping[str, int]
    ended: Mapping[str, int]
    """How many runs ended in the last minute, by outcome."""
    running: Sequence[Run]
    failed: Sequence[Run]
    workers: Sequence[WorkerInfo]


def top(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", parser=number("--interval", 0.1, 3600), help="How often to look.")
    ] = 2.0,
) -> None:
    """Watch the queue, what runs, what ended and went wrong, and the workers; Ctrl-C ends it."""
    if options_of(context).json:
        print(as_json(_document(ask(context, look))))
    elif once:
        print(frame_text(ask(context, look)))
    else:
        ask(context, lambda weft: _watch(weft, interval))


async def look(app: App) -> Frame:
    return Frame(
        live=await app.runs.counts(),
        ended=await app.runs.ended(within_seconds=WINDOW_SECONDS),
        running=await app.runs.find({"state": "running"}, limit=SHOWN),
        failed=await app.runs.find({"state": "failed"}, limit=SHOWN),
        workers=await app.workers.all(),
    )


def frame_text(frame: Frame) -> str:
    from weft.cli.run_text import runs_table
    from weft.cli.workers import workers_table

    parts = [
        _headline(frame),
        "RUNNING\n" + runs_table(frame.running, empty="nothing runs"),
        "FAILED\n" + runs_table(frame.failed, empty="nothing has failed"),
        "WORKERS\n" + workers_table(list(frame.workers)),
    ]
    return "\n\n".join(parts)


def _headline(frame: Frame) -> str:
    """The counts: what waits, what runs, and how the runs of the last minute ended, with a mark on what is bad."""
    told = "   ".join(f"{name} {frame.live[name]}" for name in ("ready", "waiting", "running"))
    outcomes = [f"{'' if each in FINE else '! '}{count} {each}" for each, count in sorted(frame.ended.items())]
    return (
        f"{told}   ended in the last minute {sum(frame.ended.values())}{': ' if outcomes else ''}{', '.join(outcomes)}"
    )


async def _watch(app: App, interval: float) -> None:
    """Draw a new frame every few seconds on a screen of its own, which leaves no trace."""
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(Text.from_ansi(frame_text(await look(app)), no_wrap=True), refresh=True)
            await asyncio.sleep(interval)


def _document(frame: Frame) -> dict[str, Any]:
    from weft.documents.runs import run_document
    from weft.documents.workers import worker_document

    return {
        "live": dict(frame.live),
        "ended_in_the_last_minute": dict(frame.ended),
        "running": [run_document(run) for run in frame.running],
        "failed": [run_document(run) for run in frame.failed],
        "workers": [worker_document(worker) for worker in frame.workers],
    }
