"""The log of a run: whole, searched, its errors grouped, and as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.api import examples, streams
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.clock import iso
from weft.errors import BlobsDown, DatabaseDown, Invalid, NotFound, WeftError
from weft.live.log import LogPiece, LogTail
from weft.runs.log_errors import ErrorGroup, ErrorGroups
from weft.runs.log_records import LogRecord, records_of
from weft.runs.log_search import MOST_TAIL, LogQuery, search
from weft.runs.log_shelf import KeptLog
from weft.runs.model import ENDED, Run

log = logging.getLogger(__name__)

operations = Operations("logs")

SOONEST_LOOK_SECONDS = 0.2
LATEST_LOOK_SECONDS = 1.0
"""How often a log is looked at while it grows, and after a while in which it did not."""

RECORD: dict[str, Any] = {"at": 1780315200000000, "level": "ERROR", "logger": "scrapy.core.scraper", "message": "…"}
GROUP: dict[str, Any] = {
    "logger": "scrapy.core.scraper",
    "message": "Spider error processing <GET <url>> (referer: None) | KeyError: '…'",
    "level": "ERROR",
    "count": 14,
    "first_at": "2026-06-01T12:00:00.000Z",
    "last_at": "2026-06-01T12:01:00.000Z",
    "example": "2026-06-01 12:00:00 [scrapy.core.scraper] ERROR: Spider error processing …",
}
EXAMPLE = 'id: 1.14\nevent: log\ndata: {"attempt":1,"start":0,"text":"14 items kept\\n"}\n\n'


class PieceDocument(msgspec.Struct, frozen=True):
    """Some of an attempt's log, and at which byte of it that begins."""

    attempt: int
    start: int
    text: str


class EndDocument(msgspec.Struct, frozen=True):
    """How the run has ended; nothing follows."""

    state: str
    outcome: str | None
    reason: str | None


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How the log is told."""

    format: Literal["text", "jsonl"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own."""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt."""

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """The newest unless told."""


class Wanted(Which, frozen=True, kw_only=True):
    """Which records of which attempt, and how they are told."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    """Records of this level and of graver ones; a printed line has none."""
    text: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records that hold this, in capitals or not."""
    regex: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records in which this regular expression is found."""
    tail: Annotated[int, msgspec.Meta(ge=1, le=MOST_TAIL)] | None = None
    """No more than the last so many."""
    format: Literal["text", "jsonl", "raw"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own; raw: the bytes as they are."""


class GroupDocument(msgspec.Struct, frozen=True):
    """Errors that are alike but for numbers, quoted words and addresses."""

    logger: str
    message: str
    level: str
    count: int
    first_at: str | None
    last_at: str | None
    example: str


@operations.get(
    "/runs/{run_id}/log", needs=Role.VIEWER, query=Wanted, media_type="text/plain", example="7 prices found\n"
)
async def show(call: Call) -> Response:
    """What an attempt of a run has printed so far, or those records of it that are asked for."""
    asked: Wanted = call.query
    log = await _opened(call, asked.attempt)
    if asked.format == "raw":
        return await _answer(log.forwards())
    wanted = LogQuery(level=asked.level or "", text=asked.text, regex=asked.regex, tail=asked.tail)
    encode = _lines if asked.format == "jsonl" else _text
    return await _answer(encode(batch) async for batch in search(log, wanted))


@operations.get(
    "/runs/{run_id}/log/errors",
    needs=Role.VIEWER,
    query=Which,
    answer=Page[GroupDocument],
    example=examples.page(GROUP),
)
async def errors(call: Call) -> Page[GroupDocument]:
    """Group the errors of an attempt's log, the most frequent first."""
    log = await _opened(call, call.query.attempt)
    groups = ErrorGroups()
    async for batch in search(log, LogQuery(level="ERROR")):
        groups.add(batch)
    return Page(items=[_group(each) for each in groups.all])


@operations.get(
    "/runs/{run_id}/log/stream",
    needs=Role.VIEWER,
    query=Form,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last piece that was received; the stream goes on right after that one."},
    example=EXAMPLE,
)
async def stream(call: Call) -> Response:
    """Send the log of a run as it grows, as events named log; the last one is named end, when the run has ended."""
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    as_lines = call.query.format == "jsonl"
    tail = LogTail(call.app.runs, run_id, call.header("last-event-id") or "1.0", whole_lines=as_lines)
    if call.request.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.stream(_frames(call, tail, run.project, _as_lines if as_lines else _as_text))


async def _frames(call: Call, tail: LogTail, project: str, told: Callable[[LogPiece], str]) -> AsyncIterator[bytes]:
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
                yield _piece(piece, told(piece))
        except (DatabaseDown, BlobsDown, NotFound) as problem:
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


async def _opened(call: Call, attempt: int | None) -> KeptLog:
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    if attempt is not None and attempt > run.attempt:
        raise Invalid("attempt", attempt, f"run {run_id} has had {run.attempt} attempts")
    return await call.app.runs.open_log(run_id, attempt)


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


def _group(each: ErrorGroup) -> GroupDocument:
    fields = {name: getattr(each, name) for name in ("logger", "message", "level", "count", "example")}
    return GroupDocument(**fields, first_at=iso(each.first_at), last_at=iso(each.last_at))


def _as_text(piece: LogPiece) -> str:
    return piece.text


def _as_lines(piece: LogPiece) -> str:
    return _lines(records_of(piece.data)).decode()


def _piece(piece: LogPiece, text: str) -> bytes:
    data = msgspec.json.encode(PieceDocument(piece.attempt, piece.start, text))
    return b"id: %b\nevent: log\ndata: %b\n\n" % (piece.place.encode(), data)


def _end(run: Run) -> bytes:
    data = msgspec.json.encode(EndDocument(run.state, run.outcome, run.reason))
    return b"event: end\ndata: %b\n\n" % data
