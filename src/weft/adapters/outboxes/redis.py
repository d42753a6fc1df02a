"""Orders into a stream of Redis; its answer says that it has them."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.adapters.inboxes.redis import STREAM
from weft.errors import OutboxDown
from weft.ports import Message, Reply

ANSWER_SECONDS = 15.0
KEPT_SECONDS = 86_400


class RedisOutbox:
    def __init__(self, url: str) -> None:
        self._address = at = Address.parse(url)
        self._stream = parse_qs(urlsplit(url).query).get("stream", [STREAM])[0]
        self._name = f"redis://{at.host}:{at.port}/{at.database}#{self._stream}"[:200]
        self.reply_to = f"{self._stream}:replies:{os.urandom(8).hex()}"
        """A stream of our own. When we go it is given a day, because weft tells more when the runs end."""
        self._connection: Connection | None = None
        self._heard = "0-0"

    @property
    def name(self) -> str:
        return self._name

    async def publish(self, messages: Sequence[Message]) -> None:
        await self._asked([_entry(self._stream, each) for each in messages])

    async def hear(self, timeout: float) -> list[Reply]:
        block = max(1, math.ceil(timeout * 1000))
        read: Command = ("XREAD", "BLOCK", block, "STREAMS", self.reply_to, self._heard)
        [answer] = await self._asked([read], timeout + ANSWER_SECONDS)
        entries = answer[0][1] if answer else []
        if entries:
            self._heard = entries[-1][0].decode()
        return [self._reply(fields) for _, fields in entries]

    async def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            await self._asked([("EXPIRE", self.reply_to, KEPT_SECONDS)])
            await self._connection.close()

    def _reply(self, fields: Sequence[bytes]) -> Reply:
        told = dict(zip(fields[::2], fields[1::2], strict=False))
        correlation_id = told.get(b"correlation_id", b"").decode(errors="replace")
        return Reply(to=self.reply_to, correlation_id=correlation_id, body=told.get(b"body", b""))

    async def _asked(self, commands: Sequence[Command], patience: float = ANSWER_SECONDS) -> list[Any]:
        try:
            async with asyncio.timeout(patience):
                if self._connection is None:
                    self._connection = await Connection.open(self._address)
                return await self._connection.pipeline(commands)
        except (OSError, ReplyError) as fault:
            raise OutboxDown(self._name, fault, reached=self._connection is not None) from fault


def _entry(stream: str, message: Message) -> Command:
    fields = {**message.headers, "reply_to": message.reply_to, "correlation_id": message.correlation_id}
    texts = [part for name, value in fields.items() if value for part in (name, value)]
    return ("XADD", stream, "*", "body", message.body, *texts)
