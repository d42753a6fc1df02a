"""Statements that are made ready once do the same as all others, on every database."""

from __future__ import annotations

import pytest
from sqlalchemy import BigInteger, bindparam, insert, select, text, update

from tests.conftest import plain_engine
from tests.db.acting import event_row
from tests.db.test_bulk import kept
from weft.db import schema
from weft.db.bulk import Each, insert_many, insert_missing_many, update_many
from weft.db.database import Database
from weft.db.prepared import Ready
from weft.errors import DatabaseDown

events = schema.events
NUMBERED = select(events.c.id, events.c.data).where(events.c.at >= bindparam("at"))


async def fill(db: Database, count: int) -> None:
    rows = [event_row(number, at=number, task_id=number % 3, data=f"{number}%s:?") for number in range(count)]
    await db.transact(lambda tx: insert_many(tx, events, rows))


async def test_a_list_of_any_length_is_one_parameter(db: Database) -> None:
    await fill(db, 10)
    query = NUMBERED.where(events.c.id.in_(bindparam("ids", expanding=True)), events.c.at < bindparam("until"))
    ready = Ready(query.order_by(events.c.id).limit(bindparam("count", type_=BigInteger())))
    for ids in ([3], [1, 3, 5, 9], list(range(10))):
        values = {"at": 1, "ids": ids, "until": 8, "count": 3}
        found = await db.read(lambda tx, values=values: ready.rows(tx, values))  # type: ignore[misc]
        assert [tuple(row) for row in found] == [(n, f"{n}%s:?") for n in ids if 1 <= n < 8][:3]


async def test_values_of_a_list_can_be_looked_up_one_by_one_in_their_order(db: Database) -> None:
    await fill(db, 10)
    query = NUMBERED.where(events.c.id.in_(bindparam("ids", expanding=True))).order_by(events.c.id)
    for ready in (Ready(query, looks_up="ids"), Ready(query.with_for_update(), looks_up="ids")):
        found = await db.transact(lambda tx, ready=ready: ready.among(tx, "ids", [2, 5, 7, 99], at=3))  # type: ignore[misc]
        assert [tuple(row) for row in found] == [(5, "5%s:?"), (7, "7%s:?")]


async def test_a_list_of_texts_is_compared_byte_by_byte(db: Database) -> None:
    await fill(db, 5)
    ready = Ready(select(events.c.id).where(events.c.kind.in_(bindparam("kinds", expanding=True))))
    assert len(await db.read(lambda tx: ready.rows(tx, {"kinds": ["run_queued", "naïve '%s"]}))) == 5
    assert await db.read(lambda tx: ready.rows(tx, {"kinds": ["RUN_QUEUED", "run_queued "]})) == []


async def test_a_change_alone_is_committed_and_counted(db: Database, other: Database) -> None:
    await fill(db, 4)
    ready = Ready(update(events).where(events.c.at >= bindparam("from_at")).values(data=bindparam("new")))
    assert await db.transact(lambda tx: ready.run(tx, {"from_at": 1, "new": "x"})) == 3
    assert [row["data"] for row in await kept(other)] == ["0%s:?", "x", "x", "x"]


async def test_a_change_that_fails_is_rolled_back_with_all_else(db: Database) -> None:
    await fill(db, 4)
    ready = Ready(update(events).values(data=bindparam("new")))

    def work(tx: object) -> None:
        ready.run(tx, {"new": "x"})  # type: ignore[arg-type]
        raise KeyError

    with pytest.raises(KeyError):
        await db.transact(work)
    assert (await kept(db))[0]["data"] == "0%s:?"


async def test_an_error_of_the_driver_is_told_as_any_other(db: Database) -> None:
    await fill(db, 1)
    twice = Ready(insert(events).values({events.c[name]: bindparam(name) for name in event_row(0)}))
    with pytest.raises(Exception) as told:
        await db.transact(lambda tx: twice.run(tx, event_row(0)))
    assert type(told.value).__name__ == "IntegrityError"
    assert type(told.value).__module__ == "sqlalchemy.exc"


