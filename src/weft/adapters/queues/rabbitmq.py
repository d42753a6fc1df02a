"""Messages out of and into durable queues of RabbitMQ, acknowledged by hand."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, cast

from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelClosed, DeliveryError
from pamqp import commands as spec
from pamqp import constants
from pamqp.header import ContentHeader
from yarl import URL

from weft.adapters.brokers.amqp import AmqpConnection, parse_address
from weft.adapters.brokers.retries import fault_of
from weft.errors import InboxDown, Misconfigured, OutboxDown
from weft.ports import Message, Reply

SIZES = 12
"""Bytes of a content header before its properties."""


class CarefulConnection(AmqpConnection):
    def __init__(self, url: URL, shapes: list[dict[str, Any]], room: asyncio.Event) -> None:
        super().__init__(url, shapes)
        self._room = room

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await super().create(url, **options)
        return cast(asyncio.StreamReader, CarefulReader(reader, self._room)), writer


class CarefulReader:
    """As much of a reader as the library uses: it reads a frame's type, its size, and the rest of it."""

    def __init__(self, reader: asyncio.StreamReader, room: asyncio.Event) -> None:
        self._reader, self._room = reader, room
        self._is_header = False

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def read(self, count: int = -1) -> bytes:
        return await self._reader.read(count)

    async def readexactly(self, count: int) -> bytes:
        if not self._room.is_set():
            await self._room.wait()
        data = await self._reader.readexactly(count)
        if count == 1:
            self._is_header = data[0] == constants.FRAME_HEADER
        elif self._is_header and count != constants.FRAME_HEADER_SIZE - 1:
            return readable(data)
        return data


def readable(data: bytes) -> bytes:
    """A content header and the mark of its end: as it is, or of the same length without properties."""
    try:
        ContentHeader().unmarshal(data[:-1])
    except Exception:  # whatever it is, it must not end the connection
        return data[:SIZES].ljust(len(data) - 1, b"\0") + data[-1:]
    return data


log = logging.getLogger(__name__)

QUEUE = "scraper_tasks"
OPEN_SECONDS = 5.0
PUBLISH_SECONDS = 15.0
GATHER_SECONDS = 0.002
"""How long others may come after the first message, so that they are taken together."""
LONGEST_NAME = 250
LARGEST_LOT = 16_000_000
"""Bytes after which no further message is received at once."""
MOST_BYTES = 64_000_000
"""How much of messages that are not done is kept in memory, roughly."""
MOST_DEAD = {"x-max-length": 100_000, "x-overflow": "drop-head"}
PERSISTENT = 2
LONGEST_SHORT = 255

REFUSALS = (DeliveryError, ChannelAccessRefused)
"""The server is there, and does not want to have a message."""

Publishing = tuple[str, bytes, spec.Basic.Properties]


