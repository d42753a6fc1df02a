"""A line to RabbitMQ: one connection, one channel, and the queues that it has declared."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import aiormq
from aiormq.abc import ChannelFrame
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import ChannelPreconditionFailed, ConnectionNotImplemented
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from yarl import URL

from weft.adapters.brokers.retries import fault_of
from weft.errors import Misconfigured

PREFIX = "weft.doorbell."
LONGEST_NAME = 200
"""Bytes; RabbitMQ allows 255, the prefix included. A longer name goes by its digest."""

BOUNDS = {"x-max-length": 500, "x-overflow": "drop-head", "x-message-ttl": 60_000, "x-expires": 3_600_000}
QUORUM = {**BOUNDS, "x-queue-type": "quorum"}
CLASSIC = {**BOUNDS, "x-queue-type": "classic"}
HEARTBEAT_SECONDS = 10
GOODBYE_SECONDS = 0.8
REPAIR_SECONDS = 10.0

# The library reports each failed attempt as an error; weft says it once when an outage begins and once when it ends.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class AmqpConnection(TransportFactory):
    """Opened by its first use. It can be cut without asking the server, who may not answer."""

    def __init__(self, url: URL, shapes: list[dict[str, Any]], *, confirms: bool = False) -> None:
        self._url, self._shapes, self._confirms = url, shapes, confirms
        self._connection: aiormq.Connection | None = None
        self._channel: aiormq.Channel | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._declared: dict[str, str] = {}

    @property
    def channel(self) -> aiormq.Channel:
        assert self._channel is not None
        return self._channel

    @property
    def is_open(self) -> bool:
        return self._channel is not None and not self._channel.is_closed

    async def open(self) -> None:
        self._connection = await aiormq.connect(self._url, transport_factory=self)
        channel = await self._connection.channel(publisher_confirms=self._confirms)
        assert isinstance(channel, aiormq.Channel)
        self._channel = channel

    async def declared(self, queue: str) -> str:
        """The server's name of the queue, which exists from now on."""
        if queue not in self._declared:
            name = server_name(queue)
            await self.declare(name)
            self._declared[queue] = name
        return self._declared[queue]

    async def publish(self, name: str, body: bytes, count: int) -> None:
        """Put the same message into a queue ``count`` times, at the cost of one."""
        header = ContentHeader(properties=spec.Basic.Properties(content_type="application/json"), body_size=len(body))
        publish = spec.Basic.Publish(routing_key=name)
        message = ChannelFrame.marshall(self.channel.number, (publish, header, ContentBody(body)))
        drained = self.channel.create_future()
        await self.channel.write_queue.put(ChannelFrame(message.payload * count, False, drained))
        await drained

    async def delete(self, name: str) -> None:
        """Remove a queue that does not answer, which takes the server a while."""
        assert self._connection is not None
        async with asyncio.timeout(REPAIR_SECONDS):
            channel = await self._connection.channel(publisher_confirms=False)
            await channel.queue_delete(name)

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def close(self) -> None:
        """Say goodbye, so that the server does not log a lost client; not for long."""
        if self._connection is not None:
            await fault_of(self._connection.close(), timeout=GOODBYE_SECONDS, hang_up=self.cut)
        self.cut()

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Called by the library for its socket."""
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **options)
        return reader, self._writer

    async def declare(self, name: str) -> None:
        """Make a queue of the first shape that the server can; one that is there may be whatever it is."""
        for arguments in tuple(self._shapes):
            try:
                return await self._declare_as(name, durable=True, arguments=arguments)
            except ChannelPreconditionFailed:
                continue
            except ConnectionNotImplemented:
                self._shapes.remove(arguments)  # the server hung up on us: the next line does not ask for it again
                raise
        await self._declare_as(name, passive=True)

    async def _declare_as(self, name: str, **shape: Any) -> None:
        """On a channel of its own: a refusal closes it, and consumers live on the other."""
        assert self._connection is not None
        channel = await self._connection.channel(publisher_confirms=False)
        await channel.queue_declare(name, **shape)
        await channel.close()


def server_name(queue: str) -> str:
    encoded = queue.encode()
    short = queue if len(encoded) <= LONGEST_NAME else hashlib.sha256(encoded).hexdigest()
    return PREFIX + short


def parse_address(text: str) -> URL:
    """The address with our heartbeat added where it has none."""
    allowed = "it must look like amqp://[user:password@]host[:port][/vhost], or amqps:// for TLS"
    try:
        url = URL(text)
    except ValueError as error:
        raise Misconfigured(f"the RabbitMQ address of the broker is wrong ({error}); {allowed}") from error
    if url.scheme not in ("amqp", "amqps") or not url.host:
        raise Misconfigured(f"the RabbitMQ address of the broker is wrong; {allowed}")
    return url.update_query({"heartbeat": url.query.get("heartbeat", str(HEARTBEAT_SECONDS))})
