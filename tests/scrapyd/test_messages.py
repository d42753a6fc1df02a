"""Jobs that came as messages of a queue: Scrapyd's clients find them under the task_id of their message."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import OpenApp, on_sqlite
from tests.intake.ordering import SOURCE, body, message
from tests.intake.queues import Put, RabbitQueue
from tests.projects.making import a_version
from tests.runs.acting import Hand
from tests.scrapyd.calling import Client, calling
from tests.scrapyd.making import egg_of
from tests.scrapyd.performing import said
from tests.scrapyd.test_files import exactly, listed
from tests.servers import Server
from tests.spiders import project
from tests.waiting import eventually
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_intake, open_worker
from weft.runs.model import Run
from weft.workers.heartbeat import Heartbeats

SPIDER = """
import asyncio

import scrapy


class Prices(scrapy.Spider):
    name = "prices"

    async def start(self):
        if getattr(self, "hold", None):
            self.logger.info("ready")
            await asyncio.sleep(600)
        yield {"job": self._job, "asked": getattr(self, "_version", None), "code": "OLD"}
"""


@pytest_asyncio.fixture
async def queue(rabbitmq_server: Server) -> AsyncIterator[RabbitQueue]:
    queue = RabbitQueue(rabbitmq_server, f"test-{uuid.uuid4().hex}")
    yield queue
    await queue.close()


async def ended(app: App, job: str) -> Run | None:
    found = await app.jobs.find(job, {"shop"})
    run = None if found is None else await app.runs.get(found.run_id)
    return run if run is not None and run.finished_at is not None else None


async def items(client: Client, job: str) -> list[Any]:
    answer = await client.get(f"/items/shop/prices/{job}.jl")
    return [json.loads(line) for line in answer.data.splitlines()]


async def logged(client: Client, path: str, words: str) -> bool:
    return words in (await exactly(client, path)).data.decode()


@on_sqlite
@pytest.mark.timeout(300)
async def test_a_message_of_rabbitmq_is_a_job_under_its_task_id_until_it_has_ended(
    another_app: OpenApp, queue: RabbitQueue, tmp_path: Path, remembered_checks: None
) -> None:
    app = await another_app(intake=queue.url)
    for version, code in (("1.0", SPIDER), ("2.0", SPIDER.replace("OLD", "NEW"))):
        archive = tmp_path / f"{version}.egg"
        archive.write_bytes(egg_of(project(tmp_path / version, code)))
        await app.projects.deploy("shop", archive, version, by="test")
    [(receiver, _)] = open_intake(app, app.runs._clock)
    heartbeats = Heartbeats(app.protocol, 0.1)
    worker = open_worker(app, "w1", heartbeats)
    working = asyncio.create_task(worker.run())
    try:
        orders = (
            body("order-1", _version="1_0", priority=-5, retries=3),
            body("order-2"),
            body("order-3", _version="9.9"),
            body("order/4", args={"hold": "1"}),
        )
        await queue.put(*(Put(order, reply_to=f"{queue.name}-answers") for order in orders))
        await eventually(receiver.tick, timeout=60)
        async with calling(app) as door:
            client = await door.granted({EVERYWHERE: Role.DEVELOPER})
            await eventually(partial(ended, app, "order-1"), timeout=60)
            await eventually(partial(ended, app, "order-2"), timeout=60)
            status = await client.get("/status.json?job=order-1")
            assert status.json["currstate"] == "finished"
            assert await items(client, "order-1") == [{"job": "order-1", "asked": "1_0", "code": "OLD"}]
            assert await items(client, "order-2") == [{"job": "order-2", "asked": None, "code": "NEW"}]

            log = (await client.get("/logs/shop/prices/order-1.log")).data.decode()
            assert "weft: the priority of the message is not from 0 to 1000; 0 was taken\n" in log
            assert "weft: the message has fields that weft does not know, which were ignored: 'retries'\n" in log

            assert (await client.get("/status.json?job=order-3")).json["currstate"] is None
            answers = [each.body for each in await queue.taken_from(f"{queue.name}-answers")]
            assert sum(b"there is no version 9.9 of project shop" in each for each in answers) == 1

            held = "/logs/shop/prices/order%2F4.log"
            await eventually(lambda: logged(client, held, "ready"), timeout=60)
            listed = (await client.get("/listjobs.json?project=shop")).json
            assert [(each["id"], each["log_url"]) for each in listed["running"]] == [("order/4", held)]
            assert {each["id"] for each in listed["finished"]} == {"order-1", "order-2"}
            cancelled = await client.send("/cancel.json", {"project": "shop", "job": "order/4"})
            assert cancelled.json["prevstate"] == "running"
            run = await eventually(partial(ended, app, "order/4"), timeout=60)
            assert run.state == "cancelled"
    finally:
        worker.drain()
        await working
        heartbeats.close()
        await receiver.inbox.close()


@on_sqlite
async def test_a_task_id_may_have_what_means_something_else_in_a_url(app: App) -> None:
    await a_version(app, "shop")
    name = "../a b/50%?x#y"
    await app.intake.take(SOURCE, [message(body(name))])
    async with calling(app) as door:
        client = await door.granted({EVERYWHERE: Role.DEVELOPER})
        [pending] = (await client.get("/listjobs.json?project=shop")).json["pending"]
        assert (pending["id"], pending["args"]) == (name, {})
        hand = await Hand.join(app)
        lease = await hand.lease_one()
        await hand.ship(lease, said("hello"))
        [running] = (await client.get("/listjobs.json?project=shop")).json["running"]
        [(href, _)] = await listed(client, "/logs/shop/prices/")
        page = (await client.get("/jobs")).data.decode()
        [linked] = re.findall(r'href="(/logs/[^"]+)">Log<', page)
        assert running["log_url"] == linked == f"/logs/shop/prices/{href}"
        assert await logged(client, linked, "hello")
        for elsewhere in ("/logs/shop%2Fprices/x.log", "/logs/shop/pri%2Fces/x.log", "/logs/shop/prices/a%2Fb/x.log"):
            assert (await exactly(client, elsewhere)).status == 404
