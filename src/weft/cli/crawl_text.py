"""Crawls as people see them: a line while one goes on, and at its end what it has brought and where that is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.cli.output import clipped, escaped, took

if TYPE_CHECKING:
    from weft.app import App
    from weft.items.model import AttemptStats
    from weft.runs.model import Run

KIND = "spider"
ASK_SECONDS = 1.0
"""How often statistics are read; workers tell them as often."""
ERRORS = ("log_count/ERROR", "log_count/CRITICAL")


class CrawlLine:
    """The line below the log of a crawl: only where a person looks at a terminal."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._counts, self._asked_at = "", 0.0

    async def show(self, run: Run) -> None:
        if not self._live or run.kind != KIND or run.state != "running":
            return
        line = f"{await self._newest(run)}, {took(run.started_at, None)}"
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
        if not self._counts or time.monotonic() - self._asked_at >= ASK_SECONDS:
            self._counts = await counts_text(self._app, run)
            self._asked_at = time.monotonic()
        return self._counts


async def counts_text(app: App, run: Run) -> str:
    """How the newest attempt of a crawl is getting on: pages, items, errors."""
    told = [each for each in await app.items.stats(run.id) if each.attempt == run.attempt]
    pages = sum(_count(each, "response_received_count") for each in told)
    items, errors = sum(each.items for each in told), _errors(told)
    return f"{_many(pages, 'page')}, {_many(items, 'item')}, {_many(errors, 'error')}"


async def ending_lines(app: App, run: Run) -> list[str]:
    """What a crawl that has ended has brought, where that is, and what was unusual; nothing of other runs."""
    if run.kind != KIND:
        return []
    told = whole(run, await app.items.stats(run.id))
    where = await _where(app, run, told)
    lines = [f"{_harvest(told)}{where}"] if where or run.state == "succeeded" else []
    if errors := _errors(told[-1:]):
        lines.append(f"{_many(errors, 'error')}: `weft runs log {run.id} --errors`")
    return [escaped(line) for line in (*lines, *(f"unusual: {mark}" for mark in marks(told)))]


def whole(run: Run, told: Sequence[AttemptStats]) -> Sequence[AttemptStats]:
    """The attempts that count: a crawl that kept its place went on with each of them, another began anew."""
    return told if run.spec.spec.get("resumable") else told[-1:]


def marks(told: Sequence[AttemptStats]) -> list[str]:
    """What a run differs in from those before it, in sentences."""
    return [str(mark["text"]) for each in told if each.drift for mark in each.drift.get("marks", ())]


def crawl_fields(run: Run, told: Sequence[AttemptStats]) -> list[tuple[str, object]]:
    """What `weft runs show` says of a crawl, beside its result."""
    if not told:
        return []
    counted = whole(run, told)
    return [("dataset", told[-1].dataset), ("items", _harvest(counted)), *(("unusual", mark) for mark in marks(told))]


async def _where(app: App, run: Run, told: Sequence[AttemptStats]) -> str:
    dataset = next((each.dataset for each in reversed(told) if each.items and each.dataset), None)
    if dataset is None:
        return ""
    having = [each for each in await app.datasets.all() if each.name == dataset]
    name = dataset if len(having) == 1 else f"{run.project}/{dataset}"
    return f" in dataset {dataset}: `weft items {name}`"


def _harvest(told: Sequence[AttemptStats]) -> str:
    items, new = sum(each.items for each in told), sum(each.new_things for each in told)
    refused, invalid = sum(each.refused for each in told), sum(each.invalid for each in told)
    notes = [f"{new or 'none'} of them new"] if new < items else []
    notes += [f"{invalid} not as the schema says"] if invalid else []
    notes += [f"{refused} refused"] if refused else []
    return f"{_many(items, 'item')}{' (' + ', '.join(notes) + ')' if notes else ''}"


def _errors(told: Sequence[AttemptStats]) -> int:
    return sum(_count(each, name) for each in told for name in ERRORS)


def _count(each: AttemptStats, name: str) -> int:
    value: Any = each.stats.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
