"""``/healthz`` (the process lives) and ``/readyz`` (what it depends on answers), for probes and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from weft import __version__
from weft.api.call import Call
from weft.api.operation import Operations

Check = Callable[[], Awaitable[None]]
"""Raises where a dependency does not answer."""

ANSWER_SECONDS = 2.0

operations = Operations("health", prefix="")


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """Whether all that weft depends on answers."""

    status: str
    checks: dict[str, str]
    """``ok``, or the reason."""


@operations.get("/healthz", needs=None, answer=Alive, example={"status": "ok", "version": __version__})
async def alive(call: Call) -> Alive:
    """Tell that the process lives."""
    return Alive("ok", __version__)


@operations.get(
    "/readyz", needs=None, answer=Ready, also={503: Ready}, example={"status": "ready", "checks": {"database": "ok"}}
)
async def ready(call: Call) -> Response:
    """Tell whether what weft depends on answers; 503 where something does not."""
    found = {name: await _outcome(check) for name, check in call.app.checks().items()}
    is_ready = all(outcome == "ok" for outcome in found.values())
    body = msgspec.json.encode(Ready("ready" if is_ready else "not ready", found))
    return Response(body, 200 if is_ready else 503, media_type="application/json")


async def _outcome(check: Check) -> str:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await check()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except Exception as problem:  # whatever it is, it is the reason to show
        return str(problem)
    return "ok"
