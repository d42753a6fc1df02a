"""Servers of tests end soon: uvicorn waits a tenth of a second for its connections, whether there are any or not."""

from __future__ import annotations

import asyncio
import socket
from contextvars import ContextVar
from typing import Any

import uvicorn.server

SHARE = 0.05
"""Of the time that uvicorn would sleep while it ends."""

_ending: ContextVar[bool] = ContextVar("_ending", default=False)
_shutdown = uvicorn.Server.shutdown


class _Hurried:
    """Stands in for asyncio in the module of uvicorn's server, and sleeps less while that ends."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds * SHARE if _ending.get() else seconds)


async def _shut_down(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
    token = _ending.set(True)
    try:
        await _shutdown(server, sockets)
    finally:
        _ending.reset(token)


def end_servers_soon() -> None:
    """For all servers of this process; they still wait for what was asked already."""
    vars(uvicorn.server)["asyncio"] = _Hurried()
    setattr(uvicorn.Server, "shutdown", _shut_down)  # noqa: B010
