"""Staying with a crawl: a bar that grows on a terminal, a line now and then elsewhere, and a summary at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.crawl_troubles import LOOKED_AT, Troubles
from weft.cli.output import ago, answer, escaped, fields, note, span, table, took
from weft.crawls.model import ACTIVE, FINISHED
from weft.crawls.reasons import sentence

if TYPE_CHECKING:
    from weft.app import App
    from weft.crawls.report import Report

LOOK_SECONDS = 1.0
LINE_SECONDS = 10.0
"""How often a line is printed where nobody looks at a terminal."""
AGAIN_SECONDS = 3.0
"""Within which Ctrl-C, pressed once more, lets the crawl rest."""
WINDOW = 10
"""Of how many looks the speed is the average."""
WIDE = 100
"""Columns of a terminal that has room for the time that has passed, beside the time that is left."""
WAITS = "waits for a worker"
SHOWN_TRAPS = 5
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
INTERRUPTED = 130


class Interrupts:
    """Ctrl-C, as often as it is pressed while one stays with a crawl."""

    def __init__(self) -> None:
        self._presses = asyncio.Semaphore(0)

    def __enter__(self) -> Interrupts:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._presses.release)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def within(self, seconds: float) -> bool:
        """Whether it is pressed within this time; each press counts once."""
        try:
            await asyncio.wait_for(self._presses.acquire(), seconds)
        except TimeoutError:
            return False
        return True


async def stay(weft: App, crawl_id: int, *, pause_on_interrupt: bool = False) -> Report:
    """Show how a crawl is getting on until it is over, or until somebody has seen enough."""
    with Interrupts() as interrupts:
        report = await _watched(weft, crawl_id, interrupts)
        if report is not None:
            return report
        await _leave(weft, crawl_id, interrupts, pause=pause_on_interrupt)
        return await weft.crawls.report(crawl_id)


async def _watched(weft: App, crawl_id: int, interrupts: Interrupts) -> Report | None:
    """How a crawl that is over stands; None where somebody has seen enough before. The terminal is left as it was."""
    view, troubles = _view(), Troubles()
    try:
        while True:
            report = await weft.crawls.report(crawl_id)
            if report.crawl.state != ACTIVE:
                return report
            view.say(troubles.news(await weft.crawls.hosts(crawl_id, limit=LOOKED_AT), report.shares))
            view.show(report)
            if await interrupts.within(LOOK_SECONDS):
                return None
    finally:
        view.close()


async def _leave(weft: App, crawl_id: int, interrupts: Interrupts, *, pause: bool) -> None:
    if not pause:
        note(f"crawl {crawl_id} goes on; Ctrl-C once more within {AGAIN_SECONDS:.0f} s lets it rest")
        pause = await interrupts.within(AGAIN_SECONDS)
    if pause:
        await weft.crawls.pause(crawl_id)


class Speed:
    """Pages a second, from one look to the next."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def of(self, report: Report) -> float:
        self._looks.append((time.monotonic(), report.pages))
        (since, before), (now, pages) = self._looks[0], self._looks[-1]
        return (pages - before) / (now - since) if now > since else report.pages_per_second


class Lines:
    """For logs and pipes: a line now and then."""

    def __init__(self) -> None:
        self._speed, self._told_at = Speed(), time.monotonic()

    def show(self, report: Report) -> None:
        rate = self._speed.of(report)
        if time.monotonic() - self._told_at >= LINE_SECONDS:
            self._told_at = time.monotonic()
            note(standing(report, rate))

    def say(self, lines: list[str]) -> None:
        for line in lines:
            note(line)

    def close(self) -> None:
        return