class RabbitSource:
    def __init__(self, url: str, prefetch: int) -> None:
        address = parse_address(url)
        self._queue, self._prefetch = address.query.get("queue", QUEUE), prefetch
        if not 1 <= len(self._queue.encode()) <= LONGEST_NAME:
            raise Misconfigured(f"the queue of the RabbitMQ inbox must have a name of 1 to {LONGEST_NAME} bytes")
        self._url = address.without_query_params("queue")
        self._name = f"{address.scheme}://{address.host}:{address.port or 5672}{address.path}#{self._queue}"[:200]
        self._line: AmqpConnection | None = None
        self._publisher: AmqpConnection | None = None
        self._opening = asyncio.Lock()
        self._came: deque[DeliveredMessage] = deque()
        self._held: dict[int, int] = {}  # the tags of messages that are not done, and their sizes
        self._bytes = 0
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    @property
    def name(self) -> str:
        return self._name

    async def receive(self, most: int, timeout: float) -> list[Message]:
        line = await self._listening()
        if not self._came:
            await self._arrival(line, timeout)
        found: list[Message] = []
        size = 0
        while self._came and len(found) < most and size < LARGEST_LOT:
            found.append(_message(self._came.popleft(), line))
            size += len(found[-1].body)
        return found

    async def done(self, messages: Sequence[Message]) -> None:
        line = self._line
        tags = sorted(tag for where, tag in (each.token for each in messages) if where is line and tag in self._held)
        if line is None or not line.is_open or not tags:
            return
        self._count(-sum(self._held.pop(tag) for tag in tags))
        # One word is enough for all where no earlier message is still held.
        earliest = next(iter(self._held), None)
        together = tags if earliest is None or earliest > tags[-1] else []
        await self._guarded(_acknowledge(line, together[-1:] or tags, multiple=bool(together)), line)

    async def put_back(self, messages: Sequence[Message]) -> None:
        copies = [(self._queue, each.body, _properties(each, each.headers)) for each in messages]
        await self._publish(copies, surely=True)
        await self.done(messages)

    async def bury(self, messages: Sequence[tuple[Message, str]]) -> None:
        dead = f"{self._queue}.dead"
        marks = [(each, {**each.headers, "weft-reason": reason[:2000]}) for each, reason in messages]
        await self._publish([(dead, each.body, _properties(each, headers)) for each, headers in marks], declare=dead)

    async def reply(self, replies: Sequence[Reply]) -> None:
        await self._publish([(each.to, each.body, _reply_properties(each)) for each in replies])

    async def close(self) -> None:
        for line in (self._line, self._publisher):
            if line is not None:
                await line.close()
        self._line = self._publisher = None

    async def _listening(self) -> AmqpConnection:
        """The line that messages come on. A new one begins with nothing: what came on the old one comes again."""
        async with self._opening:
            if self._line is None or not self._line.is_open:
                self._came.clear()
                self._held.clear()
                self._count(-self._bytes)
                _leave(self._line)
                self._line = None
                line = CarefulConnection(self._url, [{}], self._room)
                await self._guarded(self._subscribe(line), line, OPEN_SECONDS)
                self._line = line
            return self._line

    async def _subscribe(self, line: AmqpConnection) -> None:
        await line.open()
        await _declared(line, self._queue)
        await line.channel.basic_qos(prefetch_count=self._prefetch)
        line.channel.closing.add_done_callback(self._hung_up)
        # The server takes a consumer away when its queue is deleted or moves: begin again.
        line.channel.on_consumer_cancel_callbacks.add(lambda _: line.cut())
        await line.channel.basic_consume(self._queue, self._take)

    def _hung_up(self, closing: asyncio.Future[Any]) -> None:
        if not closing.cancelled():
            closing.exception()
        self._arrived.set()

    async def _take(self, delivered: DeliveredMessage) -> None:
        if delivered.delivery_tag is not None:
            self._held[delivered.delivery_tag] = len(delivered.body)
            self._came.append(delivered)
            self._arrived.set()
            self._count(len(delivered.body))

    def _count(self, size: int) -> None:
        """Let more come, or not: messages may be large, and prefetch only counts them."""
        self._bytes += size
        if self._bytes < MOST_BYTES:
            self._room.set()
        else:
            self._room.clear()

    async def _arrival(self, line: AmqpConnection, timeout: float) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            return
        if not line.is_open:
            raise InboxDown(self._name, "the connection was closed")
        await asyncio.sleep(GATHER_SECONDS)

    async def _publish(self, messages: Sequence[Publishing], *, declare: str = "", surely: bool = False) -> None:
        """Return when the server has them; what it refuses to have is an error only where it is ``surely`` wanted."""
        if not messages:
            return
        line = await self._publishing()
        fault = await fault_of(_confirmed(line, messages, declare), timeout=PUBLISH_SECONDS, hang_up=line.cut)
        if fault is None:
            return
        if surely or not isinstance(fault, REFUSALS):
            raise self._down(line, fault) from fault
        log.warning("nobody can be told there", extra={"inbox": self._name, "why": repr(fault)})

    async def _publishing(self) -> AmqpConnection:
        async with self._opening:
            if self._publisher is None or not self._publisher.is_open:
                _leave(self._publisher)
                line = AmqpConnection(self._url, [MOST_DEAD], confirms=True)
                await self._guarded(line.open(), line, OPEN_SECONDS)
                self._publisher = line
            return self._publisher

    async def _guarded(
        self, work: Coroutine[Any, Any, None], line: AmqpConnection, timeout: float = PUBLISH_SECONDS
    ) -> None:
        fault = await fault_of(work, timeout=timeout, hang_up=line.cut)
        if fault is not None:
            raise self._down(line, fault) from fault

    def _down(self, line: AmqpConnection, fault: BaseException) -> InboxDown:
        """Cut the line, so that the next call begins with a new one."""
        line.cut()
        return InboxDown(self._name, fault)


def _leave(line: AmqpConnection | None) -> None:
    """Hang up: a server that closes a channel keeps its connection open."""
    if line is not None:
        line.cut()


async def _acknowledge(line: AmqpConnection, tags: Iterable[int], *, multiple: bool) -> None:
    for tag in tags:
        await line.channel.basic_ack(tag, multiple=multiple, wait=False)


