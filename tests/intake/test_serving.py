"""``weft serve`` as a user starts it, with queues that may be away."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.request
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cli.commanding import WEFT, environment
from tests.intake.ordering import body
from tests.intake.queues import Put, RabbitQueue, RedisQueue
from tests.projects.making import a_version
from tests.servers import Server
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config


@asynccontextmanager
async def serving(folder: Path, *urls: str, roles: str = "gateway,scheduler,intake") -> AsyncIterator[int]:
    """The port of a weft that takes from these queues; it ends soundly."""
    port = free_port()
    told = environment(WEFT_DATA_DIR=str(folder), WEFT_INTAKE=",".join(urls))
    command = [WEFT, "serve", "--port", str(port), "--process-roles", roles]
    with (folder / "said").open("wb") as output:
        process = subprocess.Popen(command, env=told, stdout=output, stderr=output)
    try:
        yield port
        assert process.poll() is None, (folder / "said").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, 60)
    assert code == 0, (folder / "said").read_text()


def readyz(port: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())["checks"]
            return found
    except OSError:
        return {}


async def opened(folder: Path) -> App:
    app = await open_app(Config(data_dir=str(folder), broker="polling:"))
    await a_version(app, "shop")
    return app


async def test_a_queue_that_is_away_at_the_start_holds_up_neither_weft_nor_the_others(
    own_rabbitmq_server: Server, redis_server: Server, tmp_path: Path
) -> None:
    name = f"test-{uuid.uuid4().hex}"
    rabbit, redis = RabbitQueue(own_rabbitmq_server, name), RedisQueue(redis_server, name)
    app = await opened(tmp_path)
    await redis.put(Put(body("from-redis")))
    await asyncio.to_thread(own_rabbitmq_server.kill)
    try:
        async with serving(tmp_path, rabbit.url, redis.url) as port:
            try:
                await eventually(lambda: len(readyz(port)) == 5, timeout=60)
                await eventually(lambda: has_runs(app, 1), timeout=60)
                await eventually(lambda: readyz(port).get("intake 2") == "ok")
                checks = readyz(port)
                assert checks["database"] == "ok"
                assert checks["intake 1"].startswith("the inbox amqp does not answer")
                assert name not in str(checks)
            finally:
                await asyncio.to_thread(own_rabbitmq_server.start)
            await rabbit.put(Put(body("from-rabbitmq")))
            await eventually(lambda: has_runs(app, 2), timeout=60)
            await eventually(lambda: readyz(port).get("intake 1") == "ok")
    finally:
        await rabbit.close()
        await redis.close()
        await app.close()
    assert (tmp_path / "said").read_text().count("inbox does not answer") == 1


async def is_empty(queue: RedisQueue) -> bool:
    return await queue.left() == 0


async def has_runs(app: App, wanted: int) -> bool:
    return sum((await app.runs.counts()).values()) == wanted


async def test_a_process_may_do_nothing_but_take_messages_or_leave_that_to_others(
    redis_server: Server, tmp_path: Path
) -> None:
    queue = RedisQueue(redis_server, f"test-{uuid.uuid4().hex}")
    app = await opened(tmp_path)
    async with serving(tmp_path, queue.url, roles="gateway") as port:
        await eventually(lambda: len(readyz(port)) == 3, timeout=60)
        await queue.put(Put(body("t")))
        async with serving(tmp_path, queue.url, roles="intake"):
            await eventually(lambda: is_empty(queue), timeout=60)
    assert await has_runs(app, 1)
    await queue.close()
    await app.close()
