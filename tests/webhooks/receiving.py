"""A real receiver of webhooks on a free port, which may be down and come back on the same one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
from aiohttp import web


@dataclass(frozen=True)
class Received:
    """One message."""

    headers: dict[str, str]
    body: bytes

    @property
    def delivery(self) -> str:
        return self.headers["Weft-Delivery"]

    @property
    def action(self) -> str:
        return str(msgspec.json.decode(self.body)["action"])


class Receiver:
    """Keeps what it is sent and answers with ``status``, once ``may_answer``."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.status = 204
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/told"

    @property
    def deliveries(self) -> list[str]:
        return [each.delivery for each in self.received]

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/told", self._take)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _take(self, request: web.Request) -> web.Response:
        self.received.append(Received(dict(request.headers), await request.read()))
        await self.may_answer.wait()
        headers = {"Location": "/elsewhere"} if 300 <= self.status < 400 else {}
        return web.Response(status=self.status, headers=headers, text="" if self.status == 204 else "x" * 100_000)
