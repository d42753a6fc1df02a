"""A line to RabbitMQ that no message can break, and on which no more comes than there is room for.

The library ends a connection over properties that it cannot read; such a message would come again, and end the next
one. Here it has none instead. While there is no room nothing is read, so that the server keeps the rest.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pamqp import constants
from pamqp.header import ContentHeader
from yarl import URL

from weft.adapters.brokers.amqp import Line

SIZES = 12
"""Bytes of a content header before its properties."""


class CarefulLine(Line):
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
