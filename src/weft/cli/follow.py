"""Wait for runs, and print their logs as they grow or one line of progress."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.cli.output import clipped, duration_text, escaped, note, span
from weft.logs.records import LogParser, LogRecord, LogTextRenderer
from weft.runs.model import ENDED, UNLEASED, Run
from weft.runs.success import undecided_text

if TYPE_CHECKING:
    from weft.app import App
    from weft.items.model import AttemptStats
    from weft.runs.model import Run

SPIDER_KIND = "spider"
STATS_SECONDS = 1.0
"""How often statistics are read; workers tell them as often."""
ERROR_STATS = ("log_count/ERROR", "log_count/CRITICAL")


class SpiderStatusLine:
    """The line below the log of a crawl: only where a person looks at a terminal."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._counts, self._asked_at = "", 0.0

    async def show(self, run: Run) -> None:
        if not self._live or run.kind != SPIDER_KIND or run.state != "running":
            return
        line = f"{await self._newest(run)}, {duration_text(run.started_at, None)}"
        line = clipped(line, shutil.get_terminal_size().columns - 1)
        if line != self._shown:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        self._shown = line

    def hide(self) -> None:
        """Make room for what is printed next."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._shown = ""

    async def _newest(self, run: Run) -> str:
        if not self._counts or time.monotonic() - self._asked_at >= STATS_SECONDS:
            self._counts = await counts_text(self._app, run)
            self._asked_at = time.monotonic()
        return self._counts


async def counts_text(app: App, run: Run) -> str:
    """How the newest attempt of a crawl is getting on: pages, items, errors."""
    told = [each for each in await app.items.stats(run.id) if each.attempt == run.attempt]
    pages = sum(_count(each, "response_received_count") for each in told)
    items, errors = sum(each.items for each in told), _errors(told)
    return f"{_plural(pages, 'page')}, {_plural(items, 'item')}, {_plural(errors, 'error')}"


async def ending_lines(app: App, run: Run) -> list[str]:
    """What a crawl that has ended has brought, where that is, and what was unusual; nothing of other runs."""
    if run.kind != SPIDER_KIND:
        return []
    told = counted_attempts(run, await app.items.stats(run.id))
    where = await _dataset_text(app, run, told)
    lines = [f"{_items_text(told)}{where}"] if where or run.state == "succeeded" else []
    if errors := _errors(told[-1:]):
        lines.append(f"{_plural(errors, 'error')}: `weft runs log {run.id} --errors`")
    if "no_requests" in run.marks:
        lines.append("it made no request")
    if "finish_reason" in run.marks:
        lines.append(f"its spider was closed with {run.finish_reason}, not finished")
    if "undecided" in run.marks:
        lines.append(undecided_text(run.conditions))
    return [escaped(line) for line in (*lines, *(f"unusual: {mark}" for mark in drift_texts(told)))]


def counted_attempts(run: Run, told: Sequence[AttemptStats]) -> Sequence[AttemptStats]:
    """The attempts that count: a crawl that kept its place went on with each of them, another began anew."""
    return told if run.spec.spec.get("resumable") else told[-1:]


def drift_texts(told: Sequence[AttemptStats]) -> list[str]:
    """What a run differs in from those before it, in sentences."""
    return [str(mark["text"]) for each in told if each.drift for mark in each.drift.get("marks", ())]


def spider_fields(run: Run, told: Sequence[AttemptStats]) -> list[tuple[str, object]]:
    """What `weft runs show` says of a crawl, beside its result."""
    if not told:
        return []
    counted = counted_attempts(run, told)
    return [
        ("dataset", told[-1].dataset),
        ("items", _items_text(counted)),
        *(("unusual", mark) for mark in drift_texts(told)),
    ]


async def _dataset_text(app: App, run: Run, told: Sequence[AttemptStats]) -> str:
    dataset = next((each.dataset for each in reversed(told) if each.items and each.dataset), None)
    if dataset is None:
        return ""
    having = [each for each in await app.datasets.all() if each.name == dataset]
    name = dataset if len(having) == 1 else f"{run.project}/{dataset}"
    return f" in dataset {dataset}: `weft items {name}`"


def _items_text(told: Sequence[AttemptStats]) -> str:
    items, new = sum(each.items for each in told), sum(each.new_records for each in told)
    refused, invalid = sum(each.refused for each in told), sum(each.invalid for each in told)
    notes = [f"{new or 'none'} of them new"] if new < items else []
    notes += [f"{invalid} not as the schema says"] if invalid else []
    notes += [f"{refused} refused"] if refused else []
    return f"{_plural(items, 'item')}{' (' + ', '.join(notes) + ')' if notes else ''}"


def _errors(told: Sequence[AttemptStats]) -> int:
    return sum(_count(each, name) for each in told for name in ERROR_STATS)


def _count(each: AttemptStats, name: str) -> int:
    value: Any = each.stats.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _plural(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


POLL_SECONDS = 0.2
SUCCEEDED = "succeeded"


class LogFollower:
    """Prints what a run's attempts say, each byte once, and below it how a crawl is getting on."""

    def __init__(
        self, app: App, run_id: int, *, raw: bool = False, chosen: Callable[[LogRecord], bool] | None = None
    ) -> None:
        self._app, self._run_id, self._raw, self._chosen = app, run_id, raw, chosen
        self._attempt, self._printed, self._piece = 1, 0, -1
        self._text, self._parser = LogTextRenderer(), LogParser()
        self._told = False
        self._line, self._at_start = SpiderStatusLine(app), True

    async def to_the_end(self) -> Run:
        """Print until the run has ended; return it."""
        try:
            while True:
                run = await self._look()
                if run.state in ENDED:
                    return run
                await asyncio.sleep(POLL_SECONDS)
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
            self._text = LogTextRenderer()

    def _text_of(self, data: bytes, *, last: bool) -> str:
        if self._chosen is None:
            return self._text.feed(data, last=last)
        found = self._parser.feed(data) + (self._parser.end() if last else [])
        return "".join([f"{record.text}\n" for record in found if self._chosen(record)])

    def _tell_waiting(self, run: Run) -> None:
        if run.state in UNLEASED and not self._told:
            self._told = True
            self._line.hide()
            note(f"run {run.id} {_waiting_text(run)}")


