"""A real server on a free port where everything is Scrapyd's, and somebody who calls it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.api.acting import Answer, Visitor
from weft.access.model import Role
from weft.app import App
from weft.http.application import open_scrapyd_server
from weft.workers.protocol import WorkerInfo

JOB = {"project": "shop", "spider": "things"}
Form = Mapping[str, Any] | aiohttp.FormData | bytes | io.BytesIO | None


class Client(Visitor):
    """Calls Scrapyd's API: a form instead of JSON."""

    async def send(self, path: str, form: Form = None, **options: Any) -> Answer:
        """POST a form."""
        return await self.call("POST", path, data=form, **options)

    async def upload(self, egg: bytes, project: str = "shop", version: str = "1.0", **options: Any) -> Answer:
        """POST an egg as a file, as ``scrapyd-deploy`` does."""
        form = aiohttp.FormData({"project": project, "version": version})
        form.add_field("egg", egg, filename="project.egg", content_type="application/octet-stream")
        return await self.send("/addversion.json", form, **options)

    async def granted(self, grants: Mapping[str, Role]) -> Client:
        other = await super().granted(grants)
        return Client(other._session, other.app, other.address, other.token)


@asynccontextmanager
async def calling(app: App) -> AsyncIterator[Client]:
    """Somebody without a key, at a door of Scrapyd's."""
    server = open_scrapyd_server(app)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Client(session, app, f"http://127.0.0.1:{port}")
    finally:
        await server.close()


async def said(client: Client, path: str, form: Any = None) -> str:
    """The message of a refusal, whose status is that of success."""
    answer = await client.send(path, form)
    assert answer.status == 200, answer.data
    assert set(answer.json) == {"status", "message", "node_name"}
    assert answer.json["status"] == "error"
    return str(answer.json["message"])


async def asked(client: Client, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status == 200, answer.data
    return answer.json


async def scheduled(client: Client, **more: Any) -> str:
    answer = await client.send("/schedule.json", {**JOB, **more})
    assert answer.json["status"] == "ok", answer.data
    return str(answer.json["jobid"])


async def leased(app: App) -> Any:
    """A worker that takes what waits; the leases that it got, and its own id."""
    card = WorkerInfo(name="w1", host="here", pid=4711, version="0", labels=(), capacity=10)
    worker = await app.protocol.join(card)
    return worker, await app.protocol.lease(worker, 10)
