"""A broker that accepts and never answers: its listeners notice, and hear again as soon as there is a way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from sqlalchemy.engine import make_url

from experiments.proxy import Fault, Proxy
from tests.waiting import eventually
from weft.adapters.brokers import postgres, redis
from weft.adapters.brokers.postgres import postgres_broker
from weft.adapters.brokers.redis import RedisTransport, redis_broker
from weft.adapters.brokers.server import ServerBroker
from weft.errors import BrokerDown
from weft.ports import Broker

LOOK_SECONDS = 0.5


async def is_heard(bell: Broker, worker: Broker, queue: str) -> bool:
    waiting = asyncio.ensure_future(worker.wait({queue}, LOOK_SECONDS))
    await asyncio.sleep(LOOK_SECONDS / 5)
    try:
        await bell.ring({queue: 1})
        return await waiting
    except BrokerDown:
        await asyncio.gather(waiting, return_exceptions=True)
        return False


@pytest.mark.parametrize(("kind", "open_broker"), [("postgres", postgres_broker), ("redis", redis_broker)])
async def test_a_line_that_fell_silent_is_replaced(
    kind: str,
    open_broker: Callable[[str], ServerBroker],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(redis, "BLOCK_SECONDS", 1)
    server, queue = request.getfixturevalue(f"{kind}_server"), uuid.uuid4().hex
    url = server.new_database() if kind == "postgres" else server.url
    async with Proxy(server.port) as proxy, AsyncExitStack() as stack:
        far = make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
        bell, worker = open_broker(url), open_broker(far)
        for broker in (bell, worker):
            stack.push_async_callback(broker.close)

        async def is_deaf() -> bool:  # a new line lets everybody look once, so one look more may be heard
            return not await is_heard(bell, worker, queue)

        await eventually(lambda: is_heard(bell, worker, queue))
        proxy.strike(Fault.SILENT)
        await eventually(is_deaf)
        proxy.mend()
        lines = proxy.opened
        await eventually(lambda: proxy.opened > lines)
        await eventually(lambda: is_heard(bell, worker, queue))
        await eventually(lambda: not proxy.waiting())


async def test_a_line_on_which_nobody_answers_does_not_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens ends its own read over the other line; kept, that line would be asked in vain for ever."""
    monkeypatch.setattr(redis, "PATIENCE_SECONDS", 0.2)

    async def greet_and_fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"+OK\r\n")
        while await reader.read(1000):
            pass
        writer.close()

    async with await asyncio.start_server(greet_and_fall_silent, "127.0.0.1", 0) as server:
        wire = RedisTransport(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        line = await wire._open_line()
        with pytest.raises(TimeoutError):
            await wire._unblock(7)
        assert not line.is_open
        await line.close()
