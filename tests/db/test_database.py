"""A transaction is one function: kept whole or not at all, run again where others got in its way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError, InternalError

from tests.db.acting import event_row, numbers, write, write_next
from tests.waiting import PATIENCE_SECONDS
from weft.db import schema
from weft.db.bulk import reserve_ids
from weft.db.database import Database, Transaction, Unit, open_database
from weft.errors import DatabaseDown, Invalid

ROOT = Path(__file__).parent.parent.parent


def write_and_fail(tx: Transaction) -> None:
    write(1)(tx)
    write(2)(tx)
    raise KeyError("after two rows")


async def test_a_transaction_is_kept_and_its_value_returned(db: Database, other: Database) -> None:
    assert await db.transact(write(7)) == 7
    assert await numbers(other) == [7]


async def test_a_transaction_that_fails_leaves_nothing(db: Database, other: Database) -> None:
    with pytest.raises(KeyError, match="after two rows"):
        await db.transact(write_and_fail)
    assert await numbers(other) == []
    assert await db.transact(write(3)) == 3


async def test_whether_it_can_be_written_is_tried_and_leaves_nothing(db: Database, other: Database) -> None:
    await asyncio.gather(*(each.check_writable() for each in (db, other) * 10))
    assert await db.read(lambda tx: tx.rows(select(schema.cursors))) == []
    db.close()
    with pytest.raises(DatabaseDown):
        await db.check_writable()


async def test_one_failure_does_not_harm_those_that_wait_beside_it(db: Database) -> None:
    units = [write_and_fail if number % 3 == 0 else write(number) for number in range(10, 40)]
    outcomes = await asyncio.gather(*map(db.transact, units), return_exceptions=True)
    assert [isinstance(outcome, KeyError) for outcome in outcomes] == [unit is write_and_fail for unit in units]
    assert await numbers(db) == [number for number in range(10, 40) if number % 3]


async def test_an_effect_comes_after_the_commit_and_only_then(db: Database, other: Database) -> None:
    seen: list[list[int]] = []

    def look() -> None:
        with other.engine.connect() as connection:
            seen.append(sorted(connection.execute(select(schema.events.c.id)).scalars()))

    def work(tx: Transaction) -> None:
        tx.after_commit(look)
        write(1)(tx)
        assert seen == []

    await db.transact(work)
    assert seen == [[1]]


async def test_what_was_rolled_back_has_no_effect(db: Database) -> None:
    effects: list[str] = []

    def work(tx: Transaction) -> None:
        tx.after_commit(lambda: effects.append("rung"))
        write_and_fail(tx)

    with pytest.raises(KeyError):
        await db.transact(work)
    await db.transact(write(3))
    assert effects == []


async def test_an_effect_that_fails_harms_nobody(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    def work(tx: Transaction) -> int:
        tx.after_commit(lambda: [][1])
        return int(write(1)(tx))

    assert await db.transact(work) == 1
    assert await asyncio.wait_for(db.transact(write(2)), PATIENCE_SECONDS) == 2
    assert await numbers(db) == [1, 2]
    assert "an effect of a committed transaction failed" in caplog.text


async def test_a_caller_that_gives_up_waiting_leaves_the_transaction_whole(db: Database, other: Database) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        write(1)(tx)
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)
        write(2)(tx)

    waiting = asyncio.create_task(db.transact(work))
    await asyncio.to_thread(entered.wait)
    waiting.cancel()
    go_on.set()
    await db.transact(write(3))
    await asyncio.to_thread(db.close)
    assert await numbers(other) == [1, 2, 3]


async def test_a_read_sees_one_state_of_the_database(db: Database, other: Database) -> None:
    await db.transact(write(1))
    looked, changed = threading.Event(), threading.Event()

    def work(tx: Transaction) -> list[int]:
        counts = [len(tx.rows(select(schema.events.c.id)))]
        looked.set()
        assert changed.wait(PATIENCE_SECONDS)
        return [*counts, len(tx.rows(select(schema.events.c.id)))]

    reading = asyncio.create_task(db.read(work))
    await asyncio.to_thread(looked.wait)
    await other.transact(write(2))
    changed.set()
    assert await reading == [1, 1]
    assert await numbers(db) == [1, 2]


async def test_a_read_leaves_nothing_behind(db: Database) -> None:
    with suppress(DatabaseDown, InternalError):
        await db.read(write(1))
    assert await numbers(db) == []
    assert await db.transact(write(2)) == 2


async def test_reserved_ids_are_never_given_twice(db: Database, other: Database) -> None:
    def reserve(count: int) -> Unit[list[int]]:
        return lambda tx: list(reserve_ids(tx, schema.run_ids, count))

    batches = await asyncio.gather(*((db, other)[n % 2].transact(reserve(n % 7)) for n in range(60)))
    assert [len(batch) for batch in batches] == [n % 7 for n in range(60)]
    assert all(batch == sorted(batch) for batch in batches)
    every = [number for batch in batches for number in batch]
    assert len(every) == len(set(every))


async def test_two_processes_lose_nothing_of_what_they_write(db: Database, database_url: str) -> None:
    command = [sys.executable, "-m", "tests.db.writer", database_url, "100"]
    writers = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    mine = await asyncio.gather(*(db.transact(write_next) for _ in range(100)))
    assert [await asyncio.to_thread(writer.wait) for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    found = await numbers(db)
    assert len(found) == 300
    assert set(mine) <= set(found)


async def test_a_row_that_breaks_a_rule_every_time_is_the_caller_s_matter(db: Database) -> None:
    await db.transact(write(1))
    with pytest.raises(IntegrityError):
        await db.transact(write(1))
    assert await db.transact(write(2)) == 2


async def test_text_is_compared_byte_by_byte(db: Database) -> None:
    def work(tx: Transaction) -> list[int]:
        for number, project in enumerate(["shop", "Shop", "shop ", "shöp", "sho\u0301p"]):
            tx.execute(insert(schema.events).values(event_row(number, project=project)))
        return [row.id for row in tx.rows(select(schema.events).where(schema.events.c.project == "shop"))]

    assert await db.transact(work) == [0]


@pytest.mark.parametrize("url", ["", "oracle://x/y", "sqlite:///", "sqlite://x", "nonsense"])
def test_a_wrong_url_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(Invalid, match=r"database is .*; (it must start with|a SQLite URL is) sqlite:///"):
        open_database(url)


async def test_a_closed_database_says_so(database_url: str) -> None:
    db = open_database(database_url)
    await db.transact(write(1))
    db.close()
    with pytest.raises(DatabaseDown, match="closed"):
        await asyncio.wait_for(db.transact(write(2)), PATIENCE_SECONDS)
    with pytest.raises(DatabaseDown, match="closed"):
        await asyncio.wait_for(db.read(lambda tx: 1), PATIENCE_SECONDS)


async def test_a_transaction_that_waits_when_the_database_is_closed_is_finished_first(database_url: str) -> None:
    db = open_database(database_url)
    waiting = [asyncio.create_task(db.transact(write(number))) for number in range(30)]
    await asyncio.sleep(0)
    await asyncio.to_thread(db.close)
    assert await asyncio.gather(*waiting) == list(range(30))
