"""The SQL of pauses. A run that is held waits for a moment that never comes."""

from __future__ import annotations

from sqlalchemy import and_, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import HELD, RunState

runs = schema.runs


def ask(tx: Transaction, run_id: int) -> None:
    """Leave word that the run is to pause; the next heartbeat of its worker reads it."""
    tx.execute(update(runs).where(runs.c.id == run_id).values(pause_requested=True))


def take_back(tx: Transaction, run_id: int) -> bool:
    """Forget that word; False where nobody has left it."""
    asked = and_(runs.c.id == run_id, runs.c.pause_requested.is_(True))
    return tx.execute(update(runs).where(asked).values(pause_requested=None)).rowcount == 1


def hold(tx: Transaction, run_id: int, until: Moment = HELD) -> bool:
    """Hold a queued run back."""
    queued = and_(runs.c.id == run_id, runs.c.state == RunState.QUEUED.value)
    return tx.execute(update(runs).where(queued).values(ready_lane=None, not_before=until)).rowcount == 1


def let_go(tx: Transaction, run_id: int) -> bool:
    """Make a held run ready."""
    held = and_(runs.c.id == run_id, runs.c.state == RunState.QUEUED.value, runs.c.not_before == HELD)
    return tx.execute(update(runs).where(held).values(ready_lane=runs.c.lane_id, not_before=None)).rowcount == 1


def lane_of(tx: Transaction, run_id: int) -> int:
    return int(tx.value(select(runs.c.lane_id).where(runs.c.id == run_id)))
