"""What remote workers call: join, lease runs, send heartbeats, logs and items, report outcomes, fetch code."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from weft import __version__
from weft.access.model import Caller, Role
from weft.crawler.messages import CrawlTurnReply
from weft.errors import Conflict, Invalid
from weft.http.guards import BODY_SECONDS
from weft.operations.operation import Call, Operations
from weft.operations.problems import RequestRefused
from weft.ports import Grant
from weft.workers.protocol import HeartbeatReply, Id
from weft.workers.remote import wire
from weft.workers.remote.server import WorkerGateway

operations = Operations("worker", prefix="/v1/worker")

WORKER_ROLE: dict[str, Any] = {
    "needs": Role.VIEWER,
    "headers": {wire.VERSION_HEADER: "The version of the protocol that the worker speaks."},
}
JOIN = WORKER_ROLE | {"callers": frozenset({"join"})}
WORKER = WORKER_ROLE | {"callers": frozenset({"worker"}), "audited": False}

WORKER_INFO_EXAMPLE = {
    "name": "home-1",
    "host": "home",
    "pid": 17,
    "version": __version__,
    "capacity": 10,
    "labels": ["eu"],
}
WELCOME_EXAMPLE = {"name": "home-1", "version": __version__, "protocol": wire.PROTOCOL}
RUN_SPEC_EXAMPLE = {"spec": {"argv": ["true"]}}
LEASE_EXAMPLE = {
    "run_id": 12,
    "attempt": 1,
    "project": "shop",
    "task": "prices",
    "kind": "shell",
    "spec": RUN_SPEC_EXAMPLE,
}
LEASE_EXAMPLE |= {"correlation_id": "c1", "traceparent": ""}
HEARTBEAT_REPLY_EXAMPLE = {"lost": False, "held": [[12, 1]], "cancel": []}
LOG_CHUNK_EXAMPLE = {"run_id": 12, "attempt": 1, "seq": 0, "data": "b25lCg=="}
OUTCOME_EXAMPLE = {"run_id": 12, "attempt": 1, "outcome": "succeeded", "exit_code": 0, "has_log": True, "log_bytes": 4}


class UploadQuery(msgspec.Struct, frozen=True):
    """Which worker asks."""

    worker_id: Id = 0


class PieceQuery(msgspec.Struct, frozen=True):
    """Which bytes of the log these are, and how many it has in all."""

    worker_id: Id = 0
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    total: Annotated[int, msgspec.Meta(ge=0)] = 0


@operations.get("", answer=wire.WorkerKeyInfo, example=WELCOME_EXAMPLE, **WORKER)
async def greet(call: Call) -> wire.WorkerKeyInfo:
    """Tell a worker that its key counts, and what this gateway speaks."""
    _, caller = _admit(call)
    return wire.WorkerKeyInfo(caller.name, __version__, wire.PROTOCOL)


ENROL_EXAMPLE = {"name": "home-1", "prefix": "0123456789ab", "digest": "0" * 64}


@operations.post(
    "/enrol",
    body=wire.EnrolRequest,
    answer=wire.WorkerKeyInfo,
    example=WELCOME_EXAMPLE,
    example_body=ENROL_EXAMPLE,
    status=201,
    **JOIN,
)
async def enrol(call: Call) -> wire.WorkerKeyInfo:
    """Use up a join token: from here on the key counts whose digest is sent."""
    gateway, caller = _admit(call)
    call.record = {"worker": call.body.name, "prefix": call.body.prefix}
    return await gateway.enrol(caller, call.body)


JOIN_EXAMPLE = {"card": WORKER_INFO_EXAMPLE, "request_id": "0123456789abcdef"}


@operations.post(
    "/join", body=wire.JoinRequest, answer=wire.JoinReply, example={"worker_id": 3}, example_body=JOIN_EXAMPLE, **WORKER
)
async def join(call: Call) -> wire.JoinReply:
    """Enter the worker under a new id; the same request, repeated, enters it once."""
    gateway, caller = _admit(call)
    return wire.JoinReply(await gateway.join(caller, call.body.card, call.body.request_id))


@operations.post(
    "/lease",
    body=wire.LeaseRequest,
    answer=wire.LeaseReply,
    example={"leases": [LEASE_EXAMPLE]},
    example_body={"worker_id": 3, "want": 10},
    **WORKER,
)
async def lease(call: Call) -> wire.LeaseReply:
    """Lease up to so many ready runs, at once; one that is hesitant leaves them to less busy workers for a moment."""
    gateway, caller = _admit(call)
    body = call.body
    return wire.LeaseReply(await gateway.lease(caller, body.worker_id, body.want, hesitant=body.hesitant))


@operations.post(
    "/wait",
    body=wire.WaitRequest,
    answer=wire.WaitReply,
    example={"rung": True},
    example_body={"worker_id": 3},
    **WORKER,
)
async def wait(call: Call) -> wire.WaitReply:
    """Answer as soon as there may be work for the worker, or after so many seconds (25 at most)."""
    gateway, caller = _admit(call)
    waiting = asyncio.ensure_future(gateway.wait(caller, call.body.worker_id, call.body.seconds))
    leaving = asyncio.ensure_future(_left(call.http))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return wire.WaitReply(waiting.result())
    finally:
        waiting.cancel()
        leaving.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


HEARTBEAT_EXAMPLE = {"worker_id": 3, "beat": {"state": "online", "running": 1, "done": 7, "stats": {}}}


@operations.post(
    "/heartbeat",
    body=wire.HeartbeatRequest,
    answer=HeartbeatReply,
    example=HEARTBEAT_REPLY_EXAMPLE,
    example_body=HEARTBEAT_EXAMPLE,
    **WORKER,
)
async def heartbeat(call: Call) -> HeartbeatReply:
    """Keep every lease of the worker for another while; learn what it holds and what to stop."""
    gateway, caller = _admit(call)
    return await gateway.heartbeat(caller, call.body.worker_id, call.body.beat)


@operations.post("/ship", body=wire.ShipRequest, example_body={"worker_id": 3, "chunks": [LOG_CHUNK_EXAMPLE]}, **WORKER)
async def ship(call: Call) -> None:
    """Deliver pieces of live logs, each once; refused where the worker does not hold an attempt, whose are not kept."""
    gateway, caller = _admit(call)
    await gateway.ship(caller, call.body.worker_id, call.body.chunks)


ITEMS_EXAMPLE = {"run_id": 12, "attempt": 1, "first": 1, "lines": "eyJhdCI6MCwiaXRlbSI6e319Cg==", "stats": None}


@operations.post(
    "/collect",
    body=wire.CollectRequest,
    answer=wire.CollectReply,
    example={"awaited": [2]},
    example_body={"worker_id": 3, "harvests": [ITEMS_EXAMPLE]},
    largest_body=wire.LARGEST_HARVEST,
    **WORKER,
)
async def collect(call: Call) -> wire.CollectReply:
    """Store items of attempts, each once; tell which item of each is waited for next."""
    gateway, caller = _admit(call)
    return wire.CollectReply(await gateway.collect(caller, call.body.worker_id, call.body.harvests))


FRONTIER_EXAMPLE = {"worker_id": 3, "run_id": 12, "attempt": 1, "asked": {"turn": {"hosts": 8}}}
FRONTIER_REPLY_EXAMPLE = {"crawl": 5, "turned": {"new": 0, "kept": [], "leases": [], "next_at": None}, "stop": "done"}


@operations.post(
    "/frontier",
    body=wire.AttemptFrontierRequest,
    answer=CrawlTurnReply,
    example=FRONTIER_REPLY_EXAMPLE,
    example_body=FRONTIER_EXAMPLE,
    largest_body=wire.LARGEST_HARVEST,
    **WORKER,
)
async def frontier(call: Call) -> CrawlTurnReply:
    """Take what a partition of a crawl has found and done, and give it hosts to go on with."""
    gateway, caller = _admit(call)
    asked = call.body
    return await gateway.frontier(caller, asked.worker_id, asked.run_id, asked.attempt, asked.asked)


PERMIT_EXAMPLE = {
    "worker_id": 3,
    "run_id": 12,
    "attempt": 1,
    "asked": {"keys": ["host:shop.example"], "longest_wait": 1.3},
}
PERMIT_REPLY_EXAMPLE = {
    "granted": True,
    "wait_seconds": 0.4,
    "degraded": False,
    "turns": [7],
    "epoch": "memory",
    "travel_seconds": 0.0,
}


@operations.post(
    "/permit",
    body=wire.AttemptPermitRequest,
    answer=Grant,
    example=PERMIT_REPLY_EXAMPLE,
    example_body=PERMIT_EXAMPLE,
    **WORKER,
)
async def permit(call: Call) -> Grant:
    """Give a place in line at the gateway's limiter, or let nobody ask a host for a while."""
    gateway, caller = _admit(call)
    asked = call.body
    return await gateway.permit(caller, asked.worker_id, asked.run_id, asked.attempt, asked.asked)


