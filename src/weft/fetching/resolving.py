"""Resolves host names in threads of its own, and checks each address before anybody connects to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import OrderedDict
from queue import Empty, SimpleQueue
from typing import Protocol

from weft.address_guard import Guard, RefusedAddress, literal
from weft.fetching.model import FetchError

MOST_AT_ONCE = 32
IDLE_SECONDS = 10.0

Lookup = tuple[asyncio.AbstractEventLoop, "asyncio.Future[list[str]]", str, int]


class SystemResolver:
    """Starts a thread where all others are busy; one that has nothing to do for a while ends."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Lookup] = SimpleQueue()
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


KEPT_SECONDS = 60.0
MOST_KEPT = 10_000
MOST_ADDRESSES = 50


class Resolver(Protocol):
    """Finds the addresses of a name."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """In figures, best first; raises ``OSError`` where there are none."""


class CheckedResolver:
    """Addresses of names, each looked up once a minute and each checked, so that what is connected to was checked.

    A name with one closed address among open ones is closed: who made it means no good.
    """

    def __init__(self, guard: Guard, resolver: Resolver | None = None) -> None:
        self._guard, self._resolver = guard, resolver or SystemResolver()
        self._known: OrderedDict[tuple[str, int], tuple[float, list[str]]] = OrderedDict()

    async def addresses(self, host: str, port: int) -> list[str]:
        """``FetchError`` where there are none, or where one is closed."""
        now = asyncio.get_running_loop().time()
        known = self._known.get((host, port))
        if known is not None and known[0] > now:
            return known[1]
        found = await self._look_up(host, port)
        self._known[host, port] = (now + KEPT_SECONDS, found)
        if len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return found

    def check(self, address: str) -> None:
        """Once more, what a socket says it is connected to."""
        try:
            self._guard.check(address)
        except RefusedAddress as problem:
            raise FetchError("refused_address", str(problem)) from problem

    async def _look_up(self, host: str, port: int) -> list[str]:
        try:
            self._guard.check_name(host)
            found = [host] if literal(host) is not None else await self._resolver.resolve(host, port)
            for address in found:
                self._guard.check(address)
        except RefusedAddress as problem:
            why = str(problem) if host in str(problem) else f"{host}: {problem}"
            raise FetchError("refused_address", why) from problem
        except (OSError, UnicodeError) as problem:
            raise FetchError("name", f"there is no host {host} ({problem})") from problem
        if not found:
            raise FetchError("name", f"there is no host {host}")
        return found[:MOST_ADDRESSES]
