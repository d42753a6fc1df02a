"""A person with a browser, as far as HTTP goes: keeps cookies, fills in forms, follows where pages lead."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.access.acting import PASSWORD
from weft.access.model import EVERYWHERE, Grants, Role
from weft.app import App
from weft.http.application import open_server
from weft.web.site import WebSite

HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
TYPED = re.compile(r'<textarea id="body"[^>]*>\n(.*?)</textarea>', re.DOTALL)


class Shown:
    """A page that has come back."""

    def __init__(self, response: aiohttp.ClientResponse, data: bytes) -> None:
        self.status, self.headers, self.data = response.status, response.headers, data

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def fields(self) -> dict[str, str]:
        """What a form brings along by itself."""
        return {name: html.unescape(value) for name, value in HIDDEN.findall(self.text)}

    @property
    def typed(self) -> str:
        """What stands in the field for the body of a letter."""
        [text] = TYPED.findall(self.text)
        return html.unescape(text)

    @property
    def leads_to(self) -> str:
        return str(self.headers.get("Location", ""))


class Surfer:
    def __init__(self, session: aiohttp.ClientSession, app: App, address: str) -> None:
        self.session, self.app, self.address = session, app, address

    async def get(self, path: str, **headers: str) -> Shown:
        return await self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def send(self, path: str, fields: Mapping[str, str], **headers: str) -> Shown:
        """Send a form, and see where it leads."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("POST", path, data=fields, headers=told)

    async def ask(self, method: str, path: str, **options: Any) -> Shown:
        async with self.session.request(method, self.address + path, allow_redirects=False, **options) as answer:
            return Shown(answer, await answer.read())

    async def log_in(self, name: str = "ada", grants: Grants | None = None, **more: str) -> Shown:
        await self.app.users.create(name, PASSWORD, {EVERYWHERE: Role.OPERATOR} if grants is None else grants)
        return await self.send("/login", {"name": name, "password": PASSWORD, **more})


@asynccontextmanager
async def surfing(app: App) -> AsyncIterator[Surfer]:
    """Somebody who is not logged in, in front of the site of ``app``."""
    server = open_server(app, around=WebSite)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            yield Surfer(session, app, f"http://127.0.0.1:{port}")
    finally:
        await server.close()
