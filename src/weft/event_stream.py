"""The stream of events: one reader of the table for all who listen at this process, and an event as it leaves weft.

It polls only while somebody listens, encodes an event once for all, and drops a listener that is too slow, which comes
back with its last cursor and misses nothing. Each gateway has a stream of its own on one database, so it does not
matter to which one a client returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, iso
from weft.cursor import WINDOW, Cursor
from weft.db.database import Database, Unit
from weft.events import Event
from weft.loops import every, repeat


class EventDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fact: what happened, when and to what."""

    id: int
    at: str | None
    kind: str
    project: str
    """Empty for what belongs to no project, such as a worker."""
    run_id: int | None
    task_id: int | None
    data: dict[str, Any]


def event_document(event: Event) -> EventDocument:
    return EventDocument(
        id=event.id,
        at=iso(event.at),
        kind=event.kind,
        project=event.project,
        run_id=event.run_id,
        task_id=event.task_id,
        data=dict(event.data),
    )


LOOK_SECONDS = 0.05
MOST_READ = 500
"""How many events one look takes."""

MOST_WAITING = 100
"""How many batches a listener may be behind: at least five seconds."""


@dataclass(frozen=True, slots=True)
class EventSelection:
    """Which events somebody listens to; None is all."""

    projects: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    run_id: int | None = None

    def admits(self, event: Event) -> bool:
        return (
            (self.projects is None or event.project in self.projects)
            and (self.kinds is None or event.kind in self.kinds)
            and (self.run_id is None or event.run_id == self.run_id)
        )


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event, its JSON, and the place in the stream right after it."""

    event: Event
    body: bytes
    place: str

    def frame(self) -> bytes:
        """As a server-sent event."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.place.encode(), self.event.kind.encode(), self.body)


class EventBatch:
    """Events that were read together, and the place after the last of them. Listeners share it."""

    __slots__ = ("_chosen", "_frames", "place", "told")

    def __init__(self, told: Sequence[StreamedEvent], place: str) -> None:
        self.told, self.place = told, place
        self._chosen: dict[EventSelection, Sequence[StreamedEvent]] = {}
        self._frames: dict[EventSelection, bytes] = {}

    def chosen(self, wanted: EventSelection) -> Sequence[StreamedEvent]:
        if wanted not in self._chosen:
            self._chosen[wanted] = [told for told in self.told if wanted.admits(told.event)]
        return self._chosen[wanted]

    def frames(self, wanted: EventSelection) -> bytes:
        """The chosen ones as server-sent events: made once for all who want the same."""
        if wanted not in self._frames:
            self._frames[wanted] = b"".join([told.frame() for told in self.chosen(wanted)])
        return self._frames[wanted]


QUIET = EventBatch((), "")
"""Says that nothing has happened for a while."""


class EventListener:
    """Somebody's queue at the tail, and where the tail was when they came."""

    def __init__(self, position: Cursor, idle_seconds: float) -> None:
        self.joined = position.copy()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[EventBatch | None] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._idle, self._quiet_since = idle_seconds, self._loop.time()
        self._alarm = self._loop.call_later(idle_seconds, self._nudge)

    def offer(self, batch: EventBatch) -> bool:
        """Keep a batch for the listener; False, and the end, for one that is too slow."""
        if len(self._waiting) >= MOST_WAITING:
            self.end()
            return False
        self._put(batch)
        return True

    def end(self) -> None:
        """Forget what waits; nothing follows."""
        self._waiting.clear()
        self._put(None)

    def leave(self) -> None:
        self._alarm.cancel()

    async def next(self) -> EventBatch | None:
        """What comes next, or that it is quiet; None at the end."""
        if not self._waiting:
            self._woken = self._loop.create_future()
            await self._woken
        self._quiet_since = self._loop.time()
        return self._waiting.popleft()

    def _put(self, batch: EventBatch | None) -> None:
        self._waiting.append(batch)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _nudge(self) -> None:
        """Look whether it was quiet. The alarm is set anew when it went off, which is cheaper than with each batch."""
        quiet = self._loop.time() - self._quiet_since
        if quiet >= self._idle:
            quiet = 0.0
            if not self._waiting:
                self._put(QUIET)
        self._alarm = self._loop.call_later(self._idle - quiet, self._nudge)


