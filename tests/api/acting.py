"""A real server on a free port, and somebody who calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.http.application import open_server


class Answer:
    """What came back."""

    def __init__(self, response: aiohttp.ClientResponse, data: bytes) -> None:
        self.status, self.headers, self.data = response.status, response.headers, data

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


class Visitor:
    """Calls the API with a key, or with none."""

    def __init__(self, session: aiohttp.ClientSession, app: App, address: str, token: str = "") -> None:
        self._session, self.app, self.address, self.token = session, app, address, token

    async def call(self, method: str, path: str, json: Any = None, **options: Any) -> Answer:
        headers: dict[str, str] = dict(options.pop("headers", {}))
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        data = options.pop("data", None)
        if isinstance(json, bytes):
            data, headers["Content-Type"] = json, "application/octet-stream"
        elif json is not None:
            data, headers["Content-Type"] = msgspec.json.encode(json), "application/json"
        async with self._session.request(method, self.address + path, data=data, headers=headers, **options) as got:
            endless = got.content_type == "text/event-stream" and got.status == 200
            return Answer(got, b"" if endless else await got.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, json, **options)

    async def with_role(self, role: Role, project: str = EVERYWHERE) -> Visitor:
        return await self.granted({project: role})

    async def granted(self, grants: Mapping[str, Role]) -> Visitor:
        """Somebody else, with a key of these grants."""
        _, token = await self.app.keys.create("test", grants, by="test")
        return Visitor(self._session, self.app, self.address, token)


@asynccontextmanager
async def visiting(app: App, *, demo: bool = False) -> AsyncIterator[Visitor]:
    """Somebody without a key, at the door of ``app``."""
    server = open_server(app, demo=demo)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Visitor(session, app, f"http://127.0.0.1:{port}")
    finally:
        await server.close()
