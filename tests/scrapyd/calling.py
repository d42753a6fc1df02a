"""A real server on a free port where everything is Scrapyd's, and somebody who calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.api.acting import Answer, Visitor
from weft.access.model import Role
from weft.api.door import open_scrapyd_server
from weft.app import App

Form = Mapping[str, Any] | aiohttp.FormData | bytes | None


class Client(Visitor):
    """Calls Scrapyd's API: a form instead of JSON."""

    async def send(self, path: str, form: Form = None, **options: Any) -> Answer:
        """POST a form."""
        return await self.call("POST", path, data=form, **options)

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
