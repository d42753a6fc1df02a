"""The worker protocol over HTTP: how a worker behind any NAT joins, leases runs and tells how they ended.

A worker calls and is never called. Each call may be made again after a lost answer.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from weft import __version__
from weft.access.model import Caller, Role
from weft.api.call import Call
from weft.api.guards import BODY_SECONDS
from weft.api.operation import Operations
from weft.api.problems import Refused
from weft.crawls.model import CrawlTurned
from weft.errors import Conflict, Invalid
from weft.workers import wire
from weft.workers.gate import Gate
from weft.workers.protocol import Id, Orders

operations = Operations("worker", prefix="/v1/worker")

NEEDS: dict[str, Any] = {
    "needs": Role.VIEWER,
    "headers": {wire.VERSION_HEADER: "The version of the protocol that the worker speaks."},
}
JOIN = NEEDS | {"callers": frozenset({"join"})}
WORKER = NEEDS | {"callers": frozenset({"worker"}), "audited": False}

CARD = {"name": "home-1", "host": "home", "pid": 17, "version": __version__, "capacity": 10, "labels": ["eu"]}
WELCOME = {"name": "home-1", "version": __version__, "protocol": wire.PROTOCOL}
SPEC = {"spec": {"argv": ["true"]}}
LEASE = {"run_id": 12, "attempt": 1, "project": "shop", "task": "prices", "kind": "shell", "spec": SPEC}
LEASE |= {"correlation_id": "c1", "traceparent": ""}
ORDERS = {"lost": False, "held": [[12, 1]], "cancel": []}
CHUNK = {"run_id": 12, "attempt": 1, "seq": 0, "data": "b25lCg=="}
TOLD = {"run_id": 12, "attempt": 1, "outcome": "succeeded", "exit_code": 0, "has_log": True, "log_bytes": 4}


class Upload(msgspec.Struct, frozen=True):
    """Which worker asks."""

    worker_id: Id = 0


class Piece(msgspec.Struct, frozen=True):
    """Which bytes of the log these are, and how many it has in all."""

    worker_id: Id = 0
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    total: Annotated[int, msgspec.Meta(ge=0)] = 0


@operations.get("", answer=wire.Welcome, example=WELCOME, **WORKER)
async def greet(call: Call) -> wire.Welcome:
    """Tell a worker that its key counts, and what this gateway speaks."""
    _, caller = _admit(call)
    return wire.Welcome(caller.name, __version__, wire.PROTOCOL)


ENROLLING = {"name": "home-1", "prefix": "0123456789ab", "digest": "0" * 64}


@operations.post(
    "/enrol", body=wire.Enrolling, answer=wire.Welcome, example=WELCOME, example_body=ENROLLING, status=201, **JOIN
)
async def enrol(call: Call) -> wire.Welcome:
    """Use up a join token: from here on the key counts whose digest is sent."""
    gate, caller = _admit(call)
    call.record = {"worker": call.body.name, "prefix": call.body.prefix}
    return await gate.enrol(caller, call.body)


JOINING = {"card": CARD, "request_id": "0123456789abcdef"}


@operations.post(
    "/join", body=wire.Joining, answer=wire.Joined, example={"worker_id": 3}, example_body=JOINING, **WORKER
)
async def join(call: Call) -> wire.Joined:
    """Enter the worker under a new id; the same request, repeated, enters it once."""
    gate, caller = _admit(call)
    return wire.Joined(await gate.join(caller, call.body.card, call.body.request_id))


@operations.post(
    "/lease",
    body=wire.Leasing,
    answer=wire.Leased,
    example={"leases": [LEASE]},
    example_body={"worker_id": 3, "want": 10},
    **WORKER,
)
async def lease(call: Call) -> wire.Leased:
    """Lease up to so many ready runs, at once."""
    gate, caller = _admit(call)
    return wire.Leased(await gate.lease(caller, call.body.worker_id, call.body.want))


@operations.post(
    "/wait", body=wire.Waiting, answer=wire.Woken, example={"rung": True}, example_body={"worker_id": 3}, **WORKER
)
async def wait(call: Call) -> wire.Woken:
    """Answer as soon as there may be work for the worker, or after so many seconds (25 at most)."""
    gate, caller = _admit(call)
    waiting = asyncio.ensure_future(gate.wait(caller, call.body.worker_id, call.body.seconds))
    leaving = asyncio.ensure_future(_left(call.request))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return wire.Woken(waiting.result())
    finally:
        waiting.cancel()
        leaving.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


BEATING = {"worker_id": 3, "beat": {"state": "online", "running": 1, "done": 7, "stats": {}}}


@operations.post("/heartbeat", body=wire.Beating, answer=Orders, example=ORDERS, example_body=BEATING, **WORKER)
async def heartbeat(call: Call) -> Orders:
    """Keep every lease of the worker for another while; learn what it holds and what to stop."""
    gate, caller = _admit(call)
    return await gate.heartbeat(caller, call.body.worker_id, call.body.beat)


@operations.post("/ship", body=wire.Shipping, example_body={"worker_id": 3, "chunks": [CHUNK]}, **WORKER)
async def ship(call: Call) -> None:
    """Deliver pieces of live logs; a piece delivered twice counts once."""
    gate, caller = _admit(call)
    await gate.ship(caller, call.body.worker_id, call.body.chunks)


HARVEST = {"run_id": 12, "attempt": 1, "first": 1, "lines": "eyJhdCI6MCwiaXRlbSI6e319Cg==", "stats": None}


@operations.post(
    "/collect",
    body=wire.Collecting,
    answer=wire.Collected,
    example={"awaited": [2]},
    example_body={"worker_id": 3, "harvests": [HARVEST]},
    largest_body=wire.LARGEST_HARVEST,
    **WORKER,
)
async def collect(call: Call) -> wire.Collected:
    """Store items of attempts, each once; tell which item of each is waited for next."""
    gate, caller = _admit(call)
    return wire.Collected(await gate.collect(caller, call.body.worker_id, call.body.harvests))


TURNING = {"worker_id": 3, "run_id": 12, "attempt": 1, "asked": {"turn": {"hosts": 8}}}
TURNED = {"crawl": 5, "turned": {"new": 0, "kept": [], "leases": [], "next_at": None}, "stop": "done"}


@operations.post(
    "/frontier",
    body=wire.Turning,
    answer=CrawlTurned,
    example=TURNED,
    example_body=TURNING,
    largest_body=wire.LARGEST_HARVEST,
    **WORKER,
)
async def frontier(call: Call) -> CrawlTurned:
    """Take what a share of a crawl has found and done, and give it hosts to go on with."""
    gate, caller = _admit(call)
    asked = call.body
    return await gate.frontier(caller, asked.worker_id, asked.run_id, asked.attempt, asked.asked)


@operations.post(
    "/finish",
    body=wire.Finishing,
    answer=wire.Finished,
    example={"accepted": [True]},
    example_body={"worker_id": 3, "endings": [TOLD]},
    largest_body=wire.LARGEST_FINISH,
    **WORKER,
)
async def finish(call: Call) -> wire.Finished:
    """End attempts; false for each that the worker no longer holds."""
    gate, caller = _admit(call)
    return wire.Finished(await gate.finish(caller, call.body.worker_id, call.body.endings))


@operations.get("/logs/{run_id}/{attempt}", query=Upload, answer=wire.Received, example={"received": 524288}, **WORKER)
async def received(call: Call) -> wire.Received:
    """Tell how much of the log of an ended attempt was uploaded."""
    gate, caller = _admit(call)
    return wire.Received(await gate.received(caller, call.query.worker_id, *_attempt(call)))


@operations.put("/logs/{run_id}/{attempt}", query=Piece, answer=wire.Received, example={"received": 524288}, **WORKER)
async def upload(call: Call) -> wire.Received:
    """Upload a piece of the log of an attempt that the worker holds; each piece but the last has 524288 bytes."""
    gate, caller = _admit(call)
    asked: Piece = call.query
    run_id, attempt = _attempt(call)
    data = await _piece(call.request)
    known = await gate.upload(
        caller, asked.worker_id, run_id, attempt, data=data, offset=asked.offset, total=asked.total
    )
    return wire.Received(known)


@operations.get(
    "/files/{run_id}/{attempt}/{name}", query=Upload, answer=wire.Received, example={"received": 4194304}, **WORKER
)
async def received_file(call: Call) -> wire.Received:
    """Tell how much of a file of a crawl was uploaded."""
    gate, caller = _admit(call)
    return wire.Received(await gate.received_file(caller, call.query.worker_id, *_attempt(call), call.path("name")))


@operations.put(
    "/files/{run_id}/{attempt}/{name}", query=Piece, answer=wire.Received, example={"received": 4194304}, **WORKER
)
async def upload_file(call: Call) -> wire.Received:
    """Upload a piece of a WARC file or its index, of an attempt that the worker has executed; 4194304 bytes each."""
    gate, caller = _admit(call)
    asked: Piece = call.query
    data = await _piece(call.request, wire.FILE_PIECE)
    known = await gate.upload_file(
        *(caller, asked.worker_id, *_attempt(call), call.path("name")),
        data=data,
        offset=asked.offset,
        total=asked.total,
    )
    return wire.Received(known)


@operations.get(
    "/code/{digest}", query=Upload, media_type="application/octet-stream", example="the bytes of an archive", **WORKER
)
async def code(call: Call) -> Response:
    """Give out the code that a run which the worker holds is pinned to."""
    gate, caller = _admit(call)
    archive = await gate.code(caller, call.query.worker_id, call.path("digest"))
    return Response(archive, media_type="application/octet-stream")


def _admit(call: Call) -> tuple[Gate, Caller]:
    """Refuse a worker that is too old or too new. Its kind was checked; the gate checks what it touches."""
    spoken = call.header(wire.VERSION_HEADER) or str(wire.PROTOCOL)
    if not spoken.isascii() or not spoken.isdigit() or len(spoken) > 6:
        raise Invalid(wire.VERSION_HEADER, spoken, "it must be a whole number")
    if abs(int(spoken) - wire.PROTOCOL) > 1:
        raise Conflict(
            f"this gateway (weft {__version__}) speaks version {wire.PROTOCOL} of the worker protocol and the worker "
            f"version {spoken}; they may differ by one: update the older of the two"
        )
    call.checked, call.about = True, ("", f"worker {call.caller.name}")
    return call.app.gate, call.caller


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
                    raise Refused("too_large", f"a piece may have at most {most} bytes")
    except TimeoutError:
        raise Refused("too_slow", f"the piece did not arrive within {BODY_SECONDS:g} s") from None
    return bytes(data)
