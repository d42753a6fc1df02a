"""The connection pool: limits for each server and in all, none idle for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from weft.fetching.dialling import Dialler, ServerRoute
from weft.fetching.http1 import Http1Connection
from weft.fetching.http2 import Http2Connection
from weft.fetching.model import FetchError

HttpConnection = Http1Connection | Http2Connection


class RouteConnections:
    """The connections of one route."""

    __slots__ = ("idle", "open", "shared", "unsure", "waiters")

    def __init__(self, unsure: bool) -> None:
        self.idle: list[Http1Connection] = []
        self.shared: Http2Connection | None = None
        """The connection that has room for many requests at once."""
        self.unsure = unsure
        """Nobody knows yet whether the server has such: one connection is made first."""
        self.open = 0
        self.waiters: deque[asyncio.Future[None]] = deque()


class ConnectionPool:
    """Gives a connection to one who asks, and takes it back."""

    def __init__(self, dialler: Dialler, *, per_host: int, most: int, most_idle: int, idle_seconds: float) -> None:
        self._dialler, self._per_host, self._most = dialler, per_host, most
        self._most_idle, self._idle_seconds = most_idle, idle_seconds
        self._lanes: dict[str, RouteConnections] = {}
        self._idle: dict[HttpConnection, None] = {}
        """Those that have been idle for longest come first."""
        self._open = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections there are, idle ones as well."""
        return self._open

    async def take(self, route: ServerRoute, *, fresh: bool = False) -> HttpConnection:
        """A connection with room, or a new one, or, where there may be no more, the next that is given back."""
        while not self._closed:
            if not fresh and (connection := self.take_now(route)) is not None:
                return connection
            lane = self._lanes.get(route.key) or self._lanes.setdefault(
                route.key, RouteConnections(self._dialler.may_share(route))
            )
            if lane.shared is not None and lane.shared.has_room:
                return self._join(lane.shared)
            if self._is_full(lane):
                await self._wait(lane.waiters)
            elif self._open >= self._most and not self._drop(next(iter(self._idle), None)):
                await self._wait(self._waiters)
            else:
                return await self._dial(route, lane)
        raise FetchError("cut", "weft is being stopped")

    def take_now(self, route: ServerRoute) -> HttpConnection | None:
        """A connection with room; None: there is none."""
        lane = self._lanes.get(route.key)
        if lane is None:
            return None
        if lane.idle:
            return self._join(lane.idle.pop())
        return self._join(lane.shared) if lane.shared is not None and lane.shared.has_room else None

    def give_back(self, connection: HttpConnection) -> None:
        """It is idle from now on, unless it has ended or others use it too."""
        connection.busy -= 1
        if connection.busy:
            self._wake_for(connection)
            return
        if connection.closed or self._closed:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[connection] = None
        if isinstance(connection, Http1Connection):
            self._lanes[connection.route.key].idle.append(connection)
        self._wake_for(connection)
        if len(self._idle) > self._most_idle:
            self._drop(next(iter(self._idle)))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._end_idle)

    def lost(self, connection: HttpConnection) -> None:
        """It has ended."""
        if not connection.counted:
            return
        connection.counted = False
        lane = self._lanes[connection.route.key]
        if connection in self._idle:
            del self._idle[connection]
            if isinstance(connection, Http1Connection):
                lane.idle.remove(connection)
        if connection is lane.shared:
            lane.shared = None
        self._uncount(connection.route, lane)

    async def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._idle):
            connection.close()
        for lane in list(self._lanes.values()):
            if lane.shared is not None:
                lane.shared.close()
            _wake_all(lane.waiters)
        _wake_all(self._waiters)
        await asyncio.sleep(0)

    def _is_full(self, lane: RouteConnections) -> bool:
        """Whether one must wait until a connection of this route has room."""
        if lane.shared is not None and not lane.shared.closed:
            return True
        if lane.unsure and lane.open:
            return True
        return lane.open >= self._per_host and not self._drop(lane.idle[0] if lane.idle else None)

    def _join(self, connection: HttpConnection) -> HttpConnection:
        connection.busy += 1
        self._idle.pop(connection, None)
        return connection

    async def _dial(self, route: ServerRoute, lane: RouteConnections) -> HttpConnection:
        with self._counted(route, lane):
            made, address = await self._dialler.dial(
                route, lambda agreed: Http2Connection(self, route) if agreed == "h2" else Http1Connection(self, route)
            )
            assert isinstance(made, Http1Connection | Http2Connection)
            if made.closed:
                raise FetchError("cut", "the connection was closed as soon as it was made")
            made.address, made.counted, made.busy = address, True, 1
        if isinstance(made, Http2Connection):
            lane.shared = made
        if lane.unsure:
            lane.unsure = False
            _wake_all(lane.waiters)
        return made

    @contextmanager
    def _counted(self, route: ServerRoute, lane: RouteConnections) -> Iterator[None]:
        """A connection counts from the moment that it is being made."""
        lane.open += 1
        self._open += 1
        try:
            yield
        except BaseException:
            self._uncount(route, lane)
            raise

    def _uncount(self, route: ServerRoute, lane: RouteConnections) -> None:
        lane.open -= 1
        self._open -= 1
        self._wake(lane)
        if not lane.open:
            self._lanes.pop(route.key, None)  # whoever waits finds or makes another
            _wake_all(lane.waiters)

    def _drop(self, connection: HttpConnection | None) -> bool:
        """End one that is idle, to make room; False: there is none."""
        if connection is None:
            return False
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

    def _wake_for(self, connection: HttpConnection) -> None:
        if connection.counted:
            self._wake(self._lanes[connection.route.key])

    def _wake(self, lane: RouteConnections) -> None:
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
        self._sweep = loop.call_later(max(self._idle_seconds / 2, 0.05), self._end_idle) if self._idle else None


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


def _wake_all(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        _wake_one(waiters)
