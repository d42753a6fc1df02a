"""``/healthz`` (the process lives) and ``/readyz`` (what it depends on answers), for probes and load balancers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from weft import __version__

Check = Callable[[], Awaitable[None]]
"""Raises where a dependency does not answer."""

READ_SECONDS = 5.0
LONGEST_HEAD = 8192
REASONS = {200: "OK", 404: "Not Found", 400: "Bad Request", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Health:
    """A listener that answers two paths and nothing else."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chose where it was 0."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=LONGEST_HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await self._respond(head.split(b"\r\n", 1)[0])
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            status, body = 400, {"error": "bad_request"}
        try:
            writer.write(_rendered(status, body))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            return

    async def _respond(self, line: bytes) -> tuple[int, dict[str, object]]:
        method, _, rest = line.decode("latin-1").partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, {"error": "method_not_allowed"}
        if path == "/healthz":
            return 200, {"status": "ok", "version": __version__}
        if path == "/readyz":
            return await self._ready()
        return 404, {"error": "not_found"}

    async def _ready(self) -> tuple[int, dict[str, object]]:
        found = {name: await _outcome(check) for name, check in self._checks.items()}
        ready = all(outcome == "ok" for outcome in found.values())
        return (200 if ready else 503), {"status": "ready" if ready else "not ready", "checks": found}


async def _outcome(check: Check) -> str:
    try:
        async with asyncio.timeout(2):
            await check()
    except TimeoutError:
        return "no answer within 2 s"
    except Exception as problem:  # whatever it is, it is the reason to show
        return str(problem)
    return "ok"


def _rendered(status: int, body: dict[str, object]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
