"""A small client for Redis: commands out in order, replies back in order, parsed by hiredis."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import hiredis

from weft.errors import Misconfigured

Command = tuple[str | int | bytes, ...]


class ReplyError(Exception):
    """The server refused a command; the text is its own, and begins with a code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class ProtocolError(ConnectionError):
    """What came back is not the protocol of Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a Redis is, and who we are to it."""

    host: str
    port: int
    database: int
    username: str
    password: str
    encrypted: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        """From ``redis://[user:password@]host[:port][/database]``, or ``rediss://`` for TLS."""
        allowed = "it must look like redis://[user:password@]host[:port][/database], or rediss:// for TLS"
        try:
            parts = urlsplit(url)
            port = parts.port or 6379
            database = int(parts.path.strip("/") or 0)
        except ValueError:  # which may show a part of the password
            raise Misconfigured(f"the Redis address of the broker is wrong; {allowed}") from None
        if parts.scheme not in ("redis", "rediss") or not parts.hostname or database < 0:
            raise Misconfigured(f"the Redis address of the broker is wrong; {allowed}")
        return cls(
            host=parts.hostname,
            port=port,
            database=database,
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            encrypted=parts.scheme == "rediss",
        )


def pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its types know only tuples of one
    return packed


class Connection(asyncio.Protocol):
    """One connection. It never reconnects: whoever holds it opens another."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(protocolError=ProtocolError, replyError=ReplyError)
        self._expected: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Connect, introduce ourselves and choose the database."""
        context = ssl.create_default_context() if address.encrypted else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, address.host, address.port, ssl=context)
        try:
            await connection._introduce(address)
        except BaseException:
            connection.abort()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def call(self, *command: str | int | bytes) -> Any:
        """The reply to one command. Raises ``ReplyError`` where the server refuses it."""
        return await self.send([command])[0]

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to all commands, sent in one go; the first refusal is raised when all have been answered."""
        replies = await asyncio.gather(*self.send(commands), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """Send commands in one go; each future brings its reply."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection to Redis is closed")
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in commands]
        self._expected.extend(futures)
        self._transport.write(b"".join(pack(command) for command in commands))
        return futures

    def abort(self) -> None:
        """Cut the line; whoever waits for a reply gets an error."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Cut the line and see it closed."""
        self.abort()
        await self._closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods alone
        line: socket.socket | None = transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._deliver(reply)
        except ProtocolError as error:
            self._end(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("Redis closed the connection"))
        if not self._closed.done():
            self._closed.set_result(None)

    async def _introduce(self, address: Address) -> None:
        who = (address.username, address.password) if address.username else (address.password,)
        greeting: list[Command] = [("AUTH", *who)] if address.password else []
        await self.pipeline([*greeting, ("SELECT", address.database)])

    def _deliver(self, reply: Any) -> None:
        if not self._expected:
            raise ProtocolError("Redis answered more than it was asked")
        future = self._expected.popleft()
        if future.done():
            return
        if isinstance(reply, ReplyError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _end(self, error: Exception) -> None:
        while self._expected:
            future = self._expected.popleft()
            if not future.done():
                future.set_exception(error)
