"""Another system's side of a queue: it puts messages in, and reads what is left, dead or replied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiormq
from pamqp import commands as spec

from tests.servers import Server
from weft.adapters.brokers.resp import Address, Connection


@dataclass(frozen=True)
class Put:
    """A message as its sender writes it."""

    body: bytes
    reply_to: str = ""
    correlation_id: str = ""
    message_id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Got:
    body: bytes
    correlation_id: str
    headers: Mapping[str, str]


class Queue(Protocol):
    url: str
    """Of the inbox."""
    dead: str
    """The name of its dead letters."""

    async def put(self, *messages: Put) -> None: ...

    async def left(self) -> int:
        """How many messages are neither done nor, on RabbitMQ, with anybody."""

    async def taken_from(self, name: str) -> list[Got]:
        """Take out all that lies in another queue."""

    async def close(self) -> None: ...


class RabbitQueue:
    def __init__(self, server: Server, name: str) -> None:
        self._server, self.name = server, name
        self.url, self.dead = f"{server.url}?queue={name}", f"{name}.dead"
        self._connection: Any = None

    async def put(self, *messages: Put) -> None:
        channel = await self._channel()
        await channel.queue_declare(self.name, durable=True)
        for each in messages:
            if each.reply_to:
                await channel.queue_declare(each.reply_to, durable=True)
        await asyncio.gather(
            *(
                channel.basic_publish(each.body, routing_key=self.name, properties=_properties(each))
                for each in messages
            )
        )

    async def left(self) -> int:
        return int((await (await self._channel()).queue_declare(self.name, durable=True)).message_count or 0)

    async def taken_from(self, name: str) -> list[Got]:
        channel = await self._channel()
        found: list[Got] = []
        while isinstance((got := await channel.basic_get(name, no_ack=True)).delivery, spec.Basic.GetOk):
            about = got.header.properties
            headers = {key: str(value) for key, value in (about.headers or {}).items()}
            found.append(Got(got.body, str(about.correlation_id or ""), headers))
        return found

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            await self._connection.close()

    async def _channel(self) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = await aiormq.connect(self._server.url)
        return await self._connection.channel()


def _properties(put: Put) -> spec.Basic.Properties:
    return spec.Basic.Properties(
        delivery_mode=2,
        headers=dict(put.headers),
        reply_to=put.reply_to or None,
        correlation_id=put.correlation_id or None,
        message_id=put.message_id or None,
    )


class RedisQueue:
    def __init__(self, server: Server, name: str) -> None:
        self._server, self.name = server, name
        self.url, self.dead = f"{server.url}?stream={name}", f"{name}:dead"
        self._connection: Connection | None = None

    async def put(self, *messages: Put) -> None:
        for each in messages:
            fields = {**each.headers, "reply_to": each.reply_to, "correlation_id": each.correlation_id}
            texts = [part for name, value in fields.items() if value for part in (name, value)]
            await (await self._line()).call("XADD", self.name, "*", "body", each.body, *texts)

    async def left(self) -> int:
        return int(await (await self._line()).call("XLEN", self.name))

    async def taken_from(self, name: str) -> list[Got]:
        line = await self._line()
        entries = await line.call("XRANGE", name, "-", "+")
        if entries:  # and not what has been added since
            await line.call("XDEL", name, *[entry for entry, _ in entries])
        return [_got(fields) for _, fields in entries]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _line(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await Connection.open(Address.parse(self._server.url))
        return self._connection


def _got(fields: list[bytes]) -> Got:
    given = {fields[n].decode(): fields[n + 1] for n in range(0, len(fields), 2)}
    body, correlation = given.pop("body", b""), given.pop("correlation_id", b"").decode()
    return Got(body, correlation, {name: value.decode() for name, value in given.items()})
