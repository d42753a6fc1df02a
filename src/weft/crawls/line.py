"""The line between a process that crawls and its worker: a Unix socket in the run's folder.

A frame is two lengths (JSON, then bytes that follow it) of four bytes each, big end first, then both. The process asks,
the worker answers, one at a time. ``agent/frontier.py`` speaks the same without anything else of weft.
"""

from __future__ import annotations

import asyncio
import struct

SOCKET = "frontier.sock"
"""Its name in the run's folder. A process connects by that name alone, from within the folder: paths of sockets must be
short."""

LENGTHS = struct.Struct(">II")
LARGEST = 64 << 20
"""Bytes of either part; who sends more is not listened to."""


async def receive(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One frame. Raises ``EOFError`` where the other side has hung up."""
    head, tail = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if head > LARGEST or tail > LARGEST:
        raise EOFError(f"a frame of {head} and {tail} bytes")
    return await reader.readexactly(head), await reader.readexactly(tail) if tail else b""


async def send(writer: asyncio.StreamWriter, head: bytes, tail: bytes = b"") -> None:
    writer.write(LENGTHS.pack(len(head), len(tail)) + head + tail)
    await writer.drain()
