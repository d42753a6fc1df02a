"""Somebody who listens to a stream of server-sent events, as a browser does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from tests.api.acting import Visitor

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Heard:
    """One event of a stream; of a comment only the text."""

    id: str = ""
    name: str = ""
    data: bytes = b""
    comment: str = ""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


class Ear:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last_id = ""

    async def next(self) -> Heard | None:
        """The next event or comment; None at the end."""
        fields: dict[str, bytes] = {}
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self.response.content:
                if not line.strip(b"\n"):
                    break
                name, _, value = line.rstrip(b"\n").partition(b": ")
                fields[name.decode()] = value
            else:
                return None
        self.last_id = fields.get("id", b"").decode() or self.last_id
        return Heard(
            id=fields.get("id", b"").decode(),
            name=fields.get("event", b"").decode(),
            data=fields.get("data", b""),
            comment=fields.get("", b"").decode(),
        )

    async def event(self) -> Heard:
        """The next event, whatever comments come before it."""
        while (heard := await self.next()) is not None:
            if heard.data:
                return heard
        raise AssertionError("the stream has ended")

    async def events(self, count: int) -> list[Heard]:
        return [await self.event() for _ in range(count)]

    async def last_words(self) -> list[str]:
        """The comments until the stream ends."""
        found = []
        while (heard := await self.next()) is not None:
            if heard.comment:
                found.append(heard.comment)
        return found


@asynccontextmanager
async def listening(visitor: Visitor, path: str = "/v1/events", *, since: str = "") -> AsyncIterator[Ear]:
    """A stream that has begun: what happens from now on is heard."""
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {visitor.token}"}
    headers |= {"Last-Event-ID": since} if since else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(visitor.address + path, headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        ear = Ear(response)
        if not since:
            first = await ear.next()
            assert first is not None
            assert first.comment == "still here"
        yield ear
