"""Other systems: they put messages into a queue of RabbitMQ or a stream of Redis, and know which of them are there.

A message counts as published when the server has confirmed it: RabbitMQ's confirm, or the answer of a Redis that
writes each command to disk first. What was not confirmed is published again under the same id.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiormq
import hiredis
from pamqp import commands as spec

ANSWER_SECONDS = 20.0
AGAIN_SECONDS = 0.1
PERSISTENT = 2

logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # that a server is away is what we expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is published, and under which name its publisher remembers it."""

    key: str
    body: bytes
    reply_to: str = ""


Heard = tuple[str, str]
"""The key of a message, and the status that its sender was told."""


class Unanswered(Exception):
    """The server went away before it had confirmed everything."""


class Publisher(Protocol):
    """One who publishes to one server, some messages at a time."""

    name: str

    async def publish(self, messages: Sequence[Message]) -> None:
        """Return when the server has confirmed all of them; raise Unanswered where that is not known."""

    async def heard(self) -> list[Heard]:
        """The answers that came since the last call."""

    async def left(self) -> int:
        """How many messages nobody has acknowledged; whoever receives them must have stopped."""

    async def close(self) -> None: ...


async def publish_surely(publisher: Publisher, messages: Sequence[Message]) -> int:
    """Publish until all are confirmed; how often that was tried again."""
    again = 0
    while True:
        try:
            await publisher.publish(messages)
        except Unanswered:
            again += 1
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return again


class ToRabbit:
    """Persistent messages to a durable queue, with publisher confirms; each has its key as its id."""

    name = "RabbitMQ"

    def __init__(self, url: str, queue: str, answers: str = "") -> None:
        self._url, self._queues = url, [queue, answers] if answers else [queue]
        self._connection: Any = None
        self._channel: Any = None

    async def publish(self, messages: Sequence[Message]) -> None:
        await self._asked(self._publish(messages))

    async def heard(self) -> list[Heard]:
        found: list[Heard] = await self._asked(self._heard())
        return found

    async def left(self) -> int:
        return int(await self._asked(self._left()))

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection, self._channel = self._connection, None, None
            await asyncio.gather(connection.close(), return_exceptions=True)

    async def _asked(self, work: Any) -> Any:
        """Do something with the server; the library may cancel whoever waits when a connection closes."""
        answer = (await asyncio.gather(asyncio.wait_for(work, ANSWER_SECONDS), return_exceptions=True))[0]
        if isinstance(answer, BaseException):
            await self.close()
            raise Unanswered from answer
        return answer

    async def _open(self) -> Any:
        if self._channel is None or self._channel.is_closed:
            await self.close()
            self._connection = await aiormq.connect(self._url)
            self._channel = await self._connection.channel(publisher_confirms=True)
            for queue in self._queues:
                await self._channel.queue_declare(queue, durable=True)
        return self._channel

    async def _publish(self, messages: Sequence[Message]) -> None:
        channel = await self._open()
        sending = [
            channel.basic_publish(
                each.body,
                routing_key=self._queues[0],
                mandatory=True,
                properties=spec.Basic.Properties(
                    delivery_mode=PERSISTENT,
                    message_id=each.key,
                    correlation_id=each.key,
                    reply_to=each.reply_to or None,
                ),
            )
            for each in messages
        ]
        await asyncio.gather(*sending)

    async def _heard(self) -> list[Heard]:
        channel, found = await self._open(), []
        while isinstance((got := await channel.basic_get(self._queues[1], no_ack=True)).delivery, spec.Basic.GetOk):
            found.append((str(got.header.properties.correlation_id), status_in(got.body)))
        return found

    async def _left(self) -> int:
        declared = await (await self._open()).queue_declare(self._queues[0], passive=True)
        return int(declared.message_count)


class ToRedis:
    """Entries of a stream, whose ids the publisher counts itself: what was there already cannot come in twice."""

    name = "Redis"

    def __init__(self, port: int, stream: str, answers: str = "") -> None:
        self._port, self._stream, self._answers = port, stream, answers
        self._last = b"-"
        self._numbers: dict[str, int] = {}
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._parser = hiredis.Reader()

    async def publish(self, messages: Sequence[Message]) -> None:
        for answer in await self._asked([self._entry(each) for each in messages]):
            if isinstance(answer, hiredis.ReplyError) and "equal or smaller" not in str(answer):
                raise answer

    async def heard(self) -> list[Heard]:
        (entries,) = await self._asked([("XRANGE", self._answers, self._last, "+")])
        self._last = b"(" + entries[-1][0] if entries else self._last
        told = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
        return [(each[b"correlation_id"].decode(), status_in(each[b"body"])) for each in told]

    async def left(self) -> int:
        (groups,) = await self._asked([("XINFO", "GROUPS", self._stream)])
        told = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
        return sum(int(group[b"pending"]) + int(group[b"lag"] or 0) for group in told)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    def _entry(self, message: Message) -> tuple[Any, ...]:
        number = self._numbers.setdefault(message.key, len(self._numbers) + 1)
        answer = ("reply_to", message.reply_to, "correlation_id", message.key) if message.reply_to else ()
        return ("XADD", self._stream, f"{number}-1", "body", message.body, *answer)

    async def _asked(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await self._ask(commands)
        except (OSError, EOFError, TimeoutError) as problem:
            await self.close()
            raise Unanswered from problem
        for answer in answers:
            if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("LOADING"):
                raise Unanswered from answer  # it has just started again, and reads what it had
        return answers

    async def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self._streams is None:
            self._streams, self._parser = await asyncio.open_connection("127.0.0.1", self._port), hiredis.Reader()
        reader, writer = self._streams
        writer.write(b"".join(hiredis.pack_command(command) for command in commands))
        await writer.drain()
        found: list[Any] = []
        while len(found) < len(commands):
            while (answer := self._parser.gets()) is False:
                if not (data := await reader.read(65536)):
                    raise EOFError("Redis closed the connection")
                self._parser.feed(data)
            found.append(answer)
        return found


def status_in(body: bytes) -> str:
    return str(json.loads(body)["payload"]["status"])