class Bar:
    """For people: a bar that grows, and the figures beside it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns: list[ProgressColumn] = [BarColumn(bar_width=24), TextColumn("{task.description}")]
        if console.width >= WIDE:
            columns.append(TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("begins", total=None)
        self._speed = Speed()
        self._progress.start()

    def show(self, report: Report) -> None:
        words, total = standing(report, self._speed.of(report)), report.pages + report.left
        self._progress.update(self._task, description=words, completed=report.pages, total=total or None)

    def say(self, lines: list[str]) -> None:
        """Above the bar, to stay there."""
        for line in lines:
            self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def _view() -> Bar | Lines:
    return Bar() if sys.stderr.isatty() else Lines()


def standing(report: Report, rate: float) -> str:
    """How far a crawl is, on one line."""
    counts, is_running = report.counts, any(share.state == "running" for share in report.shares)
    if not report.pages and not is_running:
        return WAITS
    parts = [f"{counts.done:,} pages", *([f"{rate:.1f}/s"] if is_running else [])]
    parts += [f"{counts.queued + counts.leased:,} queued", many(counts.hosts, "host")]
    parts += [many(counts.failed, "error"), size(counts.size)]
    if not is_running:
        return ", ".join([*parts, WAITS])
    left = report.left / rate if rate > 0 else None
    return ", ".join(parts + ([f"{span(left)} left"] if left else []))


def tell_end(context: Any, report: Report) -> None:
    """What a crawl has brought, where that is, and how it ended: with 1 where it did not end well."""
    from weft.documents.crawls import report_document

    answer(context, report_document(report), lambda: summary(report))
    crawl = report.crawl
    if crawl.state == ACTIVE:
        note(f"`weft crawls follow {crawl.id}` comes back to it, `weft crawls pause {crawl.id}` lets it rest")
        raise typer.Exit(INTERRUPTED)
    if crawl.state != FINISHED:
        note(f"`weft crawls resume {crawl.id}` lets it go on")
    if crawl.state != FINISHED or not report.counts.done:
        raise typer.Exit(1)


def summary(report: Report) -> str:
    crawl, counts = report.crawl, report.counts
    why = f": {escaped(crawl.reason)}" if crawl.reason else ""
    rate = f" ({report.pages_per_second:.1f}/s)" if report.pages_per_second else ""
    lines = [
        f"crawl {crawl.id} is {crawl.state}{why}",
        f"{many(counts.done, 'page')} in {took(crawl.created_at, crawl.ended_at)}{rate}, "
        f"{many(counts.failed, 'error')}, {size(counts.size)}, {many(counts.hosts, 'host')}",
    ]
    if report.skips:
        left_out = ", ".join(f"{each.count:,} {each.reason}" for each in report.skips)
        lines.append(f"left out: {left_out}; `weft crawls skips {crawl.id}` says why")
    traps = dict.fromkeys(trap.host + trap.pattern for trap in report.traps)
    lines += [f"looks like a trap: {escaped(trap)}" for trap in list(traps)[:SHOWN_TRAPS]]
    if len(traps) > SHOWN_TRAPS:
        lines.append(f"and {len(traps) - SHOWN_TRAPS} more: `weft crawls skips {crawl.id} --traps`")
    if counts.done:
        name = crawl.spec.dataset if crawl.project == "default" else f"{crawl.project}/{crawl.spec.dataset}"
        raw = f"; raw: `weft crawls export {crawl.id} --warc --to site.warc.gz`" if crawl.spec.keeping.warc else ""
        lines.append(f"pages: `weft items {name}` or `weft crawls export {crawl.id}`{raw}")
    return "\n".join(lines)


def report_text(report: Report, troubles: Sequence[str] = ()) -> str:
    """All that ``weft crawls show`` says."""
    crawl, counts = report.crawl, report.counts
    left = report.seconds_left
    head = fields(
        [
            ("crawl", f"{crawl.id}, {crawl.project}/{crawl.name}"),
            ("state", crawl.state),
            ("why", crawl.reason),
            ("begins at", tuple(crawl.spec.urls[:5])),
            ("pages", f"{counts.done:,} done, {counts.failed:,} failed, {counts.skipped:,} skipped"),
            ("waiting", f"{counts.queued:,} queued, {counts.leased:,} being fetched"),
            ("hosts", counts.hosts),
            ("bytes", size(counts.size)),
            ("speed", f"{report.pages_per_second:.1f} pages/s"),
            ("left", None if left is None else span(left)),
            ("begun", f"{ago(crawl.created_at)} by {crawl.created_by}"),
            ("ended", None if crawl.ended_at is None else ago(crawl.ended_at)),
        ]
    )
    shares = [(each.run_id, each.state, each.worker, each.pages, each.reason) for each in report.shares]
    skips = [(each.count, each.reason, sentence(each.reason)) for each in report.skips]
    traps = [(each.count, each.host + each.pattern, each.example) for each in report.traps]
    parts = [head, "\n".join(troubles), table(("RUN", "STATE", "WORKER", "PAGES", "WHY"), shares)]
    parts += [table(("LEFT OUT", "REASON", "WHY"), skips), table(("TRAPPED", "PATTERN", "EXAMPLE"), traps)]
    return "\n\n".join(part for part in parts if part)


def size(count: int) -> str:
    """Bytes in their largest unit."""
    unit, bytes_ = next(((unit, each) for unit, each in UNITS if count >= each), ("B", 1.0))
    return f"{count / bytes_:.3g} {unit}"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
