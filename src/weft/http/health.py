"""Health and readiness checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from weft import __version__
from weft.errors import WeftError
from weft.operations.operation import Call, Operations
from weft.redaction import redacted

Check = Callable[[], Awaitable[None]]
"""Raises where a dependency does not answer."""

ANSWER_SECONDS = 2.0
REQUIRED_CHECKS = ("database",)
"""Without these nothing can be done."""
READY = "ready"

operations = Operations("health", prefix="")


class AliveDocument(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class ReadyDocument(msgspec.Struct, frozen=True):
    """Whether what weft depends on answers."""

    status: str
    """``ready``, also without a broker: then workers look for work by themselves; and without blobs: then runs go on,
    but their logs are not kept."""
    checks: dict[str, str]
    """``ok``, or the reason."""


@operations.get("/healthz", needs=None, answer=AliveDocument, example={"status": "ok", "version": __version__})
async def alive(call: Call) -> AliveDocument:
    """Tell that the process lives."""
    return AliveDocument("ok", __version__)


@operations.get(
    "/readyz",
    needs=None,
    answer=ReadyDocument,
    also={503: ReadyDocument},
    example={"status": "ready", "checks": {"database": "ok", "broker": "ok", "blobs": "ok"}},
)
async def ready(call: Call) -> Response:
    """Tell whether what weft depends on answers; 503 where the database does not, or where its disk is full."""
    body = await call.single_flight("readyz", lambda: _run_checks(call.app.checks()))
    is_ready = msgspec.json.decode(body, type=ReadyDocument).status == READY
    return Response(body, 200 if is_ready else 503, media_type="application/json")


async def _run_checks(checks: dict[str, Check]) -> bytes:
    found = dict(zip(checks, await asyncio.gather(*map(_check_outcome, checks.values())), strict=True))
    is_ready = all(found[name] == "ok" for name in REQUIRED_CHECKS)
    return msgspec.json.encode(ReadyDocument(READY if is_ready else "not ready", found))


async def _check_outcome(check: Check) -> str:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await check()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as problem:  # anybody may ask: without the path
        return problem.strerror or type(problem).__name__
    except WeftError as problem:  # without the address
        return redacted(problem.public)
    except Exception as problem:  # whatever it is, it is the reason to show
        return redacted(str(problem))
    return "ok"
