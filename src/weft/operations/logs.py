"""Read, search and follow the logs of runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.clock import iso
from weft.errors import BlobsDown, DatabaseDown, Invalid, NotFound, WeftError
from weft.logs.error_groups import ErrorGroup, ErrorGroups
from weft.logs.lines import LogLine, LogLinePage, LogLineReader, lines_before, lines_in, matching_lines
from weft.logs.records import LONGEST_LINE, LogRecord, records_of, without_control_codes
from weft.logs.search import MOST_TAIL, LogQuery, search
from weft.logs.storage import StoredLog
from weft.operations import streams
from weft.operations.operation import Call, Operations, Time
from weft.operations.paging import Page, example_page
from weft.runs.log_tail import LogPiece, LogTail
from weft.runs.model import ENDED, Run


class LogLineDocument(msgspec.Struct, frozen=True, kw_only=True):
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
    fields: dict[str, Any]
    """URL and status of the page that it speaks of, and what the log call has given as ``extra``; empty where that is
    longer than the message may be."""


class LogLinesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an attempt's log, in their order."""

    attempt: int
    size: int
    """Bytes of the log, so far."""
    lines: int
    """How many lines it has, so far."""
    place: str
    """Where the log ends; the stream of the log goes on after it."""
    items: list[LogLineDocument]
    older: int | None
    """Give this as before for earlier lines; null where none are left."""
    newer: int | None
    """Give this as after for later lines; null where none are left."""
    late_from: int | None
    """The line from which on the log came late, when the attempt had been given up as lost; null where none did."""


class LogErrorDocument(msgspec.Struct, frozen=True):
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


class LogPieceDocument(msgspec.Struct, frozen=True):
    """Some of an attempt's log, and at which byte of it that begins."""

    attempt: int
    start: int
    text: str


class LogLinePieceDocument(msgspec.Struct, frozen=True):
    """Some lines of an attempt's log, and at which byte of it they begin."""

    attempt: int
    start: int
    gap: bool
    """Whether lines before these were left out, since there were too many to follow."""
    lines: list[LogLineDocument]


class LogEndDocument(msgspec.Struct, frozen=True):
    """How the run has ended; nothing follows."""

    state: str
    outcome: str | None
    reason: str | None


def line_documents(lines: Iterable[LogLine], width: int) -> list[LogLineDocument]:
    """Each record by itself; of a long text the first ``width`` characters."""
    return [_line_document(line.number, record, width) for line in lines for record in line.records]


def log_error_document(each: ErrorGroup) -> LogErrorDocument:
    fields = {name: getattr(each, name) for name in ErrorGroup.__struct_fields__}
    return LogErrorDocument(**fields | {"first_at": iso(each.first_at), "last_at": iso(each.last_at)})


def _line_document(number: int, record: LogRecord, width: int) -> LogLineDocument:
    message = without_control_codes(record.message.rstrip("\r\n"))
    exception = None if record.exception is None else without_control_codes(record.exception.rstrip("\r\n"))
    more = sum(max(0, len(text) - width) for text in _line_texts(message, exception))
    return LogLineDocument(
        line=number,
        at=iso(record.at),
        level=record.level,
        logger=without_control_codes(record.logger)[:200],
        message=message[:width],
        exception=None if exception is None else exception[:width],
        more=more,
        fields=_line_fields(record, width),
    )


def _line_fields(record: LogRecord, width: int) -> dict[str, Any]:
    place = {"url": record.url, "status": record.status}
    told = record.extra | {name: value for name, value in place.items() if value is not None}
    return told if len(msgspec.json.encode(told)) <= width else {}


def _line_texts(*texts: str | None) -> Iterator[str]:
    yield from (text for text in texts if text is not None)


LineNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
LineWidth = Annotated[
    int, msgspec.Meta(ge=1, le=2 * LONGEST_LINE, description="Characters of each message and traceback that are told.")
]


AttemptNumber = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1, description="Default: the newest.")]


class LogSearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    """Records of this level and of graver ones; a printed line has none."""
    logger: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Records of this logger and of those below it."""
    text: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records that hold this, in capitals or not."""
    regex: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records in which this regular expression is found."""

    def query(self, tail: int | None = None) -> LogQuery:
        return LogQuery(level=self.level or "", logger=self.logger, text=self.text, regex=self.regex, tail=tail)


class LogStreamQuery(LogSearchQuery, frozen=True, kw_only=True):
    """How the log is told, and from where on."""

    format: Literal["text", "jsonl", "lines"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own; lines: with the numbers of lines, and
    only those that are asked for by level, logger, text and regex."""
    after: Annotated[str, msgspec.Meta(max_length=30)] = ""
    """What Last-Event-ID says, for those who cannot send it with their first request."""
    width: LineWidth = 4000


