"""A further line of a process that crawls to its worker: what is asked here does not wait for turns of the frontier."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weft.crawls.line import SOCKET
from weft.crawls.model import Answer, Question
from weft.crawls.talk import Talk


class SideLine:
    """Opened when the first question is asked. Any number may ask; each waits for those before it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(SOCKET)
        self._talk: Talk | None = None
        self._asking = asyncio.Lock()

    async def ask(self, question: Question) -> Answer:
        async with self._asking:
            if self._talk is None:
                talk = Talk(self._path)
                await talk.open()
                self._talk = talk
            return await self._talk.ask(question)

    async def close(self) -> None:
        if self._talk is not None:
            await self._talk.close()
