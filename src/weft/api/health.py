"""``/healthz`` (the process lives) and ``/readyz`` (what it depends on answers), for probes and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from weft import __version__
from weft.api.call import Call
from weft.api.operation import Operations
from weft.redaction import redacted

Check = Callable[[], Awaitable[None]]
"""Raises where a dependency does not answer."""

ANSWER_SECONDS = 2.0
NEEDED = ("database",)
"""Without these nothing can be done."""
READY = "ready"

operations = Operations("health", prefix="")


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """Whether what weft depends on answers."""

    status: str
    """``ready``, also without a broker: then workers look for work by themselves; and without blobs: then runs go on,
    but their logs are not kept."""
    checks: dict[str, str]
    """``ok``, or the reason."""


@operations.get("/healthz", needs=None, answer=Alive, example={"status": "ok", "version": __version__})
async def alive(call: Call) -> Alive:
    """Tell that the process lives."""
    return Alive("ok", __version__)


@operations.get(
    "/readyz",
    needs=None,
    answer=Ready,
    also={503: Ready},
    example={"status": "ready", "checks": {"database": "ok", "broker": "ok", "blobs": "ok"}},
)
async def ready(call: Call) -> Response:
    """Tell whether what weft depends on answers; 503 where the database does not."""
    body = await call.alike("readyz", lambda: _looked(call.app.checks()))
    is_ready = msgspec.json.decode(body, type=Ready).status == READY
    return Response(body, 200 if is_ready else 503, media_type="application/json")


async def _looked(checks: dict[str, Check]) -> bytes:
    found = dict(zip(checks, await asyncio.gather(*map(_outcome, checks.values())), strict=True))
    is_ready = all(found[name] == "ok" for name in NEEDED)
    return msgspec.json.encode(Ready(READY if is_ready else "not ready", found))


async def _outcome(check: Check) -> str:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await check()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as problem:  # anybody may ask: without the path
        return problem.strerror or type(problem).__name__
    except Exception as problem:  # whatever it is, it is the reason to show
        return redacted(str(problem))
    return "ok"
