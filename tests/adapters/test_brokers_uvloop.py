"""The gateway runs on uvloop (``cli/serve.py``), so every broker rings there too."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
import uvloop

from tests.servers import Server
from tests.waiting import PATIENCE_SECONDS
from weft.adapters.registry import open_broker


async def is_heard(url: str) -> bool:
    """Ring until one who waits at the same address hears it."""
    queue, bell, worker = uuid.uuid4().hex, open_broker(url), open_broker(url)
    waiting = asyncio.create_task(worker.wait({queue}, PATIENCE_SECONDS))
    try:
        while not waiting.done():
            await bell.ring({queue: 1})
            await asyncio.wait({waiting}, timeout=0.1)
        return waiting.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await bell.close()
        await worker.close()


@pytest.mark.parametrize("kind", ["redis", "rabbitmq", "postgres"])
def test_a_served_broker_rings_on_the_loop_of_the_gateway(kind: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    url = server.new_database() if kind == "postgres" else server.url
    assert uvloop.run(is_heard(url))


def test_processes_of_one_machine_ring_on_the_loop_of_the_gateway(tmp_path: Path) -> None:
    assert uvloop.run(is_heard(f"local:{tmp_path}"))