class EventStream:
    """Follows all events while somebody listens."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._position = Cursor()
        self._listeners: set[EventListener] = set()
        self._following: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self.closed = False

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    async def follow(self, since: str | None = None, *, idle_seconds: float = 5.0) -> AsyncGenerator[EventBatch, None]:
        """Every event after the place ``since``, or from now on, in batches; an empty one when nothing has happened,
        and one when all that was before has been given.

        Each batch has the place to come back to. It ends with the process, or where the caller is too slow.
        """
        position = None if since is None else await self._place(since)
        if position is not None:
            async for batch in self._catch_up(position):
                yield batch
        listener = await self._join(idle_seconds)
        try:
            if position is not None:
                async for batch in self._catch_up(position):
                    yield batch
                position.join(listener.joined)
            place = str(position or listener.joined)
            yield EventBatch((), place)
            while (shared := await listener.next()) is not None:
                batch = shared if position is None else self._rest(shared, position)
                if batch.place == shared.place:
                    position = None
                place = batch.place or place
                yield batch if batch.place else EventBatch((), place)
        finally:
            self._leave(listener)

    def close(self) -> None:
        """Send everybody away, to come back elsewhere."""
        self.closed = True
        for listener in list(self._listeners):
            listener.end()

    async def tick(self) -> int:
        """Pass on what is new; return how much."""
        count = 0
        while True:
            found = await self._db.read(self._beyond(self._position))
            batch = self._batch(found, self._position)
            if batch.told:
                self._listeners = {listener for listener in self._listeners if listener.offer(batch)}
            self._position.give_up(self._clock())
            count += len(batch.told)
            if len(found) < MOST_READ:
                return count

    async def _place(self, since: str) -> Cursor | None:
        """The position of that name; None where it cannot be one of this database, which was made anew since."""
        position = Cursor.parse(since, self._clock())
        return position if position.high <= await self._db.read(events.last_id) else None

    async def _catch_up(self, position: Cursor) -> AsyncIterator[EventBatch]:
        while True:
            found = await self._db.read(self._beyond(position))
            batch = self._batch(found, position)
            if batch.told:
                yield batch
            if len(found) < MOST_READ:
                return

    async def _join(self, idle_seconds: float) -> EventListener:
        async with self._beginning:
            if self._following is None:
                self._position = await self._end()
                self._following = asyncio.create_task(repeat("follow events", self.tick, every(LOOK_SECONDS)))
        listener = EventListener(self._position, idle_seconds)
        self._listeners.add(listener)
        if self.closed:
            listener.end()
        return listener

    def _leave(self, listener: EventListener) -> None:
        listener.leave()
        self._listeners.discard(listener)
        if not self._listeners and self._following is not None:
            self._following.cancel()
            self._following = None

    async def _end(self) -> Cursor:
        newest = await self._db.read(lambda tx: events.newest_ids(tx, WINDOW))
        return Cursor.at_end(newest, self._clock())

    def _beyond(self, position: Cursor) -> Unit[list[Event]]:
        high, missing = position.high, position.missing
        return lambda tx: events.beyond(tx, high, missing, MOST_READ)

    def _batch(self, found: Sequence[Event], position: Cursor) -> EventBatch:
        return self._new(((event, encode(event_document(event))) for event in found), position)

    def _rest(self, shared: EventBatch, position: Cursor) -> EventBatch:
        """What of a shared batch is new to a listener that came with a place of its own."""
        position.give_up(self._clock())
        return self._new(((told.event, told.body) for told in shared.told), position)

    def _new(self, found: Iterable[tuple[Event, bytes]], position: Cursor) -> EventBatch:
        now = self._clock()
        told = [
            StreamedEvent(event, body, str(position)) for event, body in found if position.take(event.id, event.at, now)
        ]
        return EventBatch(told, str(position))


encode = msgspec.json.Encoder().encode