async def _confirmed(line: AmqpConnection, messages: Sequence[Publishing], declare: str) -> None:
    if declare:
        await _declared(line, declare)
    channel = line.channel
    answers = await asyncio.gather(
        *(channel.basic_publish(body, routing_key=to, properties=about, wait=False) for to, body, about in messages),
        return_exceptions=True,
    )
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    forbidden = [fault for fault in faults if isinstance(fault, ChannelAccessRefused)]
    others = [fault for fault in faults if not isinstance(fault, REFUSALS)]
    if faults:  # one that is forbidden closes the channel on the others
        raise [*forbidden, *others, *faults][0]


async def _declared(line: AmqpConnection, name: str) -> None:
    """Make a queue, if we may. What is there may be used whatever it is; what is not, its first use tells."""
    try:
        await line.declare(name)
    except ChannelClosed as refusal:
        log.warning("queue not made", extra={"queue": name, "why": str(refusal)})


def _message(delivered: DeliveredMessage, line: AmqpConnection) -> Message:
    about = delivered.header.properties
    return Message(
        id=_text(about.message_id) or hashlib.sha256(delivered.body).hexdigest(),
        body=delivered.body,
        headers={str(name): _text(value) for name, value in (about.headers or {}).items()},
        reply_to=_text(about.reply_to),
        correlation_id=_text(about.correlation_id) or _text(about.message_id),
        token=(line, delivered.delivery_tag),
    )


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return "" if value is None else str(value)


def _properties(message: Message, headers: Mapping[str, str]) -> spec.Basic.Properties:
    return spec.Basic.Properties(
        content_type="application/json",
        delivery_mode=PERSISTENT,
        headers={name: value for name, value in headers.items() if len(name.encode()) <= LONGEST_SHORT},
        message_id=_short(message.id),
        reply_to=_short(message.reply_to) or None,
        correlation_id=_short(message.correlation_id) or None,
    )


def _short(text: str) -> str:
    """As much as a property has room for."""
    return text.encode()[:LONGEST_SHORT].decode(errors="ignore")


def _reply_properties(reply: Reply) -> spec.Basic.Properties:
    return spec.Basic.Properties(
        content_type="application/json", delivery_mode=PERSISTENT, correlation_id=reply.correlation_id or None
    )


ANSWER_SECONDS = 15.0
REPLIES = "amq.rabbitmq.reply-to"
"""No queue: the server brings replies to whoever published, for as long as the connection lasts."""


class RabbitSink:
    reply_to = REPLIES

    def __init__(self, url: str) -> None:
        address = parse_address(url)
        self._queue = address.query.get("queue", QUEUE)
        self._name = f"{address.scheme}://{address.host}:{address.port or 5672}{address.path}#{self._queue}"[:200]
        self._line = AmqpConnection(address.without_query_params("queue"), [{}], confirms=True)
        self._was_open = False
        self._replies: asyncio.Queue[Reply] = asyncio.Queue()

    @property
    def name(self) -> str:
        return self._name

    async def publish(self, messages: Sequence[Message]) -> None:
        if not self._line.is_open:
            await self._guarded(self._open(), reached=self._was_open)
            self._was_open = True
        await self._guarded(self._confirmed(messages), reached=True)

    async def hear(self, timeout: float) -> list[Reply]:
        try:
            async with asyncio.timeout(timeout):
                heard = [await self._replies.get()]
        except TimeoutError:
            return []
        while not self._replies.empty():
            heard.append(self._replies.get_nowait())
        return heard

    async def close(self) -> None:
        await self._line.close()

    async def _open(self) -> None:
        await self._line.open()
        await self._line.declare(self._queue)
        await self._line.channel.basic_consume(REPLIES, self._take, no_ack=True)

    async def _take(self, delivered: DeliveredMessage) -> None:
        told = delivered.header.properties.correlation_id
        await self._replies.put(Reply(to=REPLIES, correlation_id=str(told or ""), body=delivered.body))

    async def _confirmed(self, messages: Sequence[Message]) -> None:
        publish = self._line.channel.basic_publish
        await asyncio.gather(
            *(
                publish(each.body, routing_key=self._queue, properties=_sent_properties(each), wait=False)
                for each in messages
            )
        )

    async def _guarded(self, work: Coroutine[Any, Any, None], *, reached: bool) -> None:
        fault = await fault_of(work, timeout=ANSWER_SECONDS, hang_up=self._line.cut)
        if fault is not None:
            raise OutboxDown(self._name, fault, reached=reached) from fault


def _sent_properties(message: Message) -> spec.Basic.Properties:
    return spec.Basic.Properties(
        content_type="application/json",
        delivery_mode=PERSISTENT,
        headers=dict(message.headers),
        message_id=message.id,
        reply_to=message.reply_to or None,
        correlation_id=message.correlation_id or None,
    )
