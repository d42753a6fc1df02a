"""The log of a run as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from weft.access.model import Role
from weft.api import streams
from weft.api.call import Call
from weft.api.operation import Operations
from weft.errors import DatabaseDown, NotFound
from weft.live.log import LogPiece, LogTail
from weft.runs.model import ENDED, Run

log = logging.getLogger(__name__)

operations = Operations("logs")

SOONEST_LOOK_SECONDS = 0.2
LATEST_LOOK_SECONDS = 1.0
"""How often a log is looked at while it grows, and after a while in which it did not."""

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


@operations.get(
    "/runs/{run_id}/log/stream",
    needs=Role.VIEWER,
    media_type=streams.MEDIA_TYPE,
    headers={"Last-Event-ID": "The id of the last piece that was received; the stream goes on right after that one."},
    example=EXAMPLE,
)
async def stream(call: Call) -> Response:
    """Send the log of a run as it grows, as events named log; the last one is named end, when the run has ended."""
    run_id = call.number("run_id", "run")
    run = await call.app.runs.get(run_id)
    call.check(run.project, f"run {run_id}")
    tail = LogTail(call.app.runs, run_id, call.header("last-event-id") or "1.0")
    if call.request.method == "HEAD":
        return Response(media_type=streams.MEDIA_TYPE)
    return streams.stream(_frames(call, tail, run.project))


async def _frames(call: Call, tail: LogTail, project: str) -> AsyncIterator[bytes]:
    watch, pause = streams.Watch(call.caller, call.identify, Role.VIEWER), SOONEST_LOOK_SECONDS
    while not call.app.tail.closed:
        if await watch.still(project) is None:
            yield streams.REFUSED
            return
        try:
            run, pieces = await tail.look()
        except (DatabaseDown, NotFound) as problem:
            log.warning("a stream of a log ends", extra={"why": str(problem)})
            break
        for piece in pieces:
            yield _piece(piece)
        if run.state in ENDED:
            yield _end(run)
            return
        pause = SOONEST_LOOK_SECONDS if pieces else min(pause * 1.5, LATEST_LOOK_SECONDS)
        if pieces:
            watch.told()
        elif watch.is_silent:
            yield b": still here\n\n"
            watch.told()
        await asyncio.sleep(pause)
    yield streams.GOODBYE


def _piece(piece: LogPiece) -> bytes:
    data = msgspec.json.encode(PieceDocument(piece.attempt, piece.start, piece.text))
    return b"id: %b\nevent: log\ndata: %b\n\n" % (piece.place.encode(), data)


def _end(run: Run) -> bytes:
    data = msgspec.json.encode(EndDocument(run.state, run.outcome, run.reason))
    return b"event: end\ndata: %b\n\n" % data