@operations.post(
    "/finish",
    body=wire.FinishRequest,
    answer=wire.FinishReply,
    example={"accepted": [True]},
    example_body={"worker_id": 3, "endings": [OUTCOME_EXAMPLE]},
    largest_body=wire.LARGEST_FINISH,
    **WORKER,
)
async def finish(call: Call) -> wire.FinishReply:
    """End attempts; false for each that the worker no longer holds, of which only a log that came late is kept."""
    gateway, caller = _admit(call)
    return wire.FinishReply(await gateway.finish(caller, call.body.worker_id, call.body.endings))


@operations.get(
    "/logs/{run_id}/{attempt}", query=UploadQuery, answer=wire.UploadReply, example={"received": 524288}, **WORKER
)
async def received(call: Call) -> wire.UploadReply:
    """Tell how much of the log of an ended attempt was uploaded."""
    gateway, caller = _admit(call)
    return wire.UploadReply(await gateway.received(caller, call.query.worker_id, *_attempt(call)))


@operations.put(
    "/logs/{run_id}/{attempt}", query=PieceQuery, answer=wire.UploadReply, example={"received": 524288}, **WORKER
)
async def upload(call: Call) -> wire.UploadReply:
    """Upload a piece of the log of an attempt that the worker holds or was lost with; 524288 bytes but for the last."""
    gateway, caller = _admit(call)
    asked: PieceQuery = call.query
    run_id, attempt = _attempt(call)
    data = await _piece(call.http)
    known = await gateway.upload(
        caller, asked.worker_id, run_id, attempt, data=data, offset=asked.offset, total=asked.total
    )
    return wire.UploadReply(known)


