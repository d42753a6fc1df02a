"""Messages out of and into streams of Redis, read by one consumer group and deleted when they are done."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.errors import InboxDown, Misconfigured, OutboxDown
from weft.ports import Message, Reply

log = logging.getLogger(__name__)

STREAM = "scraper_tasks"
GROUP = "weft"
CONSUMER = "intake"
LONGEST_NAME = 200
PATIENCE_SECONDS = 5.0
MOST_AT_ONCE = 25
LARGEST_LOT = 16_000_000
"""Bytes after which no further message is received at once."""
IDLE_SECONDS = 15.0
"""How long a message may be with a process before another one takes it for lost."""
CLAIM_EVERY_SECONDS = 3.0
MOST_DEAD = 10_000
"""Dead letters in the stream beside this one, roughly; weft itself keeps all."""
MOST_REPLIES = 100_000

Entry = tuple[bytes, list[bytes] | None]


class RedisSource:
    def __init__(self, url: str, prefetch: int) -> None:
        self._address, self._prefetch = Address.parse(url), prefetch
        self._stream = parse_qs(urlsplit(url).query).get("stream", [STREAM])[0]
        if len(self._stream) > LONGEST_NAME:
            raise Misconfigured(f"the stream of the Redis inbox must have a name of 1 to {LONGEST_NAME} characters")
        at = self._address
        self._name = f"redis://{at.host}:{at.port}/{at.database}#{self._stream}"[:200]
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        self._opening = asyncio.Lock()
        self._joined = False
        self._claim_at = 0.0

    @property
    def name(self) -> str:
        return self._name

    async def receive(self, most: int, timeout: float) -> list[Message]:
        if self._reader is None or not self._reader.is_open:
            self._joined = False
            self._reader = await self._opened()
        if not self._joined:
            await self._join(self._reader)
        most = min(most, self._prefetch)
        return await self._claimed(self._reader, most) or await self._fresh(self._reader, most, timeout)

    async def done(self, messages: Sequence[Message]) -> None:
        await self._write(self._gone(messages))

    async def put_back(self, messages: Sequence[Message]) -> None:
        await self._write([_entry(self._stream, each, "*") for each in messages] + self._gone(messages))

    async def bury(self, messages: Sequence[tuple[Message, str]]) -> None:
        room = ("MAXLEN", "~", MOST_DEAD, "*")
        dead = f"{self._stream}:dead"
        await self._tell([(*_entry(dead, each, *room), "reason", reason[:2000]) for each, reason in messages])

    async def reply(self, replies: Sequence[Reply]) -> None:
        await self._tell(
            [
                ("XADD", each.to, "MAXLEN", "~", MOST_REPLIES, "*", "body", each.body)
                + (("correlation_id", each.correlation_id) if each.correlation_id else ())
                for each in replies
            ]
        )

    async def close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                await connection.close()
        self._reader = self._writer = None

    async def _join(self, reader: Connection) -> None:
        """Make the group where it is missing; it begins with the first message that is there."""
        try:
            await self._asked(reader, [("XGROUP", "CREATE", self._stream, GROUP, "0", "MKSTREAM")])
        except _Refused as refused:
            if refused.code != "BUSYGROUP":
                raise self._down(reader, refused) from refused
        self._joined = True

    async def _claimed(self, reader: Connection, most: int) -> list[Message]:
        """What some process, maybe this one, has received long ago and not seen to."""
        if time.monotonic() < self._claim_at:
            return []
        idle = math.ceil(IDLE_SECONDS * 1000)
        count = min(MOST_AT_ONCE, most)
        command: Command = ("XAUTOCLAIM", self._stream, GROUP, CONSUMER, idle, "0-0", "COUNT", count)
        answer = await self._read(reader, command)
        entries: list[Entry] = answer[1] if answer else []
        if len(entries) < count:
            self._claim_at = time.monotonic() + CLAIM_EVERY_SECONDS
        return _messages(entries)

    async def _fresh(self, reader: Connection, most: int, timeout: float) -> list[Message]:
        """A few at a time, because nobody knows how large they are before they are here."""
        found: list[Message] = []
        wait: Command = ("BLOCK", max(1, math.ceil(timeout * 1000)))
        while len(found) < most and sum(len(each.body) for each in found) < LARGEST_LOT:
            head: Command = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", min(MOST_AT_ONCE, most - len(found)))
            command: Command = (*head, *wait, "STREAMS", self._stream, ">")
            answer = await self._read(reader, command, patience=timeout + PATIENCE_SECONDS)
            if not answer:
                break
            found += _messages(answer[0][1])
            wait = ()
        return found

    async def _read(self, reader: Connection, command: Command, patience: float = PATIENCE_SECONDS) -> Any:
        """The answer; None where the stream or its group was deleted, which the next call makes anew."""
        try:
            return (await self._asked(reader, [command], patience))[0]
        except _Refused as refused:
            if refused.code not in ("NOGROUP", "UNBLOCKED"):
                raise self._down(reader, refused) from refused
            self._joined = False
            return None

    def _gone(self, messages: Sequence[Message]) -> list[Command]:
        ids = [each.token for each in messages]
        return [("XACK", self._stream, GROUP, *ids), ("XDEL", self._stream, *ids)] if ids else []

    async def _write(self, commands: Sequence[Command]) -> None:
        """All of it, or nothing."""
        if not commands:
            return
        writer = await self._open_writer()
        try:
            await self._asked(writer, [("MULTI",), *commands, ("EXEC",)])
        except _Refused as refused:
            raise self._down(writer, refused) from refused

    async def _tell(self, commands: Sequence[Command]) -> None:
        """Each as far as it can be told: where a key is something else than a stream, nobody listens there."""
        if not commands:
            return
        writer = await self._open_writer()
        try:
            await self._asked(writer, commands)
        except _Refused as refused:
            if refused.code not in ("WRONGTYPE", "NOPERM"):
                raise self._down(writer, refused) from refused
            log.warning("nobody can be told there", extra={"inbox": self._name, "why": str(refused)})

    async def _open_writer(self) -> Connection:
        async with self._opening:
            if self._writer is None or not self._writer.is_open:
                self._writer = await self._opened()
            return self._writer

    async def _opened(self) -> Connection:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await Connection.open(self._address)
        except (OSError, ReplyError) as fault:
            raise InboxDown(self._name, fault) from fault

    async def _asked(self, line: Connection, commands: Sequence[Command], patience: float = PATIENCE_SECONDS) -> Any:
        try:
            async with asyncio.timeout(patience):
                return await line.pipeline(commands)
        except ReplyError as refusal:
            raise _Refused(refusal) from refusal
        except OSError as fault:  # a timeout is one, too
            raise self._down(line, fault) from fault

    def _down(self, line: Connection, fault: object) -> InboxDown:
        """Cut the line, so that the next call begins with a new one."""
        line.abort()
        return InboxDown(self._name, fault)


class _Refused(Exception):
    """The server has refused a command."""

    def __init__(self, refusal: ReplyError) -> None:
        super().__init__(str(refusal))
        self.code = refusal.code


def _entry(stream: str, message: Message, *place: str | int) -> Command:
    """The command that adds a message to a stream."""
    fields = {**message.headers, "reply_to": message.reply_to, "correlation_id": message.correlation_id}
    texts = [part for name, value in fields.items() if value for part in (name, value)]
    return ("XADD", stream, *place, "body", message.body, *texts)


def _messages(entries: Sequence[Entry]) -> list[Message]:
    return [_message(entry_id.decode(), fields) for entry_id, fields in entries if fields is not None]


def _message(entry_id: str, fields: Sequence[bytes]) -> Message:
    given = {fields[n].decode(errors="replace"): fields[n + 1] for n in range(0, len(fields) - 1, 2)}
    body = given.pop("body", b"")
    texts = {name: value.decode(errors="replace") for name, value in given.items()}
    return Message(
        id=entry_id,
        body=body,
        reply_to=texts.pop("reply_to", ""),
        correlation_id=texts.pop("correlation_id", "") or entry_id,
        headers=texts,
        token=entry_id,
    )


ANSWER_SECONDS = 15.0
KEPT_SECONDS = 86_400


class RedisSink:
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
        await self._asked([_sent_entry(self._stream, each) for each in messages])

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


def _sent_entry(stream: str, message: Message) -> Command:
    fields = {**message.headers, "reply_to": message.reply_to, "correlation_id": message.correlation_id}
    texts = [part for name, value in fields.items() if value for part in (name, value)]
    return ("XADD", stream, "*", "body", message.body, *texts)
