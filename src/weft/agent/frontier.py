"""The line to the worker, over which a run shares its frontier with others: ``crawls/line.py`` in a thread.

A thread of its own, because a spider may run on any reactor or on none; named pipes, because its walls let it open no
socket. It asks one question at a time, and the same again for as long as nobody answers: a turn that is made twice
does no harm.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

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
