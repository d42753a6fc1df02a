"""A transaction is one function: kept whole or not at all, run again where others got in its way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError, InternalError

from tests import servers
from tests.conftest import running
from tests.db.acting import event_row, numbers, write, write_next
from tests.waiting import PATIENCE_SECONDS
from weft.db import schema
from weft.db.bulk import reserve_ids
from weft.db.database import Database, Transaction, open_database
from weft.db.migrate import migrate
from weft.errors import DatabaseDown, Invalid

ROOT = Path(__file__).parent.parent.parent

on_servers = pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    db = open_database(database_url)
    yield db
    db.close()


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    """The same database, as another process opens it."""
    db = open_database(database_url)
    yield db
    db.close()


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


async def test_a_caller_that_gives_up_waiting_leaves_the_transaction_whole(db: Database) -> None:
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
    again = open_database(
        db.engine.url.render_as_string(hide_password=False).replace("+psycopg", "").replace("mariadb+pymysql", "mysql")
    )
    assert await numbers(again) == [1, 2, 3]
    again.close()


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


async def test_an_urgent_transaction_does_not_wait_in_line(db: Database, database_kind: str) -> None:
    if database_kind == "sqlite":
        assert await db.transact(write(1), urgent=True) == 1  # one writer: the line is the only way
        return
    go_on = threading.Event()
    blocking = [asyncio.create_task(db.transact(lambda tx: go_on.wait(PATIENCE_SECONDS))) for _ in range(8)]
    assert await asyncio.wait_for(db.transact(write(1), urgent=True), PATIENCE_SECONDS) == 1
    go_on.set()
    assert all(await asyncio.gather(*blocking))


async def test_reserved_ids_are_never_given_twice(db: Database, other: Database) -> None:
    def reserve(count: int) -> list[int]:
        return lambda tx: list(reserve_ids(tx, schema.run_ids, count))  # type: ignore[return-value]

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
    assert sorted(tries) == [1, 2]
    moments = await db.read(lambda tx: [row.at for row in tx.rows(select(schema.events))])
    assert moments == [7, 7]


@on_servers
async def test_a_lost_race_for_a_key_is_run_again(db: Database, other: Database) -> None:
    meet = threading.Barrier(2)

    def unless_there(tries: list[int]) -> object:
        def work(tx: Transaction) -> bool:
            tries.append(1)
            found = tx.value(select(schema.events.c.id).where(schema.events.c.id == 1))
            if len(tries) == 1:
                meet.wait(PATIENCE_SECONDS)
            if found is None:
                write(1)(tx)
            return found is None

        return work

    written = await asyncio.gather(db.transact(unless_there([])), other.transact(unless_there([])))  # type: ignore[arg-type]
    assert sorted(written) == [False, True]


async def test_a_row_that_breaks_a_rule_every_time_is_the_caller_s_matter(db: Database) -> None:
    await db.transact(write(1))
    with pytest.raises(IntegrityError):
        await db.transact(write(1))
    assert await db.transact(write(2)) == 2


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
async def test_a_query_that_must_sort_is_not_compiled_first(db: Database) -> None:
    sorting = text("EXPLAIN ANALYZE SELECT * FROM workers WHERE seen_at > 5 ORDER BY name, host")
    plan = await db.transact(lambda tx: [row[0] for row in tx.rows(sorting)])
    assert any("Sort Key" in line for line in plan)
    assert not any("JIT" in line for line in plan)


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


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server that these tests may kill."""
    yield from running(getattr(servers, request.param))


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
