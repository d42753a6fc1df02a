"""Workers that reach weft through a gateway, and a line between them that the test cuts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS
from weft.api.door import open_server
from weft.app import App
from weft.config import Config
from weft.outpost import Outpost, open_outpost


@asynccontextmanager
async def gateway(app: App, port: int = 0) -> AsyncIterator[str]:
    """The address of a gateway of ``app``."""
    server = open_server(app)
    found = await server.start("127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{found}"
    finally:
        await server.close()


async def join_token(app: App, **fields: object) -> str:
    _, token = await app.keys.create("join", {}, by="test", kind="join", **fields)  # type: ignore[arg-type]
    return token


def far_config(address: str, folder: Path, **fields: object) -> Config:
    settings = {"poll_seconds": 0.05, "heartbeat_seconds": 0.1, "lease_seconds": 15.0, "drain_seconds": 20.0}
    return Config(**{"connect": address, "data_dir": str(folder)} | settings | fields)  # type: ignore[arg-type]


@asynccontextmanager
async def far_away(app: App, address: str, name: str = "far", **fields: object) -> AsyncIterator[Outpost]:
    """A worker under way that has nothing but an address and a token."""
    folder = Path(app.config.data_dir) / f"{name}-{secrets.token_hex(4)}"
    config = far_config(address, folder, token=await join_token(app), **fields)
    outpost = await open_outpost(config, name)
    task = asyncio.create_task(outpost.run())
    try:
        yield outpost
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        assert task.done(), "the worker did not end"
        if not task.cancelled() and (problem := task.exception()):
            raise problem
