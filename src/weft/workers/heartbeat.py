"""The heartbeat, in a thread of its own: a worker whose code is busy keeps its leases all the same."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import WeftError
from weft.workers.protocol import Heartbeat, HeartbeatReply, WorkerProtocol

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""How soon a beat that was not delivered is followed by another."""


@dataclass(slots=True)
class HeartbeatMember:
    """One worker that heartbeats are sent for."""

    worker_id: int
    beat: Callable[[], Heartbeat]
    obey: Callable[[HeartbeatReply], None]
    """Called in the worker's event loop."""
    loop: asyncio.AbstractEventLoop


class Heartbeats:
    """Beats for each of its members every few seconds until they are removed."""

    def __init__(self, protocol: WorkerProtocol, every_seconds: float = 3.0) -> None:
        self._protocol, self._every = protocol, every_seconds
        self._members: dict[int, HeartbeatMember] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="weft-heartbeats", daemon=True)
        self._thread.start()

    def add(self, worker_id: int, beat: Callable[[], Heartbeat], obey: Callable[[HeartbeatReply], None]) -> None:
        member = HeartbeatMember(worker_id, beat, obey, asyncio.get_running_loop())
        self._members[worker_id] = member
        asyncio.run_coroutine_threadsafe(self._beat_forever(member), self._loop)

    def remove(self, worker_id: int) -> None:
        self._members.pop(worker_id, None)

    def close(self) -> None:
        self._members.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel(asyncio.all_tasks(self._loop)))
        self._loop.close()

    async def _beat_forever(self, member: HeartbeatMember) -> None:
        while member.worker_id in self._members:
            delivered = await self._beat_once(member)
            await asyncio.sleep(self._every if delivered else min(self._every, RETRY_SECONDS))

    async def _beat_once(self, member: HeartbeatMember) -> bool:
        try:
            orders = await self._protocol.heartbeat(member.worker_id, member.beat())
        except WeftError as problem:
            log.warning("heartbeat not delivered", extra={"worker_id": member.worker_id, "why": str(problem)})
            return False
        except Exception:  # heartbeats go on, whatever one beat ran into
            log.exception("heartbeat not delivered", extra={"worker_id": member.worker_id})
            return False
        if member.worker_id in self._members and not member.loop.is_closed():
            member.loop.call_soon_threadsafe(self._pass_on, member, orders)
        return True

    def _pass_on(self, member: HeartbeatMember, orders: HeartbeatReply) -> None:
        """Orders may have waited while the worker's loop was busy: those for an id that it has given up are void."""
        if member.worker_id in self._members:
            member.obey(orders)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
