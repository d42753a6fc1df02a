"""What ``weft runs log`` does beside printing a log from its beginning to its end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.clock import iso
from weft.errors import Invalid
from weft.runs.log_errors import ErrorGroup, ErrorGroups
from weft.runs.log_records import LogRecord
from weft.runs.log_search import LogQuery

if TYPE_CHECKING:
    from weft.app import App


def query(level: str | None, grep: str | None, tail: int | None) -> LogQuery:
    return LogQuery(level=(level or "").upper(), regex=grep or "", tail=tail)


def chooser(asked: LogQuery) -> Callable[[LogRecord], bool] | None:
    """Tells of a record whether it is wanted, for a log that is followed; None where all are."""
    if not asked.level and not asked.regex:
        return None
    try:
        pattern = re.compile(asked.regex)
    except re.error as problem:
        raise Invalid("--grep", asked.regex, f"it must be a regular expression ({problem})") from problem
    return lambda record: asked.wants(record) and pattern.search(record.text) is not None


async def print_records(weft: App, run_id: int, attempt: int | None, asked: LogQuery) -> None:
    """Print what is wanted as it is found."""
    async for batch in weft.runs.records(run_id, attempt, asked):
        sys.stdout.write("".join([f"{record.text}\n" for record in batch]))


async def records(weft: App, run_id: int, attempt: int | None, asked: LogQuery) -> list[LogRecord]:
    return [record async for batch in weft.runs.records(run_id, attempt, asked) for record in batch]


async def error_groups(weft: App, run_id: int, attempt: int | None) -> list[ErrorGroup]:
    groups = ErrorGroups()
    async for batch in weft.runs.records(run_id, attempt, LogQuery(level="ERROR")):
        groups.add(batch)
    return groups.all


def groups_text(groups: Sequence[ErrorGroup]) -> str:
    """Each group: how often and when, and the first of its errors whole."""
    return "\n\n".join(f"{each.count} × {_when(each)}\n{each.example}" for each in groups) or "no errors"


def _when(each: ErrorGroup) -> str:
    first, last = iso(each.first_at), iso(each.last_at)
    if first is None:
        return "at times unknown"
    return f"at {first}" if first == last else f"from {first} to {last}"
