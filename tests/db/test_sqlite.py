"""What only SQLite needs: group commit, a log that is flushed, files that nobody else may read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import IntegrityError

from tests.conftest import migrated, sqlite_copy
from tests.db.acting import commits_in, event_row, numbers, write
from tests.waiting import PATIENCE_SECONDS, eventually
from weft.db import schema
from weft.db.database import Database, Transaction, open_database
from weft.errors import DatabaseDown, Misconfigured

FEW = 20
"""Commits that a hundred waiting transactions may need: a slow machine cuts a joint commit short in time."""


@pytest.fixture
def file(sqlite_template: Path, tmp_path: Path) -> Path:
    sqlite_copy(sqlite_template, tmp_path)
    return tmp_path / "weft.db"


@pytest.fixture
def db(file: Path) -> Iterator[Database]:
    db = open_database(f"sqlite:///{file}")
    yield db
    db.close()


async def hold(db: Database) -> tuple[asyncio.Task[None], threading.Event]:
    """Let the writer stand still inside a transaction until the event is set."""
    entered, go_on = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        write(0)(tx)
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)

    holding = asyncio.create_task(db.transact(work))
    await asyncio.to_thread(entered.wait)
    return holding, go_on


async def test_transactions_that_wait_share_one_commit(db: Database, file: Path) -> None:
    await db.transact(write(1000))
    before = commits_in(file)
    holding, go_on = await hold(db)
    waiting = [asyncio.create_task(db.transact(write(number))) for number in range(1, 101)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(holding, *waiting)
    assert commits_in(file) - before <= FEW
    assert await numbers(db) == [*range(101), 1000]


async def test_a_transaction_alone_is_committed_alone(db: Database, file: Path) -> None:
    await db.transact(write(1))
    before = commits_in(file)
    for number in range(2, 7):
        await db.transact(write(number))
    assert commits_in(file) - before == 5


async def test_a_failure_is_rolled_back_alone_within_a_joint_commit(db: Database, file: Path) -> None:
    def fail(tx: Transaction) -> None:
        write(500)(tx)
        raise KeyError("mine alone")

    await db.transact(write(1000))
    before = commits_in(file)
    holding, go_on = await hold(db)
    units = [fail if number % 5 == 0 else write(number) for number in range(1, 51)]
    waiting = [asyncio.create_task(db.transact(unit)) for unit in units]
    await asyncio.sleep(0)
    go_on.set()
    await holding
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(outcome, KeyError) for outcome in outcomes] == [unit is fail for unit in units]
    assert await numbers(db) == [0, *(number for number in range(1, 51) if number % 5), 1000]
    assert commits_in(file) - before <= FEW


async def test_a_unit_that_ends_the_joint_transaction_fails_alone(db: Database) -> None:
    await db.transact(write(7))
    holding, go_on = await hold(db)
    spoil = text("INSERT OR ROLLBACK INTO events (id, at, kind, project) VALUES (7, 1, 'x', 'y')")
    units = [write(1), write(2), lambda tx: tx.execute(spoil), write(3)]
    waiting = [asyncio.create_task(db.transact(unit)) for unit in units]
    await asyncio.sleep(0)
    go_on.set()
    await holding
    async with asyncio.timeout(PATIENCE_SECONDS):
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [outcome for outcome in outcomes if not isinstance(outcome, IntegrityError)] == [1, 2, 3]
    assert isinstance(outcomes[2], IntegrityError)
    assert await numbers(db) == [0, 1, 2, 3, 7]


async def test_a_full_disk_is_a_database_that_is_down_until_there_is_room(db: Database) -> None:
    def fill(tx: Transaction) -> None:
        tx.execute(insert(schema.events).values(event_row(5, data="x" * 5_000_000)))

    with small_disk(db):
        with pytest.raises(DatabaseDown, match="full"):
            await db.transact(fill)
        assert await numbers(db) == []
    await db.transact(fill)
    assert await numbers(db) == [5]


@contextmanager
def small_disk(db: Database) -> Iterator[None]:
    """Let the file not grow any more while the block lasts, as on a disk without room."""

    def set_limit(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {limit}")

    limit = 1  # SQLite makes of it: as large as it is now
    event.listen(db.engine, "checkout", set_limit)
    yield
    limit = 2**30


async def test_a_writer_outside_of_weft_is_waited_for(db: Database, file: Path) -> None:
    outside = sqlite3.connect(file, isolation_level=None)
    outside.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(db.transact(write(1)))
    assert await numbers(db) == []
    outside.execute("COMMIT")
    outside.close()
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == 1


async def test_readers_go_on_while_a_writer_writes(db: Database) -> None:
    holding, go_on = await hold(db)
    assert await asyncio.wait_for(numbers(db), PATIENCE_SECONDS) == []
    go_on.set()
    await holding
    assert await numbers(db) == [0]


async def test_every_connection_flushes_its_commits(db: Database) -> None:
    def settings(tx: Transaction) -> tuple[object, ...]:
        return tuple(tx.value(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys"))

    full = 2
    assert await db.transact(settings) == ("wal", full, 1)
    assert await db.read(settings) == ("wal", full, 1)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        db = open_database(migrated(f"sqlite:///{tmp_path}/data/weft.db"))
        await db.transact(write(1))
        files = {path.name: mode(path) for path in (tmp_path / "data").iterdir()}
        db.close()
    finally:
        os.umask(umask)
    assert set(files) >= {"weft.db", "weft.db-wal", "weft.db-shm"}
    assert set(files.values()) == {0o600}
    assert mode(tmp_path / "data") == 0o700


def test_a_file_that_cannot_be_opened_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="Is a directory"):
        open_database(f"sqlite:///{tmp_path}")


async def test_the_next_process_is_let_in_as_soon_as_one_has_committed(db: Database, file: Path) -> None:
    other = open_database(f"sqlite:///{file}")
    holding, go_on = await hold(db)
    waiting = asyncio.create_task(other.transact(write(1)))
    await eventually(lambda: has_waiter(file))
    go_on.set()
    await holding
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == 1
    other.close()


def has_waiter(file: Path) -> bool:
    """Whether somebody waits for the file lock beside the database."""
    queue = next(path for path in file.parent.iterdir() if path.name.endswith("-queue"))
    inode = f":{queue.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())
