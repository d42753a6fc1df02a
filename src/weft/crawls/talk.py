"""The process's end of the line to its worker: asks, and asks the same again until it is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from weft.crawls import line
from weft.crawls.model import Answer, Question

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0

_answer = msgspec.json.Decoder(Answer).decode
_encode = msgspec.json.Encoder().encode


class HungUp(Exception):
    """The worker is not there any more, so that nobody wants what this process does."""


class Refused(Exception):
    """The control plane says no, and would say so again."""


class Talk:
    """One question at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.problem = ""
        """Why the last question has no answer yet."""

    async def open(self) -> None:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self.path), limit=1 << 20)
        except OSError as problem:
            raise HungUp(f"the worker cannot be reached: {problem}") from problem

    async def ask(self, question: Question, items: bytes = b"") -> Answer:
        """What the worker answers, however long it takes. Raises ``HungUp`` and ``Refused``."""
        head, wait = _encode(question), FIRST_WAIT_SECONDS
        while True:
            answer = await self._once(head, items)
            self.problem = answer.problem
            if not answer.problem:
                return answer
            if answer.fatal:
                raise Refused(answer.problem)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _once(self, head: bytes, items: bytes) -> Answer:
        assert self._reader is not None
        assert self._writer is not None
        try:
            await line.send(self._writer, head, items)
            answer, _ = await line.receive(self._reader)
        except (EOFError, OSError) as problem:
            raise HungUp(f"the worker hung up: {problem}") from problem
        return _answer(answer)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
