"""Logs as JSON: lines with their numbers, groups of errors, and what a stream of a log sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from weft.clock import iso
from weft.documents.copying import Time
from weft.runs.log_errors import ErrorGroup
from weft.runs.log_lines import Line
from weft.runs.log_records import LogRecord, tamed


class LineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a log, or a line that was simply printed. Nothing in it steers a terminal or a page."""

    line: int
    """Its number, from 1."""
    at: Time | None
    level: str
    """Empty where the line was simply printed."""
    logger: str
    message: str
    exception: str | None
    """Its traceback."""
    more: int
    """Characters of message and exception that were left out."""


class LinesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an attempt's log, in their order."""

    attempt: int
    size: int
    """Bytes of the log, so far."""
    lines: int
    """How many lines it has, so far."""
    place: str
    """Where the log ends; the stream of the log goes on after it."""
    items: list[LineDocument]
    older: int | None
    """Give this as before for earlier lines; null where none are left."""
    newer: int | None
    """Give this as after for later lines; null where none are left."""


class GroupDocument(msgspec.Struct, frozen=True):
    """Errors that are alike but for numbers, quoted words and addresses."""

    logger: str
    message: str
    level: str
    count: int
    first_at: str | None
    last_at: str | None
    first_line: int | None
    last_line: int | None
    example: str


class PieceDocument(msgspec.Struct, frozen=True):
    """Some of an attempt's log, and at which byte of it that begins."""

    attempt: int
    start: int
    text: str


class LinePieceDocument(msgspec.Struct, frozen=True):
    """Some lines of an attempt's log, and at which byte of it they begin."""

    attempt: int
    start: int
    gap: bool
    """Whether lines before these were left out, since there were too many to follow."""
    lines: list[LineDocument]


class EndDocument(msgspec.Struct, frozen=True):
    """How the run has ended; nothing follows."""

    state: str
    outcome: str | None
    reason: str | None


def line_documents(lines: Iterable[Line], width: int) -> list[LineDocument]:
    """Each record by itself; of a long text the first ``width`` characters."""
    return [_line(line.number, record, width) for line in lines for record in line.records]


def group_document(each: ErrorGroup) -> GroupDocument:
    fields = {name: getattr(each, name) for name in ErrorGroup.__struct_fields__}
    return GroupDocument(**fields | {"first_at": iso(each.first_at), "last_at": iso(each.last_at)})


def _line(number: int, record: LogRecord, width: int) -> LineDocument:
    message = tamed(record.message.rstrip("\r\n"))
    exception = None if record.exception is None else tamed(record.exception.rstrip("\r\n"))
    more = sum(max(0, len(text) - width) for text in _texts(message, exception))
    return LineDocument(
        line=number,
        at=iso(record.at),
        level=record.level,
        logger=tamed(record.logger)[:200],
        message=message[:width],
        exception=None if exception is None else exception[:width],
        more=more,
    )


def _texts(*texts: str | None) -> Iterator[str]:
    yield from (text for text in texts if text is not None)
