"""The socket from a spider to its worker: turns of a shared frontier, permits and proxies."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from . import engine

LENGTHS = struct.Struct(">II")
LARGEST = 64 << 20
FRONTIER, WAYS = ("frontier.ask", "frontier.answer"), ("ways.ask", "ways.answer")
"""Pairs of pipes in the run's folder, for questions and answers: about the frontier, and about permits and proxies."""
RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0

Turn = dict[str, Any]
Answer = dict[str, Any]
Then = Callable[[Answer], None]


class Unreachable(Exception):
    """Nobody answers at the other end of the line."""

    def __init__(self, folder: str, why: object) -> None:
        super().__init__(f"the frontier does not answer in {folder} ({why})")


class Line:
    """``call`` runs a function in the thread of the crawl."""

    def __init__(self, folder: str, call: Callable[..., Any], pipes: tuple[str, str] = FRONTIER) -> None:
        self._folder, self._call, self._names = folder, call, pipes
        self._questions: SimpleQueue[tuple[bytes, Then] | None] = SimpleQueue()
        self._answers: deque[tuple[Then, Answer]] = deque()
        self._unanswered = b""
        self._pipes: tuple[int, int] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._answer_all, name="weft-frontier", daemon=True)

    def open(self, patience_seconds: float) -> None:
        """Say hello. Raises ``Unreachable``."""
        self._persist(_frame({"asked": None}), time.monotonic() + patience_seconds)
        self._thread.start()

    def ask(self, turn: Turn, then: Then) -> None:
        """Have a turn made; ``then`` gets the answer, in the thread of the crawl."""
        self.ask_all({"asked": turn}, then)

    def ask_all(self, question: dict[str, Any], then: Then) -> None:
        """Ask anything."""
        self._questions.put((_frame(question), then))

    def hush(self, patience_seconds: float) -> bool:
        """Ask nothing more by itself, and hand over what was answered already; False where a question is still open."""
        if not self._closing.is_set():
            self._closing.set()
            self._questions.put(None)
        if self._thread.is_alive():
            self._thread.join(patience_seconds)
        self._deliver()
        return not self._thread.is_alive()

    def settle(self, turn: Turn, patience_seconds: float) -> Answer | None:
        """A turn after ``hush``: wait for its answer. None where none came in time.

        What was never answered is asked before: it may have the links of a page that this turn says is done.
        """
        deadline = time.monotonic() + patience_seconds
        try:
            if self._unanswered:
                self._persist(self._unanswered, deadline)
                self._unanswered = b""
            return self._persist(_frame({"asked": turn}), deadline)
        except Unreachable:
            return None

    def close(self) -> None:
        if self.hush(0):
            self._hang_up()

    def _answer_all(self) -> None:
        while True:
            asked = self._questions.get()
            if asked is None:
                return
            question, then = asked
            try:
                answer = self._persist(question, None)
            except Unreachable:  # it is closing
                self._unanswered = question
                return
            self._answers.append((then, answer))
            self._call(self._deliver)

    def _deliver(self) -> None:
        while self._answers:
            then, answer = self._answers.popleft()
            then(answer)

    def _persist(self, question: bytes, deadline: float | None) -> Answer:
        """Ask until there is an answer; without a deadline until the line is closed."""
        wait = RETRY_SECONDS
        while True:
            answer = self._try(question)
            if not answer.get("problem") or answer.get("fatal"):
                return answer
            over = self._closing.is_set() if deadline is None else time.monotonic() + wait > deadline
            if over:
                raise Unreachable(self._folder, answer["problem"])
            self._closing.wait(wait) if deadline is None else time.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY_SECONDS)

    def _try(self, question: bytes) -> Answer:
        try:
            if self._pipes is None:
                self._pipes = _opened(self._folder, self._names)
            writes, reads = self._pipes
            _send(writes, question)
            head, tail = LENGTHS.unpack(_received(reads, LENGTHS.size))
            answer: Answer = json.loads(_received(reads, head))
            _received(reads, tail)
        except (OSError, ValueError) as error:
            self._hang_up()
            return {"problem": str(error)}
        return answer

    def _hang_up(self) -> None:
        for end in self._pipes or ():
            os.close(end)
        self._pipes = None


def _frame(question: dict[str, Any]) -> bytes:
    words = json.dumps(question, separators=(",", ":")).encode()
    return LENGTHS.pack(len(words), 0) + words


def _opened(folder: str, names: tuple[str, str]) -> tuple[int, int]:
    """Where to write questions and where to read answers; an error where the worker has neither open."""
    ends = []
    try:
        for name, way in zip(names, (os.O_WRONLY, os.O_RDONLY)):  # noqa: B905 - Python 3.9
            ends.append(os.open(os.path.join(folder, name), way | os.O_NONBLOCK | os.O_CLOEXEC))
            os.set_blocking(ends[-1], True)
    except OSError:
        for end in ends:
            os.close(end)
        raise
    return ends[0], ends[1]


def _send(pipe: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]


def _received(pipe: int, count: int) -> bytes:
    if count > LARGEST:
        raise ValueError(f"a frame of {count} bytes")
    parts = []
    while count:
        part = os.read(pipe, min(count, 1 << 20))
        if not part:
            raise ConnectionError("the worker has hung up")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


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