class LogDownloadQuery(LogSearchQuery, frozen=True, kw_only=True):
    """Which records of which attempt, and how they are told."""

    attempt: AttemptNumber | None = None
    tail: Annotated[int, msgspec.Meta(ge=1, le=MOST_TAIL)] | None = None
    """No more than the last so many."""
    format: Literal["text", "jsonl", "raw"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own; raw: the bytes as they are."""


class LogLineQuery(LogSearchQuery, frozen=True, kw_only=True):
    """Which lines of which attempt: the last ones by default."""

    attempt: AttemptNumber | None = None
    before: LineNumber | None = None
    """The last ones before this line."""
    after: LineNumber | None = None
    """The first ones after this line; 0 for the first of all."""
    around: LineNumber | None = None
    """This line in the midst of others."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    """How many lines at most."""
    width: LineWidth = 4000

    def check(self) -> None:
        told = [name for name in ("before", "after", "around") if getattr(self, name) is not None]
        if len(told) > 1:
            raise Invalid(told[0], getattr(self, told[0]), f"it can not be told together with {told[1]}")


class LogErrorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors."""

    attempt: AttemptNumber | None = None
    most_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Only those in so many bytes at the end of the log, or a little more. Default: all."""


log = logging.getLogger(__name__)

operations = Operations("logs")

SHORTEST_POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 1.0
"""How often a log is looked at while it grows, and after a while in which it did not."""

MOST_BYTES_BEHIND = 1 << 18
"""Bytes of lines that are sent to who comes late; of more than that, the last."""

LOG_RECORD_EXAMPLE: dict[str, Any] = {
    "at": 1780315200000000,
    "level": "ERROR",
    "logger": "scrapy.core.scraper",
    "message": "…",
}
LOG_LINE_EXAMPLE: dict[str, Any] = {
    "line": 1,
    "at": None,
    "level": "",
    "logger": "",
    "message": "14 items kept",
    "exception": None,
    "more": 0,
    "fields": {},
}
LOG_ERROR_EXAMPLE: dict[str, Any] = {
    "logger": "scrapy.core.scraper",
    "message": "Spider error processing <GET <url>> (referer: None) | KeyError: '…'",
    "level": "ERROR",
    "count": 14,
    "first_at": "2026-06-01T12:00:00.000Z",
    "last_at": "2026-06-01T12:01:00.000Z",
    "first_line": 71,
    "last_line": 890,
    "example": "2026-06-01 12:00:00 [scrapy.core.scraper] ERROR: Spider error processing …",
}
LOG_EXAMPLE = 'id: 1.14\nevent: log\ndata: {"attempt":1,"start":0,"text":"14 items kept\\n"}\n\n'


@operations.get(
    "/runs/{run_id}/log", needs=Role.VIEWER, query=LogDownloadQuery, media_type="text/plain", example="7 prices found\n"
)
async def show(call: Call) -> Response:
    """What an attempt of a run has printed so far, or those records of it that are asked for."""
    asked: LogDownloadQuery = call.query
    log = await _opened(call, asked.attempt)
    if asked.format == "raw":
        return await _answer(log.forwards())
    encode = _lines if asked.format == "jsonl" else _text
    return await _answer(encode(batch) async for batch in search(log, asked.query(asked.tail)))


@operations.get(
    "/runs/{run_id}/log/lines",
    needs=Role.VIEWER,
    query=LogLineQuery,
    answer=LogLinesDocument,
    example={
        "attempt": 1,
        "size": 14,
        "lines": 1,
        "place": "1.14",
        "items": [LOG_LINE_EXAMPLE],
        "older": None,
        "newer": None,
    }
    | {"late_from": None},
)
async def lines(call: Call) -> LogLinesDocument:
    """Lines of an attempt's log with their numbers: the last, those before or after one, or those that are wanted."""
    asked: LogLineQuery = call.query
    asked.check()
    run, attempt = await _which(call, asked.attempt)
    is_live = run.state not in ENDED and attempt == run.attempt
    log = await call.app.runs.open_log(run.id, attempt, whole_lines=is_live)
    reading = await LogLineReader.of(log)
    found = await _page(reading, asked)
    return LogLinesDocument(
        attempt=attempt,
        size=log.size,
        lines=await reading.total(),
        place=f"{max(attempt, 1)}.{log.size}",
        items=line_documents(found.lines, asked.width),
        older=found.older,
        newer=found.newer,
        late_from=None if log.late_from is None else await lines_before(log, log.late_from) + 1,
    )


@operations.get(
    "/runs/{run_id}/log/errors",
    needs=Role.VIEWER,
    query=LogErrorQuery,
    answer=Page[LogErrorDocument],
    example=example_page(LOG_ERROR_EXAMPLE),
)
async def errors(call: Call) -> Page[LogErrorDocument]:
    """Group the errors of an attempt's log, the most frequent first."""
    reading = await LogLineReader.of(await _opened(call, call.query.attempt))
    groups = ErrorGroups()
    async for found in reading.errors(call.query.most_bytes):
        for line in found:
            groups.add(line.records, line.number)
    return Page(items=[log_error_document(each) for each in groups.all])


@operations.get(
    "/runs/{run_id}/log/stream",
    needs=Role.VIEWER,
    query=LogStreamQuery,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last piece that was received; the stream goes on right after that one."},
    example=LOG_EXAMPLE,
)
async def stream(call: Call) -> Response:
    """Send the log of a run as it grows, as events named log; the last one is named end, when the run has ended."""
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    asked: LogStreamQuery = call.query
    query = asked.query()
    place = call.header("last-event-id") or asked.after or "1.0"
    most = MOST_BYTES_BEHIND if asked.format == "lines" else None
    tail = LogTail(call.app.runs, run_id, place, whole_lines=asked.format != "text", most_behind=most)
    if call.http.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.event_stream(_frames(call, tail, run.project, query))


async def _frames(call: Call, tail: LogTail, project: str, query: LogQuery) -> AsyncIterator[bytes]:
    watch, pause = streams.StreamCaller(call.caller, call.identify, Role.VIEWER), SHORTEST_POLL_SECONDS
    while not call.app.tail.closed:
        if await watch.still(project) is None:
            yield streams.REFUSED
            return
        try:
            run, pieces = await tail.look()
            grown = False
            async for piece in pieces:
                grown = True
                yield await _piece(piece, call.query, query)
        except (DatabaseDown, BlobsDown, NotFound, Invalid) as problem:
            log.warning("a stream of a log ends", extra={"why": str(problem)})
            break
        if run.state in ENDED:
            yield _end(run)
            return
        pause = SHORTEST_POLL_SECONDS if grown else min(pause * 1.5, LONGEST_POLL_SECONDS)
        if grown:
            watch.told()
        elif watch.is_silent:
            yield b": still here\n\n"
            watch.told()
        await asyncio.sleep(pause)
    yield streams.GOODBYE


async def _page(reading: LogLineReader, asked: LogLineQuery) -> LogLinePage:
    query = asked.query()
    if asked.after is not None:
        return await reading.after(asked.after, query, asked.limit)
    if asked.around is None:
        return await reading.before(asked.before, query, asked.limit)
    older = await reading.before(asked.around, query, max(1, asked.limit // 2))
    newer = await reading.after(asked.around - 1, query, max(1, asked.limit - asked.limit // 2))
    return LogLinePage(lines=older.lines + newer.lines, older=older.older, newer=newer.newer)


async def _which(call: Call, attempt: int | None) -> tuple[Run, int]:
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    if attempt is not None and attempt > run.attempt:
        raise Invalid("attempt", attempt, f"run {run_id} has had {run.attempt} attempts")
    return run, attempt or run.attempt


async def _opened(call: Call, attempt: int | None) -> StoredLog:
    run, wanted = await _which(call, attempt)
    return await call.app.runs.open_log(run.id, wanted)


async def _answer(parts: AsyncIterator[bytes]) -> Response:
    """Send parts as they come. What is wrong with the first is the answer; what is later, its last line."""
    first = await anext(parts, b"")

    async def all_parts() -> AsyncIterator[bytes]:
        yield first
        try:
            async for part in parts:
                yield part
        except WeftError as problem:
            yield f"[weft] the rest is missing: {problem.public}\n".encode()

    return StreamingResponse(all_parts(), media_type="text/plain")


def _text(batch: Sequence[LogRecord]) -> bytes:
    return "".join([record.text + "\n" for record in batch]).encode(errors="replace")


def _lines(batch: Sequence[LogRecord]) -> bytes:
    return b"".join([msgspec.json.encode(record) + b"\n" for record in batch])


async def _piece(piece: LogPiece, asked: LogStreamQuery, query: LogQuery) -> bytes:
    if asked.format != "lines":
        text = piece.text if asked.format == "text" else _lines(records_of(piece.data)).decode()
        data = msgspec.json.encode(LogPieceDocument(piece.attempt, piece.start, text))
    else:
        found = await _asked_for(piece, query)
        told = line_documents(found, asked.width)
        data = msgspec.json.encode(LogLinePieceDocument(piece.attempt, piece.start, piece.gap, told))
    return b"id: %b\nevent: log\ndata: %b\n\n" % (piece.place.encode(), data)


async def _asked_for(piece: LogPiece, query: LogQuery) -> list[LogLine]:
    """Those lines of a piece that are wanted."""
    found = await asyncio.to_thread(lines_in, piece.data, piece.line)
    return await matching_lines(found, query)


def _end(run: Run) -> bytes:
    data = msgspec.json.encode(LogEndDocument(run.state, run.outcome, run.reason))
    return b"event: end\ndata: %b\n\n" % data
