"""What the rest of weft stands on: the database, the doorbell, the blobs, and the runs that are in them.

Whoever only looks at runs opens no more than this, and has not the rest to load.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.adapters import registry
from weft.clock import Clock, now
from weft.config import Config
from weft.db.database import Database, open_database
from weft.db.migrate import migrate, refuse_unsafe
from weft.ports import Blobs, Broker
from weft.runs.bell import Bell
from weft.runs.runs import Runs


@dataclass(frozen=True, slots=True)
class Roots:
    """What is open while weft is."""

    db: Database
    broker: Broker
    blobs: Blobs
    bell: Bell
    runs: Runs

    async def close(self) -> None:
        await self.bell.flush()
        await self.broker.close()
        self.db.close()


def open_roots(config: Config, clock: Clock = now) -> Roots:
    """Open the database (creating or upgrading it), the broker and the blobs."""
    db = open_database(config.database_url)
    try:
        refuse_unsafe(db.engine, allowed=config.allow_unsafe_database)
        migrate(db.engine)
    except BaseException:
        db.close()
        raise
    broker = registry.open_broker(config.broker_url)
    blobs = registry.open_blobs(config.blobs_url)
    bell = Bell(broker)
    bell.attach()
    return Roots(db, broker, blobs, bell, Runs(db, blobs, bell, clock))
