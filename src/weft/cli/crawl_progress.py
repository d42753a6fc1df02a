"""Follow a crawl: a progress bar on a terminal, a line now and then elsewhere, and a summary at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.output import ago, answer, duration_text, escaped, fields, note, span, table
from weft.clock import SECOND, Moment, now
from weft.crawler.messages import ACTIVE, FINISHED
from weft.crawler.reasons import (
    describe_reason,
    host_problem,
    how_to_fetch,
    is_abandoned,
    links_not_kept,
    skipped_on_suspicion,
)

if TYPE_CHECKING:
    from weft.app import App
    from weft.crawls.model import CrawlPartition, CrawlReport
    from weft.ports import KnownHost

MOST_HOSTS = 10
"""Hosts, by name, that are looked at; `weft crawls hosts` has all."""
SOON_SECONDS: Moment = 2 * SECOND
"""A host that is asked again so soon is in no trouble worth a line, if it has ever answered."""
REMIND_SECONDS = 10.0
"""How long a host has to wait before there is another line about it."""
LATER_SECONDS = "later"


class HostTroubles:
    """Remembers what was said of each host."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str, float]] = {}
        """The trouble, the line about it, and when."""

    def news(self, hosts: Iterable[KnownHost], partitions: Sequence[CrawlPartition] = ()) -> list[str]:
        """What was not said yet."""
        lines = []
        for each in hosts:
            line = held_line(each, partitions) or trouble_line(each)
            if line and self._is_new(each.host, host_problem(each), line):
                self._said[each.host] = host_problem(each), line, time.monotonic()
                lines.append(line)
        return lines

    def _is_new(self, host: str, trouble: str, line: str) -> bool:
        """That the same trouble lasts is worth a line where it says until when."""
        before, said, at = self._said.get(host, ("", "", float("-inf")))
        if time.monotonic() - at < REMIND_SECONDS or line == said:
            return False
        return trouble != before or not line.endswith(LATER_SECONDS)


def trouble_lines(hosts: Iterable[KnownHost], partitions: Sequence[CrawlPartition]) -> list[str]:
    """What holds up a crawl just now, a line for each host."""
    return [line for each in hosts if (line := held_line(each, partitions) or trouble_line(each))]


def held_line(known: KnownHost, partitions: Sequence[CrawlPartition]) -> str:
    """Such as: site.example was held by run 7, which was cut off; free at 12:31:05."""
    words = partition_text(known, partitions)
    return escaped(f"{known.host} {words}") if words else ""


def partition_text(known: KnownHost, partitions: Sequence[CrawlPartition]) -> str:
    if known.leased_until <= now() + SOON_SECONDS or not is_abandoned(known.holder, partitions):
        return ""
    run = known.holder.partition(":")[0]
    return f"was held by run {run}, which was cut off; free {_clock_time(known.leased_until)}"


def trouble_line(known: KnownHost) -> str:
    """Such as: site.example does not answer (connection refused); asked again at 12:31:05."""
    trouble, is_soon = host_problem(known), known.next_at <= now() + SOON_SECONDS
    if not trouble or (is_soon and known.counts.done):
        return ""
    again = LATER_SECONDS if is_soon else _clock_time(known.next_at)
    return escaped(f"{known.host} {trouble}; asked again {again}")


def _clock_time(at: Moment) -> str:
    return time.strftime("at %H:%M:%S", time.localtime(at / SECOND))


POLL_SECONDS = 1.0
LINE_SECONDS = 10.0
"""How often a line is printed where nobody looks at a terminal."""
SECOND_INTERRUPT_SECONDS = 3.0
"""Within which a second Ctrl-C pauses the crawl."""
WINDOW = 10
"""Of how many looks the speed is the average."""
WIDE_COLUMNS = 100
"""Columns of a terminal that has room for the time that has passed, beside the time that is left."""
WAITING_TEXT = "waits for a worker"
SHOWN_TRAPS = 5
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
INTERRUPTED = 130
INCOMPLETE = 3
"""Done, but pages were skipped on suspicion of a trap, or links to them were not kept."""


class InterruptSignal:
    """Ctrl-C, as often as it is pressed while one stays with a crawl."""

    def __init__(self) -> None:
        self._presses = asyncio.Semaphore(0)

    def __enter__(self) -> InterruptSignal:
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


