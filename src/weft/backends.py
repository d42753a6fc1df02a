"""What the rest of weft stands on: the database, the doorbell, the blobs, and the runs that are in them.

Whoever only looks at runs opens no more than this, and has not the rest to load.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.adapters import registry
from weft.clock import Clock, now
from weft.config import Config, refuse_full
from weft.db.database import Database, open_database
from weft.db.migrate import migrate, refuse_unsafe
from weft.errors import DatabaseDown, NoWeft
from weft.ports import Blobs, Broker
from weft.runs.runs import Runs
from weft.runs.wakeups import Wakeups


@dataclass(frozen=True, slots=True)
class Backends:
    """What is open while weft is."""

    db: Database
    broker: Broker
    blobs: Blobs
    wakeups: Wakeups
    runs: Runs

    async def close(self) -> None:
        await self.wakeups.flush()
        await self.broker.close()
        self.db.close()


def open_backends(config: Config, clock: Clock = now, *, create: bool = True) -> Backends:
    """Open the database (upgrading it; creating it where ``create`` says so), the broker and the blobs."""
    file = None
    if config.database_url.startswith("sqlite"):
        from weft.db import sqlite_file  # a server needs no SQLite

        file = sqlite_file.path_of(config.database_url)
    if file is not None:
        sqlite_file.check(file, config.folder)
        if not create and not sqlite_file.is_there(file):  # to open it would make it
            raise NoWeft(f"there is no database {file}")
    db = open_database(config.database_url)
    try:
        refuse_unsafe(db.engine, allowed=config.allow_unsafe_database)
        migrate(db.engine, create=create)
    except DatabaseDown:
        db.close()
        if file is not None:
            refuse_full(file.parent)
        raise
    except BaseException:
        db.close()
        raise
    if file is not None:
        sqlite_file.remember(file)
    broker = registry.open_broker(config.broker_url)
    blobs = registry.open_blobs(config.blobs_url)
    wakeups = Wakeups(broker)
    wakeups.attach()
    return Backends(db, broker, blobs, wakeups, Runs(db, blobs, wakeups, clock, min_isolation=config.min_isolation))
