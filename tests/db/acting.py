"""What tests of the database share: a row to write, and looks at what was kept."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select

from weft.db import schema
from weft.db.bulk import reserve_ids
from weft.db.database import Database, Transaction


def event_row(number: int, **fields: Any) -> dict[str, Any]:
    row = {"id": number, "at": 5, "kind": "run_queued", "project": "shop", "run_id": 1, "task_id": None, "data": None}
    return row | fields


def write(number: int) -> Any:
    """A unit of work that writes the row of that number, and returns the number."""

    def work(tx: Transaction) -> int:
        tx.execute(insert(schema.events).values(event_row(number)))
        return number

    return work


def write_next(tx: Transaction) -> int:
    """Write a row under the next free number."""
    (number,) = reserve_ids(tx, schema.event_ids, 1)
    return int(write(number)(tx))


async def numbers(db: Database) -> list[int]:
    """The numbers of all rows that were kept."""
    column = schema.events.c.id
    return await db.read(lambda tx: [row[0] for row in tx.rows(select(column).order_by(column))])


def commits_in(database: Path) -> int:
    """How many commits SQLite has written to its log: a frame that ends one carries the size of the database."""
    log = database.with_name(database.name + "-wal").read_bytes()
    page = struct.unpack(">I", log[8:12])[0]
    salts, commits = log[16:24], 0
    for place in range(32, len(log), 24 + page):
        frame = log[place : place + 24]
        commits += frame[4:8] != bytes(4) and frame[8:16] == salts
    return commits
