"""Wake-up messages as they are sent, and the waiters of this process, which every broker wakes through this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from weft import clock
from weft.envelope import Envelope
from weft.errors import Invalid

ACTION = "runs_ready"
LARGEST = 7900
"""Bytes in one hint: PostgreSQL carries less than 8000."""

_ROOM = LARGEST - 200


def encode(queues: Mapping[str, int]) -> bytes:
    """One hint, however long."""
    return Envelope.of(ACTION, {"queues": dict(queues)}, at=clock.now()).encode()


def encode_parts(queues: Mapping[str, int]) -> list[bytes]:
    """As many hints as are needed for each to stay within ``LARGEST``."""
    return [encode(part) for part in _parts(queues)]


def decode(data: bytes) -> dict[str, int]:
    """Which queues were rung, and for how many runs. None named means: any of them. Raises ``Invalid``."""
    envelope = Envelope.decode(data)
    try:
        return msgspec.convert(envelope.payload.get("queues"), dict[str, int])
    except msgspec.ValidationError as error:
        raise Invalid("the hint", data, f"its payload must have queues with a count each ({error})") from error


def _parts(queues: Mapping[str, int]) -> Iterator[dict[str, int]]:
    part: dict[str, int] = {}
    size = 0
    for queue, count in queues.items():
        length = len(msgspec.json.encode(queue)) + len(str(count)) + 2
        if length > _ROOM:
            yield {}  # a name that fits nowhere: let everyone look
            continue
        if size + length > _ROOM:
            yield part
            part, size = {}, 0
        part[queue] = count
        size += length
    if part:
        yield part


REMEMBERED = 32
"""How many rings of a queue are kept for those who come too late to hear them."""

FRESH_SECONDS = 5.0
"""How long they are kept: a worker looks before it waits, so what is older it has seen."""

MOST_QUEUES = 1000
"""How many queues may have rings that nobody heard; beyond it the oldest are forgotten."""

Waiter = asyncio.Future[str | None]


@dataclass(frozen=True, slots=True)
class MissedWakeups:
    """Rings that came while nobody waited."""

    count: int
    until: float


class Waiters:
    """The waiting calls of one process, first come first served."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.changed = asyncio.Event()
        """Set whenever a queue gets its first waiter or loses its last; cleared by the one who watches it."""

        self._of_queue: dict[str, dict[Waiter, None]] = {}
        self._queues_of: dict[Waiter, Collection[str]] = {}
        self._unheard: dict[str, MissedWakeups] = {}
        self.closed = False
        self._now = now

    @property
    def queues(self) -> frozenset[str]:
        """The queues that someone waits for."""
        return frozenset(self._of_queue)

    def __len__(self) -> int:
        return len(self._queues_of)

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        """Return True once one of ``queues`` is rung, False after ``timeout`` seconds or when closed."""
        if self.closed or self._recall(queues):
            return not self.closed
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        self._enter(waiter, queues)
        alarm = loop.call_later(timeout, self._wake, waiter, None)
        try:
            return await waiter is not None
        except asyncio.CancelledError:
            self._pass_on(waiter)
            raise
        finally:
            alarm.cancel()
            self._leave(waiter)

    def ring(self, queue: str, count: int = 1) -> None:
        """Wake up to ``count`` waiters of ``queue``; where nobody waits, remember it for those to come."""
        if not self.offer(queue, max(1, count)):
            self._remember(queue, count)

    def offer(self, queue: str, count: int) -> int:
        """Wake up to ``count`` waiters of ``queue`` and return how many; nothing is remembered."""
        waking = list(islice(self._of_queue.get(queue, ()), count))
        for waiter in waking:
            self._wake(waiter, queue)
        return len(waking)

    def wake_all(self) -> None:
        """Let everyone look once: rings may have been missed."""
        for waiter in list(self._queues_of):
            self._wake(waiter, "")

    def close(self) -> None:
        self.closed = True
        for waiter in list(self._queues_of):
            self._wake(waiter, None)

    def _enter(self, waiter: Waiter, queues: Collection[str]) -> None:
        self._queues_of[waiter] = queues = frozenset(queues)
        for queue in queues:
            if queue not in self._of_queue:
                self._of_queue[queue] = {}
                self.changed.set()
            self._of_queue[queue][waiter] = None

    def _leave(self, waiter: Waiter) -> None:
        for queue in self._queues_of.pop(waiter, ()):
            del self._of_queue[queue][waiter]
            if not self._of_queue[queue]:
                del self._of_queue[queue]
                self.changed.set()

    def _wake(self, waiter: Waiter, rung: str | None) -> None:
        self._leave(waiter)
        if not waiter.done():
            waiter.set_result(rung)

    def _pass_on(self, waiter: Waiter) -> None:
        """Give the ring of a waiter that was cancelled just as it woke to the next one."""
        if waiter.done() and not waiter.cancelled() and (queue := waiter.result()):
            self.ring(queue)

    def _remember(self, queue: str, count: int) -> None:
        known = self._unheard.pop(queue, None)
        fresh = known.count if known and known.until > self._now() else 0
        total = min(REMEMBERED, fresh + max(1, count))
        self._unheard[queue] = MissedWakeups(total, self._now() + FRESH_SECONDS)
        if len(self._unheard) > MOST_QUEUES:
            del self._unheard[next(iter(self._unheard))]

    def _recall(self, queues: Collection[str]) -> bool:
        """Use up one ring that came before."""
        for queue in queues:
            known = self._unheard.pop(queue, None)
            if known and known.until > self._now():
                if known.count > 1:
                    self._unheard[queue] = MissedWakeups(known.count - 1, known.until)
                return True
        return False
