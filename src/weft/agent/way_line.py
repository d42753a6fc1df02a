"""The line of a spider to its worker about permits and proxies, and how to wait for an answer on any reactor."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from . import engine
from .frontier import WAYS, Line

FOLDER = ".."
"""Where the pipes to the worker are, seen from the folder in which a spider begins."""
HELLO_SECONDS, GOODBYE_SECONDS = 10.0, 5.0
LINE = "_weft_way_line"


class NoWorker(Exception):
    def __init__(self) -> None:
        super().__init__("permits and proxies of weft work in runs of weft only")


class WayLine:
    """One for each crawl, opened when it is first asked."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._line: Line | None = None

    @classmethod
    def of(cls, crawler: Any) -> WayLine:
        """The line of a crawl, whoever asks first."""
        found = getattr(crawler, LINE, None)
        if found is None:
            folder = crawler.settings.get("WAYS_FOLDER") or os.path.abspath(FOLDER)
            if not os.path.exists(os.path.join(folder, WAYS[0])):
                raise NoWorker
            found = cls(folder)
            setattr(crawler, LINE, found)
        return found

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the worker answers, however long that takes."""
        answer = promise()
        self._opened().ask_all(question, answer.keep)
        return await answer.kept  # type: ignore[no-any-return]

    def tell(self, question: dict[str, Any]) -> None:
        self._opened().ask_all(question, lambda _: None)

    def close(self) -> None:
        if self._line is not None:
            self._line.hush(GOODBYE_SECONDS)
            self._line.close()
            self._line = None

    def _opened(self) -> Line:
        if self._line is None:
            self._line = Line(self._folder, engine.from_thread(), WAYS)
            self._line.open(HELLO_SECONDS)
        return self._line


class Promise:
    """Something that a coroutine of Scrapy can wait for: a future, or a Deferred where no asyncio loop runs."""

    def __init__(self, kept: Any, keep: Any) -> None:
        self.kept, self._keep = kept, keep

    def keep(self, value: Any = None) -> None:
        self._keep(value)


def promise() -> Promise:
    try:
        future = asyncio.get_running_loop().create_future()
    except RuntimeError:
        from twisted.internet.defer import Deferred

        deferred: Any = Deferred()
        return Promise(deferred, deferred.callback)

    def keep(value: Any) -> None:
        if not future.done():
            future.set_result(value)

    return Promise(future, keep)


async def pause(seconds: float) -> None:
    """Wait, on whatever the crawl runs on."""
    over = promise()
    engine.later(seconds, over.keep)
    await over.kept
