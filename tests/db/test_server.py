"""PostgreSQL and MariaDB: transactions that get in each other's way are run again; a server may go and come back."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import select, text, update

from tests import servers
from tests.db.acting import numbers, write
from tests.waiting import PATIENCE_SECONDS
from weft.db import schema
from weft.db.database import Database, Transaction, Unit, open_database
from weft.db.migrate import migrate
from weft.errors import DatabaseDown, Invalid

on_servers = pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)


@on_servers
async def test_an_urgent_transaction_does_not_wait_in_line(db: Database) -> None:
    go_on = threading.Event()
    blocking = [asyncio.create_task(db.transact(lambda tx: go_on.wait(PATIENCE_SECONDS))) for _ in range(8)]
    assert await asyncio.wait_for(db.transact(write(1), urgent=True), PATIENCE_SECONDS) == 1
    go_on.set()
    assert all(await asyncio.gather(*blocking))


async def lock_rows(db: Database, order: tuple[int, int], meet: threading.Barrier, tries: list[int]) -> int:
    """Change two rows in ``order``, and on the first try wait in between until the other has changed its first."""

    def work(tx: Transaction) -> int:
        tries.append(1)
        for place, number in enumerate(order):
            tx.execute(update(schema.events).where(schema.events.c.id == number).values(at=schema.events.c.at + 1))
            if place == 0 and len(tries) == 1:
                meet.wait(PATIENCE_SECONDS)
        return len(tries)

    return await db.transact(work)


@on_servers
async def test_a_deadlock_is_run_again_and_both_are_kept(db: Database, other: Database) -> None:
    for number in (1, 2):
        await db.transact(write(number))
    meet = threading.Barrier(2)
    tries = await asyncio.gather(lock_rows(db, (1, 2), meet, []), lock_rows(other, (2, 1), meet, []))
    assert max(tries) > 1
    moments = await db.read(lambda tx: [row.at for row in tx.rows(select(schema.events))])
    assert moments == [7, 7]


@on_servers
async def test_a_lost_race_for_a_key_is_run_again(db: Database, other: Database) -> None:
    meet = threading.Barrier(2)

    def unless_there(tries: list[int]) -> Unit[bool]:
        def work(tx: Transaction) -> bool:
            tries.append(1)
            found = tx.value(select(schema.events.c.id).where(schema.events.c.id == 1))
            if len(tries) == 1:
                meet.wait(PATIENCE_SECONDS)
            if found is None:
                write(1)(tx)
            return found is None

        return work

    written = await asyncio.gather(db.transact(unless_there([])), other.transact(unless_there([])))
    assert sorted(written) == [False, True]


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
async def test_a_query_that_must_sort_is_not_compiled_first(db: Database) -> None:
    sorting = text("EXPLAIN ANALYZE SELECT * FROM workers WHERE seen_at > 5 ORDER BY name, host")
    plan = await db.transact(lambda tx: [row[0] for row in tx.rows(sorting)])
    assert any("Sort Key" in line for line in plan)
    assert not any("JIT" in line for line in plan)


@pytest.mark.parametrize("url", ["postgresql://user:pa:ss@:x/y", "mysql://root:secret@host:port/db"])
def test_a_wrong_server_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Invalid, match="it must be scheme://user:password@host:port/name") as refused:
        open_database(url)
    assert "ss" not in str(refused.value).replace("password", "")
    assert "secret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_down(own_server: servers.Server) -> None:
    url = own_server.new_database()
    own_server.kill()
    try:
        db = open_database(url)
        with pytest.raises(DatabaseDown, match="the database does not answer") as down:
            await db.transact(write(1))
        assert not down.value.outcome_unknown
        with pytest.raises(DatabaseDown):
            await db.read(lambda tx: tx.value(text("SELECT 1")))
        with pytest.raises(DatabaseDown):
            migrate(db.engine)
        db.close()
    finally:
        own_server.start()


async def test_a_killed_server_is_down_and_works_again_after_its_return(own_server: servers.Server) -> None:
    db = open_database(own_server.new_database())
    migrate(db.engine)
    await asyncio.gather(*(db.transact(write(number)) for number in range(8)))
    await asyncio.to_thread(own_server.kill)
    outcomes = await asyncio.gather(*(db.transact(write(9)) for _ in range(8)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {DatabaseDown}
    await asyncio.to_thread(own_server.start)
    assert await asyncio.gather(*(db.transact(write(number)) for number in range(10, 18))) == list(range(10, 18))
    assert await numbers(db) == [*range(8), *range(10, 18)]
    db.close()


async def test_a_connection_that_was_cut_between_transactions_is_not_noticed(own_server: servers.Server) -> None:
    db = open_database(own_server.new_database())
    migrate(db.engine)
    await db.transact(write(1))
    await asyncio.to_thread(own_server.kill)
    await asyncio.to_thread(own_server.start)
    assert await db.transact(write(2)) == 2
    db.close()


async def test_a_commit_that_was_cut_off_is_of_unknown_outcome(own_server: servers.Server) -> None:
    db = open_database(own_server.new_database())
    migrate(db.engine)

    def work(tx: Transaction) -> None:
        write(1)(tx)
        own_server.kill()

    with pytest.raises(DatabaseDown) as down:
        await db.transact(work)
    assert down.value.outcome_unknown
    await asyncio.to_thread(own_server.start)
    assert await numbers(db) in ([], [1])
    db.close()