async def follow_crawl(weft: App, crawl_id: int, *, pause_on_interrupt: bool = False) -> CrawlReport:
    """Show how a crawl is getting on until it is over, or until somebody has seen enough."""
    with InterruptSignal() as interrupts:
        report = await _watch_crawl(weft, crawl_id, interrupts)
        if report is not None:
            return report
        await _detach_or_pause(weft, crawl_id, interrupts, pause=pause_on_interrupt)
        return await weft.crawls.report(crawl_id)


async def _watch_crawl(weft: App, crawl_id: int, interrupts: InterruptSignal) -> CrawlReport | None:
    """How a crawl that is over stands; None where somebody has seen enough before. The terminal is left as it was."""
    view, troubles = _progress_view(), HostTroubles()
    try:
        while True:
            report = await weft.crawls.report(crawl_id)
            if report.crawl.state != ACTIVE:
                return report
            view.say(troubles.news(await weft.crawls.hosts(crawl_id, limit=MOST_HOSTS), report.partitions))
            view.show(report)
            if await interrupts.within(POLL_SECONDS):
                return None
    finally:
        view.close()


async def _detach_or_pause(weft: App, crawl_id: int, interrupts: InterruptSignal, *, pause: bool) -> None:
    if not pause:
        note(f"detached: crawl {crawl_id} continues; Ctrl-C again within {SECOND_INTERRUPT_SECONDS:.0f} s pauses it")
        pause = await interrupts.within(SECOND_INTERRUPT_SECONDS)
    if pause:
        await weft.crawls.pause(crawl_id)


