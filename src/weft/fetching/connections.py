"""Connections that are kept: at most so many to a server, at most so many in all, none idle for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from weft.fetching.dialling import Dialler, Route
from weft.fetching.exchange import NoAnswer
from weft.fetching.http1 import Http1

Connection = Http1


class Lane:
    """The connections of one route."""

    __slots__ = ("idle", "open", "waiters")

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.open = 0
        self.waiters: deque[asyncio.Future[None]] = deque()


class Pool:
    """Gives a connection to one who asks, and takes it back."""

    def __init__(self, dialler: Dialler, *, per_host: int, most: int, idle_seconds: float) -> None:
        self._dialler, self._per_host, self._most, self._idle_seconds = dialler, per_host, most, idle_seconds
        self._lanes: dict[Route, Lane] = {}
        self._idle: dict[Connection, None] = {}
        """Those that have been idle for longest come first."""
        self._open = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections there are, idle ones as well."""
        return self._open

    async def take(self, route: Route, *, fresh: bool = False) -> Connection:
        """A connection that is idle, or a new one, or, where there may be no more, the next that is given back."""
        lane = self._lanes.get(route) or self._lanes.setdefault(route, Lane())
        while not self._closed:
            if lane.idle and not fresh:
                connection = lane.idle.pop()
                del self._idle[connection]
                return connection
            if lane.open >= self._per_host and not self._drop(lane.idle):
                await self._wait(lane.waiters)
            elif self._open >= self._most and not self._drop(list(self._idle)[:1]):
                await self._wait(self._waiters)
            else:
                return await self._dial(route, lane)
        raise NoAnswer("cut", "weft is being stopped")

    def give_back(self, connection: Connection) -> None:
        """It is idle from now on, unless it has ended."""
        lane = self._lanes[connection.route]
        if not connection.reusable or self._closed:
            connection.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        lane.idle.append(connection)
        self._idle[connection] = None
        if lane.waiters or self._waiters:
            self._wake(lane)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def lost(self, connection: Connection) -> None:
        """It has ended."""
        if not connection.counted:
            return
        connection.counted = False
        lane = self._lanes[connection.route]
        if connection in self._idle:
            del self._idle[connection]
            lane.idle.remove(connection)
        self._uncount(connection.route, lane)

    async def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._idle):
            connection.close()
        for waiter in (*self._waiters, *(each for lane in self._lanes.values() for each in lane.waiters)):
            if not waiter.done():
                waiter.set_result(None)
        await asyncio.sleep(0)

    async def _dial(self, route: Route, lane: Lane) -> Connection:
        with self._counted(route, lane):
            made, address = await self._dialler.dial(route, lambda agreed: Http1(self, route))
            assert isinstance(made, Http1)
            made.address, made.counted = address, True
            return made

    @contextmanager
    def _counted(self, route: Route, lane: Lane) -> Iterator[None]:
        """A connection counts from the moment that it is being made."""
        lane.open += 1
        self._open += 1
        try:
            yield
        except BaseException:
            self._uncount(route, lane)
            raise

    def _uncount(self, route: Route, lane: Lane) -> None:
        lane.open -= 1
        self._open -= 1
        self._wake(lane)
        if not lane.open and not lane.waiters:
            self._lanes.pop(route, None)

    def _drop(self, idle: list[Connection]) -> bool:
        """End one that is idle, to make room; False: there is none."""
        if not idle:
            return False
        connection = idle[0]
        self.lost(connection)
        connection.close()
        return True

    async def _wait(self, waiters: deque[asyncio.Future[None]]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                _wake_one(waiters)
            raise

    def _wake(self, lane: Lane) -> None:
        _wake_one(lane.waiters)
        _wake_one(self._waiters)

    def _end_idle(self) -> None:
        """End those that nobody has wanted for a while."""
        loop = asyncio.get_running_loop()
        since = loop.time() - self._idle_seconds
        for connection in list(self._idle):
            if connection.idle_since > since:
                break
            connection.close()
        left = len(self._idle) > 0
        self._sweep = loop.call_later(max(self._idle_seconds / 2, 0.05), self._end_idle) if left else None


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return
