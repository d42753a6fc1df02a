"""Looking up names as this machine does it, in threads of its own.

The call for it waits, sometimes for half a minute. In the threads that everything shares a few dead names would hold up
all others; and a thread that the interpreter waits for at its end would hold up the end of a crawl.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from queue import Empty, SimpleQueue

MOST_AT_ONCE = 32
IDLE_SECONDS = 10.0

Asked = tuple[asyncio.AbstractEventLoop, "asyncio.Future[list[str]]", str, int]


class SystemResolver:
    """Starts a thread where all others are busy; one that has nothing to do for a while ends."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Asked] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._pending = 0
        """Names that are looked up or wait for it."""

    async def resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()
        with self._lock:
            self._pending += 1
            more = self._pending > self._threads and self._threads < MOST_AT_ONCE
            self._threads += more
            self._asked.put((loop, answer, host, port))  # in here, so that no thread ends that was counted on
        if more:
            threading.Thread(target=self._look_up_forever, name="names", daemon=True).start()
        return await answer

    def _look_up_forever(self) -> None:
        while True:
            try:
                asked = self._asked.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._asked.empty():
                        self._threads -= 1
                        return
                continue
            _look_up(*asked)
            with self._lock:
                self._pending -= 1


def _look_up(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[list[str]], host: str, port: int) -> None:
    found: list[str] | OSError
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(address[0]) for *_, address in infos))
    except OSError as problem:
        found = problem
    except UnicodeError as problem:
        found = OSError(f"it is no name: {problem}")
    try:
        loop.call_soon_threadsafe(_settle, answer, found)
    except RuntimeError:
        pass  # the loop has ended, and with it whoever waited


def _settle(answer: asyncio.Future[list[str]], found: list[str] | OSError) -> None:
    if answer.done():
        return
    if isinstance(found, OSError):
        answer.set_exception(found)
    else:
        answer.set_result(found)
