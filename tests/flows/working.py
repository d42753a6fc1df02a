"""A worker beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weft.app import App, open_worker
from weft.workers.heartbeat import Heartbeats


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    """A real worker does what is queued meanwhile; then it ends, and the app is closed."""
    heartbeats = Heartbeats(app.protocol, 0.1)
    worker = open_worker(app, "w1", heartbeats)
    running = asyncio.create_task(worker.run())
    yield
    worker.drain()
    await running
    heartbeats.close()
    await app.close()