async def test_a_table_that_is_not_there_is_told_as_by_others(db: Database) -> None:
    missing = text("SELECT 1 FROM nowhere")
    ready = Ready(missing)
    with pytest.raises(Exception) as plainly:
        await db.read(lambda tx: ready.rows(tx, {}))
    with pytest.raises(Exception) as usually:
        await db.read(lambda tx: tx.rows(missing))
    assert type(plainly.value) is type(usually.value)
    assert isinstance(plainly.value, DatabaseDown) is isinstance(usually.value, DatabaseDown)


@pytest.mark.parametrize("hosts", [0, 1, 3, 120])
async def test_a_question_for_each_row_has_the_first_of_each(db: Database, hosts: int) -> None:
    await fill(db, 30)
    query = select(events.c.task_id, events.c.id).where(events.c.task_id == bindparam("task", type_=BigInteger()))
    each = Each(query.order_by(events.c.id.desc()).limit(bindparam("count", type_=BigInteger())), "task", "count")
    given = [{"task": number % 4, "count": number % 3} for number in range(hosts)]
    wanted = [
        (row["task"], n)
        for row in given
        for n in [n for n in reversed(range(30)) if n % 3 == row["task"]][: row["count"]]
    ]
    found = await db.read(lambda tx: each.rows(tx, given))
    assert [tuple(row) for row in found] == wanted


@pytest.mark.parametrize("count", [0, 1, 2, 100])
async def test_missing_rows_are_inserted_and_known_ones_left_alone(db: Database, count: int) -> None:
    await fill(db, 2)
    rows = [event_row(number, at=7, data="new", task_id=None) for number in range(1, 1 + count)]
    await db.transact(lambda tx: insert_missing_many(tx, events, rows))
    found = {row["id"]: row["data"] for row in await kept(db)}
    assert found == {0: "0%s:?", 1: "1%s:?"} | dict.fromkeys(range(2, 1 + count), "new")


@pytest.mark.parametrize("count", [1, 2, 50])
async def test_a_column_stays_where_a_row_says_nothing_of_it(db: Database, count: int) -> None:
    await fill(db, count)
    rows = [{"id": number, "at": 99, "data": "new" if number % 2 else None} for number in range(count)]
    assert await db.transact(lambda tx: update_many(tx, events, rows, match=("id",), stays="data")) == count
    found = await kept(db)
    assert [row["data"] for row in found] == ["new" if n % 2 else f"{n}%s:?" for n in range(count)]
    assert {row["at"] for row in found} == {99}


async def test_changes_that_are_too_long_for_one_statement_are_all_made(db: Database) -> None:
    await fill(db, 9)
    rows = [{"id": number, "at": number, "data": chr(97 + number) * 2_000_000} for number in range(9)]
    assert await db.transact(lambda tx: update_many(tx, events, rows, match=("id",), stays="data")) == 9
    assert [(row["data"][0], len(row["data"])) for row in await kept(db)] == [
        (chr(97 + n), 2_000_000) for n in range(9)
    ]


CONNECTIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}
END = {"postgresql": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


def cut_all(url: str) -> int:
    """End every connection to a database but this one; return how many there were."""
    engine = plain_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text(CONNECTIONS[engine.dialect.name])).scalars().all()
        for each in found:
            connection.execute(text(END[engine.dialect.name].format(each)))
    return len(found)


@pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)
async def test_a_connection_that_was_lost_is_replaced(db: Database, database_url: str) -> None:
    await fill(db, 3)
    ready = Ready(select(events.c.id).where(events.c.at >= bindparam("at")).order_by(events.c.id))
    assert len(await db.transact(lambda tx: ready.rows(tx, {"at": 1}))) == 2
    assert cut_all(database_url) >= 1
    assert len(await db.transact(lambda tx: ready.rows(tx, {"at": 1}))) == 2
