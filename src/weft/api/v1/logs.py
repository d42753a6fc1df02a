"""The log of a run: whole, searched, its errors grouped, and as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.api import examples, streams
from weft.api.call import Call
from weft.api.log_asked import Grouped, Lines, Streamed, Wanted
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.logs import (
    EndDocument,
    GroupDocument,
    LinePieceDocument,
    LinesDocument,
    PieceDocument,
    group_document,
    line_documents,
)
from weft.errors import BlobsDown, DatabaseDown, Invalid, NotFound, WeftError
from weft.live.log import LogPiece, LogTail
from weft.runs.log_errors import ErrorGroups
from weft.runs.log_lines import Line, LinePage, LogLines, lines_in, matching, narrowed
from weft.runs.log_records import LogRecord, records_of
from weft.runs.log_search import LogQuery, search
from weft.runs.log_shelf import KeptLog
from weft.runs.model import ENDED, Run

log = logging.getLogger(__name__)

operations = Operations("logs")

SOONEST_LOOK_SECONDS = 0.2
LATEST_LOOK_SECONDS = 1.0
"""How often a log is looked at while it grows, and after a while in which it did not."""

MOST_BEHIND = 1 << 18
"""Bytes of lines that are sent to who comes late; of more than that, the last."""

RECORD: dict[str, Any] = {"at": 1780315200000000, "level": "ERROR", "logger": "scrapy.core.scraper", "message": "…"}
LINE: dict[str, Any] = {
    "line": 1,
    "at": None,
    "level": "",
    "logger": "",
    "message": "14 items kept",
    "exception": None,
    "more": 0,
}
GROUP: dict[str, Any] = {
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
EXAMPLE = 'id: 1.14\nevent: log\ndata: {"attempt":1,"start":0,"text":"14 items kept\\n"}\n\n'


@operations.get(
    "/runs/{run_id}/log", needs=Role.VIEWER, query=Wanted, media_type="text/plain", example="7 prices found\n"
)
async def show(call: Call) -> Response:
    """What an attempt of a run has printed so far, or those records of it that are asked for."""
    asked: Wanted = call.query
    log = await _opened(call, asked.attempt)
    if asked.format == "raw":
        return await _answer(log.forwards())
    encode = _lines if asked.format == "jsonl" else _text
    return await _answer(encode(batch) async for batch in search(log, asked.query(asked.tail)))


@operations.get(
    "/runs/{run_id}/log/lines",
    needs=Role.VIEWER,
    query=Lines,
    answer=LinesDocument,
    example={"attempt": 1, "size": 14, "lines": 1, "place": "1.14", "items": [LINE], "older": None, "newer": None},
)
async def lines(call: Call) -> LinesDocument:
    """Lines of an attempt's log with their numbers: the last, those before or after one, or those that are wanted."""
    asked: Lines = call.query
    asked.check()
    run, attempt = await _which(call, asked.attempt)
    is_live = run.state not in ENDED and attempt == run.attempt
    log = await call.app.runs.open_log(run.id, attempt, whole_lines=is_live)
    reading = await LogLines.of(log)
    found = await _page(reading, asked)
    return LinesDocument(
        attempt=attempt,
        size=log.size,
        lines=await reading.total(),
        place=f"{max(attempt, 1)}.{log.size}",
        items=line_documents(found.lines, asked.width),
        older=found.older,
        newer=found.newer,
    )


@operations.get(
    "/runs/{run_id}/log/errors",
    needs=Role.VIEWER,
    query=Grouped,
    answer=Page[GroupDocument],
    example=examples.page(GROUP),
)
async def errors(call: Call) -> Page[GroupDocument]:
    """Group the errors of an attempt's log, the most frequent first."""
    reading = await LogLines.of(await _opened(call, call.query.attempt))
    groups = ErrorGroups()
    async for found in reading.errors(call.query.most_bytes):
        for line in found:
            groups.add(line.records, line.number)
    return Page(items=[group_document(each) for each in groups.all])


@operations.get(
    "/runs/{run_id}/log/stream",
    needs=Role.VIEWER,
    query=Streamed,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last piece that was received; the stream goes on right after that one."},
    example=EXAMPLE,
)
async def stream(call: Call) -> Response:
    """Send the log of a run as it grows, as events named log; the last one is named end, when the run has ended."""
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    asked: Streamed = call.query
    query = asked.query()
    if asked.regex:
        async with matching(query):
            pass  # a pattern that is none is refused before anything is sent
    place = call.header("last-event-id") or asked.after or "1.0"
    most = MOST_BEHIND if asked.format == "lines" else None
    tail = LogTail(call.app.runs, run_id, place, whole_lines=asked.format != "text", most_behind=most)
    if call.request.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.stream(_frames(call, tail, run.project, query))


async def _frames(call: Call, tail: LogTail, project: str, query: LogQuery) -> AsyncIterator[bytes]:
    watch, pause = streams.Watch(call.caller, call.identify, Role.VIEWER), SOONEST_LOOK_SECONDS
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
        pause = SOONEST_LOOK_SECONDS if grown else min(pause * 1.5, LATEST_LOOK_SECONDS)
        if grown:
            watch.told()
        elif watch.is_silent:
            yield b": still here\n\n"
            watch.told()
        await asyncio.sleep(pause)
    yield streams.GOODBYE


async def _page(reading: LogLines, asked: Lines) -> LinePage:
    query = asked.query()
    if asked.after is not None:
        return await reading.after(asked.after, query, asked.limit)
    if asked.around is None:
        return await reading.before(asked.before, query, asked.limit)
    older = await reading.before(asked.around, query, max(1, asked.limit // 2))
    newer = await reading.after(asked.around - 1, query, max(1, asked.limit - asked.limit // 2))
    return LinePage(lines=older.lines + newer.lines, older=older.older, newer=newer.newer)


async def _which(call: Call, attempt: int | None) -> tuple[Run, int]:
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    if attempt is not None and attempt > run.attempt:
        raise Invalid("attempt", attempt, f"run {run_id} has had {run.attempt} attempts")
    return run, attempt or run.attempt


async def _opened(call: Call, attempt: int | None) -> KeptLog:
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
            yield f"[weft] the rest is missing: {problem}\n".encode()

    return StreamingResponse(all_parts(), media_type="text/plain")


def _text(batch: Sequence[LogRecord]) -> bytes:
    return "".join([record.text + "\n" for record in batch]).encode(errors="replace")


def _lines(batch: Sequence[LogRecord]) -> bytes:
    return b"".join([msgspec.json.encode(record) + b"\n" for record in batch])


async def _piece(piece: LogPiece, asked: Streamed, query: LogQuery) -> bytes:
    if asked.format != "lines":
        text = piece.text if asked.format == "text" else _lines(records_of(piece.data)).decode()
        data = msgspec.json.encode(PieceDocument(piece.attempt, piece.start, text))
    else:
        found = await _asked_for(piece, query)
        told = line_documents(found, asked.width)
        data = msgspec.json.encode(LinePieceDocument(piece.attempt, piece.start, piece.gap, told))
    return b"id: %b\nevent: log\ndata: %b\n\n" % (piece.place.encode(), data)


async def _asked_for(piece: LogPiece, query: LogQuery) -> list[Line]:
    """Those lines of a piece that are wanted."""
    found = await asyncio.to_thread(lines_in, piece.data, piece.line)
    async with matching(query) as matcher:
        return await narrowed(found, query, matcher)


def _end(run: Run) -> bytes:
    data = msgspec.json.encode(EndDocument(run.state, run.outcome, run.reason))
    return b"event: end\ndata: %b\n\n" % data