class RunProgress:
    """How runs stand, on stderr: one line that changes on a terminal, else a line for each change."""

    def __init__(self, app: App, *, tell_end: bool = True) -> None:
        self._app, self._live, self._tell_end = app, sys.stderr.isatty(), tell_end
        self._states: dict[int, str] = {}
        self._began = time.monotonic()

    async def show(self, runs: Sequence[Run]) -> None:
        if self._live:
            await self._redraw(runs)
            return
        for run in runs:
            if self._states.get(run.id) != run.state and (self._tell_end or run.state not in ENDED):
                note(f"run {run.id} {run.state}{_reason_text(run)}")
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
            line += f"; run {first.id} {first.state} {await self._wait_of(first)}"
        room = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{clipped(line, room)}", end="", file=sys.stderr, flush=True)

    async def _wait_of(self, run: Run) -> str:
        """The counts of a crawl, the last line of what another run says."""
        if run.state != "running":
            return ""
        if run.kind == SPIDER_KIND:
            return await counts_text(self._app, run)
        pieces = await self._app.runs.live_log(run.id, run.attempt)
        lines = LogTextRenderer().feed(b"".join(data for _, data in pieces[-2:]), last=True).strip().splitlines()
        return lines[-1].replace("\t", " ") if lines else ""


async def until_ended(app: App, run_ids: Sequence[int], timeout: float | None, *, tell_end: bool = True) -> list[Run]:
    """The runs, once all have ended or the time is over. Without ``tell_end`` the caller says how they ended."""
    progress, until = (
        RunProgress(app, tell_end=tell_end),
        time.monotonic() + (float("inf") if timeout is None else timeout),
    )
    try:
        while True:
            runs = [await app.runs.get(run_id) for run_id in run_ids]
            await progress.show(runs)
            left = until - time.monotonic()
            if left <= 0 or all(run.state in ENDED for run in runs):
                return runs
            await asyncio.sleep(min(POLL_SECONDS, left))
    finally:
        progress.finish()


def note_unfinished(runs: Sequence[Run], timeout: float | None) -> None:
    for run in runs:
        if run.state not in ENDED:
            note(f"run {run.id} is still {run.state} after {timeout:g} s")


def all_succeeded(runs: Sequence[Run]) -> bool:
    return all(run.state == SUCCEEDED for run in runs)


async def wait_for_run(app: App, run_id: int, *, wait: bool, follow: bool, quiet: bool) -> Run | None:
    """See a run that was just queued to its end, if that was asked for; ``quiet`` keeps its log to itself."""
    if follow and not quiet:
        return await LogFollower(app, run_id).to_the_end()
    if wait or follow:
        return (await until_ended(app, [run_id], None, tell_end=False))[0]
    return None


def _waiting_text(run: Run) -> str:
    if run.state == "paused":
        return f"is paused; `weft runs resume {run.id}` lets it go on"
    return f"waits {'for its next attempt' if run.attempt else 'for a worker'}"


def _reason_text(run: Run) -> str:
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
        return f"run {run.id} {run.state}{_reason_text(run)}"
    return f"run {answer.run_id} queued" if answer.fresh else f"run {answer.run_id} is there already: {answer.why}"
