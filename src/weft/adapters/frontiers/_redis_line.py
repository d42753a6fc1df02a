"""The line to a Redis that keeps a frontier: scripts by name, a deadline for each answer, a new line after a break."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Any

from msgspec import msgpack

from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.adapters.frontiers._records import UNSEEN
from weft.errors import FrontierDown, FrontierLost

ANSWER_SECONDS = 15.0
FIRST_PART = 5
"""Where the parts begin among the arguments of a script."""


@cache
def source_of(script: str) -> tuple[str, str]:
    """A script and the name that Redis knows it by."""
    folder = resources.files(__package__ or "")
    text = "\n".join((folder / f"_{part}.lua").read_text() for part in ("records", script))
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisLine:
    """One connection, opened when it is needed. Answers come in the order of the questions, so many may share it."""

    def __init__(self, address: Address, prefix: str) -> None:
        self._address, self._prefix = address, prefix
        self.name = f"redis://{address.host}:{address.port}/{address.database}"
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def run(self, script: str, now: int, arguments: dict[str, Any], parts: Sequence[bytes] = ()) -> Any:
        """What a script answers; Redis is told of it where it does not know it, as after a restart.

        Bytes go beside the arguments, as parts: what Redis unpacks must be text.
        """
        text, digest = source_of(script)
        rest: Command = (0, self._prefix, now, msgpack.encode(arguments), UNSEEN, *parts)
        try:
            return (await self._asked([("EVALSHA", digest, *rest)]))[0]
        except ReplyError as refusal:
            if refusal.code != "NOSCRIPT":
                raise self._error(refusal) from refusal
        try:
            return (await self._asked([("EVAL", text, *rest)]))[0]
        except ReplyError as refusal:
            raise self._error(refusal) from refusal

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to commands that are sent in one go."""
        try:
            return await self._asked(commands)
        except ReplyError as refusal:
            raise self._error(refusal) from refusal

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _asked(self, commands: Sequence[Command]) -> list[Any]:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await self._opened()
                return await connection.pipeline(commands)
        except OSError as fault:  # a timeout is one
            if connection is not None:
                connection.abort()  # an answer that comes late would be taken for that of the next question
            raise FrontierDown(self.name, str(fault) or "it took too long") from fault

    async def _opened(self) -> Connection:
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await Connection.open(self._address)
            return self._connection

    def _error(self, refusal: ReplyError) -> FrontierDown:
        lost = refusal.code == "LOST"
        return FrontierLost(self.name, str(refusal).partition(" ")[2]) if lost else FrontierDown(self.name, refusal)
