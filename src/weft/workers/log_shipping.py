"""Ships what runs print while they run, so that others can read along, and a worker's death costs little of it."""

from __future__ import annotations

import logging
from collections.abc import Collection

from weft.errors import WeftError
from weft.workers.attempt import Running
from weft.workers.protocol import LogChunk, WorkerProtocol

log = logging.getLogger(__name__)


async def ship_all(protocol: WorkerProtocol, worker_id: int, running: Collection[Running]) -> None:
    """Ship what was printed until now, however much that is; what does not come through is for the next time."""
    left = {each: each.log.written for each in running if each.log.written > each.log.shipped}
    while left and await _ship(protocol, worker_id, list(left)):
        left = {each: until for each, until in left.items() if each.log.shipped < until}


async def _ship(protocol: WorkerProtocol, worker_id: int, running: Collection[Running]) -> bool:
    """Ship the next piece of each; whether that came through."""
    pieces = [(each, data) for each in running if (data := each.log.unshipped())]
    chunks = [LogChunk(each.lease.run_id, each.lease.attempt, each.log.seq, data) for each, data in pieces]
    try:
        if chunks:
            await protocol.ship(worker_id, chunks)
    except WeftError as problem:
        log.warning("logs not shipped yet", extra={"worker_id": worker_id, "why": str(problem)})
        return False
    except Exception:  # logs go on, whatever one delivery ran into
        log.exception("logs not shipped yet", extra={"worker_id": worker_id})
        return False
    for each, data in pieces:
        each.log.mark_shipped(data)
    return bool(chunks)