@operations.get(
    "/files/{run_id}/{attempt}/{name}",
    query=UploadQuery,
    answer=wire.UploadReply,
    example={"received": 4194304},
    **WORKER,
)
async def received_file(call: Call) -> wire.UploadReply:
    """Tell how much of a file of a crawl was uploaded."""
    gateway, caller = _admit(call)
    return wire.UploadReply(
        await gateway.received_file(caller, call.query.worker_id, *_attempt(call), call.path("name"))
    )


@operations.put(
    "/files/{run_id}/{attempt}/{name}",
    query=PieceQuery,
    answer=wire.UploadReply,
    example={"received": 4194304},
    **WORKER,
)
async def upload_file(call: Call) -> wire.UploadReply:
    """Upload a piece of a WARC file or its index, of an attempt that the worker has executed; 4194304 bytes each."""
    gateway, caller = _admit(call)
    asked: PieceQuery = call.query
    data = await _piece(call.http, wire.FILE_PIECE)
    known = await gateway.upload_file(
        *(caller, asked.worker_id, *_attempt(call), call.path("name")),
        data=data,
        offset=asked.offset,
        total=asked.total,
    )
    return wire.UploadReply(known)


@operations.get(
    "/code/{digest}",
    query=UploadQuery,
    media_type="application/octet-stream",
    example="the bytes of an archive",
    **WORKER,
)
async def code(call: Call) -> Response:
    """Give out the code that a run which the worker holds is pinned to."""
    gateway, caller = _admit(call)
    archive = await gateway.code(caller, call.query.worker_id, call.path("digest"))
    return Response(archive, media_type="application/octet-stream")


def _admit(call: Call) -> tuple[WorkerGateway, Caller]:
    """Refuse a worker that is too old or too new. Its kind was checked; the gateway checks what it touches."""
    spoken = call.header(wire.VERSION_HEADER) or str(wire.PROTOCOL)
    if not spoken.isascii() or not spoken.isdigit() or len(spoken) > 6:
        raise Invalid(wire.VERSION_HEADER, spoken, "it must be a whole number")
    if abs(int(spoken) - wire.PROTOCOL) > 1:
        raise Conflict(
            f"this gateway (weft {__version__}) speaks version {wire.PROTOCOL} of the worker protocol and the worker "
            f"version {spoken}; they may differ by one: update the older of the two"
        )
    call.checked, call.about = True, ("", f"worker {call.caller.name}")
    return call.app.worker_gateway, call.caller


def _attempt(call: Call) -> tuple[int, int]:
    return call.number("run_id", "run"), min(call.number("attempt", "attempt"), 2**31 - 1)


async def _left(request: Request) -> None:
    """Return when the caller has gone: a ring must not be spent on it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _piece(request: Request, most: int = wire.PIECE) -> bytes:
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise RequestRefused("too_large", f"a piece may have at most {most} bytes")
    except TimeoutError:
        raise RequestRefused("too_slow", f"the piece did not arrive within {BODY_SECONDS:g} s") from None
    return bytes(data)
