"""Stands between far workers and their gateway: loses answers about items, and brings batches twice or late."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from types import TracebackType

import aiohttp
from aiohttp import web

LOST, TWICE, LATE = 0.3, 0.2, 0.1
"""How many of the answers are lost, of the batches are brought twice, and overtaken by those that come after them."""

LATE_SECONDS = (0.2, 1.5)
HOPS = ("host", "connection", "transfer-encoding", "content-length", "keep-alive", "content-encoding")


class Postman:
    """Carries requests to the port of a gateway."""

    def __init__(self, target: int, chance: random.Random) -> None:
        self.port = 0
        self.tricks: Counter[str] = Counter()
        self._target, self._chance = f"http://127.0.0.1:{target}", chance
        self._late: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Postman:
        timeout = aiohttp.ClientTimeout(total=120, sock_connect=5)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        door = web.Application(client_max_size=1 << 30)
        door.router.add_route("*", "/{path:.*}", self._carry)
        self._runner = web.AppRunner(door, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._runner.cleanup()
        await self._session.close()

    async def _carry(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            if request.path.endswith("/collect"):
                return await self._play(request, body)
            return await self._bring(request, body)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return self._break(request)

    async def _play(self, request: web.Request, body: bytes) -> web.StreamResponse:
        dice = self._chance.random()
        if dice < LATE:
            self.tricks["late"] += 1
            late = asyncio.create_task(self._bring_later(request, body))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return self._break(request)
        answer = await self._bring(request, body)
        if dice < LATE + TWICE:
            self.tricks["twice"] += 1
            answer = await self._bring(request, body)
        if self._chance.random() < LOST:
            self.tricks["lost"] += 1
            return self._break(request)
        return answer

    async def _bring(self, request: web.Request, body: bytes) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOPS}
        url = self._target + request.path_qs
        async with self._session.request(request.method, url, data=io.BytesIO(body), headers=headers) as answer:
            content = await answer.read()
        told = {name: value for name, value in answer.headers.items() if name.lower() not in (*HOPS, "date", "server")}
        return web.Response(status=answer.status, body=content, headers=told)

    async def _bring_later(self, request: web.Request, body: bytes) -> None:
        await asyncio.sleep(self._chance.uniform(*LATE_SECONDS))
        try:
            await self._bring(request, body)
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass

    def _break(self, request: web.Request) -> web.Response:
        """End the connection without an answer."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)