class CrawlSpeed:
    """Pages a second, from one look to the next."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def of(self, report: CrawlReport) -> float:
        self._looks.append((time.monotonic(), report.pages))
        (since, before), (now, pages) = self._looks[0], self._looks[-1]
        return (pages - before) / (now - since) if now > since else report.pages_per_second


class ProgressLines:
    """For logs and pipes: a line now and then."""

    def __init__(self) -> None:
        self._speed, self._told_at = CrawlSpeed(), time.monotonic()

    def show(self, report: CrawlReport) -> None:
        rate = self._speed.of(report)
        if time.monotonic() - self._told_at >= LINE_SECONDS:
            self._told_at = time.monotonic()
            note(progress_text(report, rate))

    def say(self, lines: list[str]) -> None:
        for line in lines:
            note(line)

    def close(self) -> None:
        return


class ProgressBar:
    """For people: a bar that grows, and the figures beside it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns: list[ProgressColumn] = [BarColumn(bar_width=24), TextColumn("{task.description}")]
        if console.width >= WIDE_COLUMNS:
            columns.append(TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("begins", total=None)
        self._speed = CrawlSpeed()
        self._progress.start()

    def show(self, report: CrawlReport) -> None:
        words, total = progress_text(report, self._speed.of(report)), report.pages + report.left
        self._progress.update(self._task, description=words, completed=report.pages, total=total or None)

    def say(self, lines: list[str]) -> None:
        """Above the bar, to stay there."""
        for line in lines:
            self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def _progress_view() -> ProgressBar | ProgressLines:
    return ProgressBar() if sys.stderr.isatty() else ProgressLines()


def progress_text(report: CrawlReport, rate: float) -> str:
    """How far a crawl is, on one line."""
    counts, is_running = report.counts, any(partition.state == "running" for partition in report.partitions)
    if not report.pages and not is_running:
        return WAITING_TEXT
    parts = [f"{counts.done:,} pages", *([f"{rate:.1f}/s"] if is_running else [])]
    parts += [f"{counts.queued + counts.leased:,} queued", plural(counts.hosts, "host")]
    parts += [plural(counts.failed, "error"), size_text(counts.size)]
    if not is_running:
        return ", ".join([*parts, WAITING_TEXT])
    left = report.left / rate if rate > 0 else None
    return ", ".join(parts + ([f"{span(left)} left"] if left else []))


def report_end(context: Any, report: CrawlReport) -> None:
    """What a crawl has brought and where that is. Exits with 1 where it did not end well, with 3 where pages were
    skipped on suspicion or links were not kept."""
    from weft.operations.crawls import report_document

    answer(context, report_document(report), lambda: summary(report))
    crawl = report.crawl
    if crawl.state == ACTIVE:
        note(f"`weft crawls follow {crawl.id}` attaches again, `weft crawls pause {crawl.id}` pauses it")
        raise typer.Exit(INTERRUPTED)
    if crawl.state != FINISHED:
        note(f"`weft crawls resume {crawl.id}` resumes it")
    if crawl.state != FINISHED or not report.counts.done:
        raise typer.Exit(1)
    if report.suspected or report.not_kept:
        raise typer.Exit(INCOMPLETE)


def summary(report: CrawlReport) -> str:
    crawl, counts = report.crawl, report.counts
    why = f": {escaped(crawl.reason)}" if crawl.reason else ""
    rate = f" ({report.pages_per_second:.1f}/s)" if report.pages_per_second else ""
    lines = [
        f"crawl {crawl.id} is {crawl.state}{why}{_incomplete(report)}",
        f"{plural(counts.done, 'page')} in {duration_text(crawl.created_at, crawl.ended_at)}{rate}, "
        f"{plural(counts.failed, 'error')}, {size_text(counts.size)}, {plural(counts.hosts, 'host')}",
    ]
    if report.skips:
        left_out = ", ".join(f"{each.count:,} {each.reason}" for each in report.skips)
        lines.append(f"left out: {left_out}; `weft crawls skips {crawl.id}` says why")
    traps = dict.fromkeys(trap.host + trap.pattern for trap in report.traps)
    lines += [f"looks like a trap: {escaped(trap)}" for trap in list(traps)[:SHOWN_TRAPS]]
    if len(traps) > SHOWN_TRAPS:
        lines.append(f"and {len(traps) - SHOWN_TRAPS} more: `weft crawls skips {crawl.id} --suspected`")
    if counts.done:
        name = crawl.spec.dataset if crawl.project == "default" else f"{crawl.project}/{crawl.spec.dataset}"
        raw = f"; raw: `weft crawls export {crawl.id} --warc --output site.warc.gz`" if crawl.spec.keeping.warc else ""
        lines.append(f"pages: `weft items {name}` or `weft crawls export {crawl.id}`{raw}")
    return "\n".join(lines)


def _incomplete(report: CrawlReport) -> str:
    """That pages are missing, as far as the reason does not say it, and how to fetch them."""
    crawl, dropped = report.crawl, report.not_kept
    told, remedies = [], []
    if report.suspected:
        told.append(skipped_on_suspicion(report.suspected))
        what = "the pages" if dropped else "them"
        remedies.append(f"`weft crawls requeue {crawl.id} --state skipped` fetches {what}")
    if dropped:
        told.append(links_not_kept(sum(each.count for each in dropped)))
        what = "the links" if report.suspected else "them"
        remedies.append(how_to_fetch((each.reason for each in dropped), what))
    new = [each for each in told if each not in crawl.reason]
    return "".join(f"; {each}" for each in (*new, *remedies))


def report_text(report: CrawlReport, troubles: Sequence[str] = ()) -> str:
    """All that ``weft crawls show`` says."""
    crawl, counts = report.crawl, report.counts
    left = report.seconds_left
    head = fields(
        [
            ("crawl", f"{crawl.id}, {crawl.project}/{crawl.name}"),
            ("state", crawl.state),
            ("why", crawl.reason),
            ("incomplete", _incomplete(report).removeprefix("; ") or None),
            ("begins at", tuple(crawl.spec.urls[:5])),
            ("pages", f"{counts.done:,} done, {counts.failed:,} failed, {counts.skipped:,} skipped"),
            ("waiting", f"{counts.queued:,} queued, {counts.leased:,} being fetched"),
            ("hosts", counts.hosts),
            ("bytes", size_text(counts.size)),
            ("speed", f"{report.pages_per_second:.1f} pages/s"),
            ("left", None if left is None else span(left)),
            ("begun", f"{ago(crawl.created_at)} by {crawl.created_by}"),
            ("ended", None if crawl.ended_at is None else ago(crawl.ended_at)),
        ]
    )
    partitions = [(each.run_id, each.state, each.worker, each.pages, each.reason) for each in report.partitions]
    skips = [(each.count, each.reason, describe_reason(each.reason)) for each in report.skips]
    traps = [(each.count, each.host + each.pattern, each.example) for each in report.traps]
    parts = [head, "\n".join(troubles), table(("RUN", "STATE", "WORKER", "PAGES", "WHY"), partitions)]
    parts += [table(("LEFT OUT", "REASON", "WHY"), skips), table(("TRAPPED", "PATTERN", "EXAMPLE"), traps)]
    return "\n\n".join(part for part in parts if part)


def size_text(count: int) -> str:
    """Bytes in their largest unit."""
    unit, bytes_ = next(((unit, each) for unit, each in UNITS if count >= each), ("B", 1.0))
    return f"{count / bytes_:.3g} {unit}"


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
