"""Staying with runs until they end: their logs as they grow, or one line of progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.cli.crawl_text import KIND, CrawlLine, counts_text
from weft.cli.output import clipped, note, span
from weft.runs.log_records import LogParser, LogRecord, LogText
from weft.runs.model import ENDED, HELD, Run

if TYPE_CHECKING:
    from weft.app import App

LOOK_SECONDS = 0.2
ENDED_WELL = "succeeded"


class LogFollower:
    """Prints what a run's attempts say, each byte once, and below it how a crawl is getting on."""

    def __init__(
        self, app: App, run_id: int, *, raw: bool = False, chosen: Callable[[LogRecord], bool] | None = None
    ) -> None:
        self._app, self._run_id, self._raw, self._chosen = app, run_id, raw, chosen
        self._attempt, self._printed, self._piece = 1, 0, -1
        self._text, self._parser = LogText(), LogParser()
        self._told = False
        self._line, self._at_start = CrawlLine(app), True

    async def to_the_end(self) -> Run:
        """Print until the run has ended; return it."""
        try:
            while True:
                run = await self._look()
                if run.state in ENDED:
                    return run
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._line.hide()

    async def _look(self) -> Run:
        run = await self._app.runs.get(self._run_id)
        await self._catch_up(run)
        self._tell_waiting(run)
        if self._at_start:
            await self._line.show(run)
        return run

    async def _catch_up(self, run: Run) -> None:
        ended = {each.attempt for each in await self._app.runs.attempts(run.id)}
        while self._attempt <= run.attempt:
            if self._attempt not in ended:
                await self._print_live()
                return
            whole = await self._app.runs.log(run.id, self._attempt)
            self._print(whole[self._printed :], last=True)
            self._attempt, self._printed, self._piece = self._attempt + 1, 0, -1

    async def _print_live(self) -> None:
        for number, data in await self._app.runs.live_log(self._run_id, self._attempt, self._piece):
            self._print(data)
            self._piece = number

    def _print(self, data: bytes, *, last: bool = False) -> None:
        self._printed += len(data)
        if self._raw:
            self._line.hide()
            sys.stdout.buffer.write(data)
            self._at_start = data[-1:] in (b"", b"\n")
        elif text := self._text_of(data, last=last):
            self._line.hide()
            sys.stdout.write(text)
            self._at_start = text.endswith("\n")
        sys.stdout.flush()
        if last:
            self._text = LogText()

    def _text_of(self, data: bytes, *, last: bool) -> str:
        if self._chosen is None:
            return self._text.feed(data, last=last)
        found = self._parser.feed(data) + (self._parser.end() if last else [])
        return "".join([f"{record.text}\n" for record in found if self._chosen(record)])

    def _tell_waiting(self, run: Run) -> None:
        if run.state == "queued" and not self._told:
            self._told = True
            self._line.hide()
            note(f"run {run.id} {_wait(run)}")


class Progress:
    """How runs stand, on stderr: one line that changes on a terminal, else a line for each change."""

    def __init__(self, app: App) -> None:
        self._app, self._live = app, sys.stderr.isatty()
        self._states: dict[int, str] = {}
        self._began = time.monotonic()

    async def show(self, runs: Sequence[Run]) -> None:
        if self._live:
            await self._redraw(runs)
            return
        for run in runs:
            if self._states.get(run.id) != run.state:
                note(f"run {run.id} {run.state}{_why(run)}")
            self._states[run.id] = run.state

    def finish(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    async def _redraw(self, runs: Sequence[Run]) -> None:
        import shutil

        open_runs = [run for run in runs if run.state not in ENDED]
        line = f"{len(runs) - len(open_runs)} of {len(runs)} ended, {span(time.monotonic() - self._began)}"
        if open_runs:
            first = open_runs[0]
            line += f"; run {first.id} {first.state} {await self._standing(first)}"
        room = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{clipped(line, room)}", end="", file=sys.stderr, flush=True)

    async def _standing(self, run: Run) -> str:
        """The counts of a crawl, the last line of what another run says."""
        if run.state != "running":
            return ""
        if run.kind == KIND:
            return await counts_text(self._app, run)
        pieces = await self._app.runs.live_log(run.id, run.attempt)
        lines = LogText().feed(b"".join(data for _, data in pieces[-2:]), last=True).strip().splitlines()
        return lines[-1].replace("\t", " ") if lines else ""


async def until_ended(app: App, run_ids: Sequence[int], timeout: float | None) -> list[Run]:
    """The runs, once all have ended or the time is over."""
    progress, until = Progress(app), time.monotonic() + (float("inf") if timeout is None else timeout)
    try:
        while True:
            runs = [await app.runs.get(run_id) for run_id in run_ids]
            await progress.show(runs)
            left = until - time.monotonic()
            if left <= 0 or all(run.state in ENDED for run in runs):
                return runs
            await asyncio.sleep(min(LOOK_SECONDS, left))
    finally:
        progress.finish()


def tell_unfinished(runs: Sequence[Run], timeout: float | None) -> None:
    for run in runs:
        if run.state not in ENDED:
            note(f"run {run.id} is still {run.state} after {timeout:g} s")


def all_succeeded(runs: Sequence[Run]) -> bool:
    return all(run.state == ENDED_WELL for run in runs)


async def stay(app: App, run_id: int, *, wait: bool, follow: bool, quiet: bool) -> Run | None:
    """See a run that was just queued to its end, if that was asked for; ``quiet`` keeps its log to itself."""
    if follow and not quiet:
        return await LogFollower(app, run_id).to_the_end()
    if wait or follow:
        return (await until_ended(app, [run_id], None))[0]
    return None


def _wait(run: Run) -> str:
    if run.not_before == HELD:
        return f"is paused; `weft runs resume {run.id}` lets it go on"
    return f"waits {'for its next attempt' if run.attempt else 'for a worker'}"


def _why(run: Run) -> str:
    from weft.cli.output import escaped

    return f": {escaped(run.reason)}" if run.reason and run.state in ENDED else ""


def exit_unless(succeeded: bool) -> None:
    """End with 1 where something was waited for and did not succeed."""
    import typer

    if not succeeded:
        raise typer.Exit(1)


def submitted_text(answer: Any, run: Run | None) -> str:
    """What a submit is answered with: the number of the run, and how it ended where that was waited for."""
    if run is not None:
        return f"run {run.id} {run.state}{_why(run)}"
    return f"run {answer.run_id} queued" if answer.fresh else f"run {answer.run_id} is there already: {answer.why}"
