"""Many rows at once are the same rows on every database."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from sqlalchemy import insert, literal_column, select

from tests.db.acting import event_row
from tests.db.locks import somebody_waits
from tests.waiting import PATIENCE_SECONDS, eventually
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing, skip_locked, update_many
from weft.db.database import Database, Transaction, open_database

TEXTS = [
    "",
    " ",
    "plain",
    "quote ' and \" and `",
    "back\\slash \\n \\' \\u0000",
    "per%cent %s %(name)s %%",
    "colon :name ?",
    "new\nline\ttab\r",
    "naïve 🕸 漢字",
    '{"json": ["\\u00e9", null, 1e9]}',
    "NULL",
    "x" * 100_000,
]
NUMBERS = [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]


async def kept(db: Database, table: Any = schema.events) -> list[dict[str, Any]]:
    return await db.read(lambda tx: [dict(row._mapping) for row in tx.rows(select(table).order_by(table.c.id))])


@pytest.mark.parametrize("count", [0, 1, 2, 300])
async def test_rows_are_kept_as_they_were_given(db: Database, count: int) -> None:
    rows = [
        event_row(
            number,
            at=NUMBERS[number % len(NUMBERS)],
            task_id=None if number % 3 else number,
            data=None if number % 5 == 4 else TEXTS[number % len(TEXTS)],
        )
        for number in range(count)
    ]
    await db.transact(lambda tx: insert_many(tx, schema.events, rows))
    assert await kept(db) == rows


async def test_true_and_false_are_kept(db: Database) -> None:
    row = {"project": "shop", "kind": "noop", "definition": "{}", "revision": 1, "created_at": 1, "updated_at": 1}
    rows = [row | {"id": number + 1, "name": f"t{number}", "paused": number % 2 == 0} for number in range(4)]
    await db.transact(lambda tx: insert_many(tx, schema.tasks, rows))
    assert [bool(task["paused"]) for task in await kept(db, schema.tasks)] == [True, False, True, False]


async def test_one_wrong_row_keeps_all_of_them_out(db: Database) -> None:
    rows = [event_row(1), event_row(2), event_row(1)]
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await db.transact(lambda tx: insert_many(tx, schema.events, rows))
    assert await kept(db) == []


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("different", [True, False], ids=["all different", "all alike"])
async def test_rows_are_changed_where_they_match_and_counted(db: Database, count: int, different: bool) -> None:
    before = [event_row(number, at=number % 2) for number in range(count)]
    await db.transact(lambda tx: insert_many(tx, schema.events, before))
    changes = [
        {"id": number, "at": 1, "data": TEXTS[number % len(TEXTS)] if different else "same", "run_id": None}
        for number in range(count)
    ]
    changed = await db.transact(lambda tx: update_many(tx, schema.events, changes, match=("id", "at")))
    assert changed == sum(row["at"] == 1 for row in before)
    wanted = [row | changes[row["id"]] if row["at"] == 1 else row for row in before]
    assert await kept(db) == wanted


async def test_a_change_counts_rows_that_were_already_so(db: Database) -> None:
    rows = [event_row(number) for number in range(6)]
    await db.transact(lambda tx: insert_many(tx, schema.events, rows))
    same = [{"id": number, "at": 5} for number in range(6)]
    assert await db.transact(lambda tx: update_many(tx, schema.events, same, match=("id",))) == 6
    assert await db.transact(lambda tx: update_many(tx, schema.events, same[:1], match=("id",))) == 1


@pytest.mark.parametrize("count", [1, 2, 20])
async def test_a_further_condition_holds_for_every_row(db: Database, count: int) -> None:
    rows = [event_row(number, kind="run_queued" if number % 2 else "run_started") for number in range(count)]
    await db.transact(lambda tx: insert_many(tx, schema.events, rows))
    changes = [{"id": number, "at": 9} for number in range(count)]
    only = schema.events.c.kind == literal_column("'run_started'")
    changed = await db.transact(lambda tx: update_many(tx, schema.events, changes, match=("id",), extra=only))
    assert changed == (count + 1) // 2
    assert [row["at"] for row in await kept(db)] == [5 if number % 2 else 9 for number in range(count)]


async def test_nothing_to_change_changes_nothing(db: Database) -> None:
    assert await db.transact(lambda tx: update_many(tx, schema.events, [], match=("id",))) == 0


async def test_a_missing_row_is_inserted_and_a_known_one_left_alone(db: Database) -> None:
    for at in (1, 2):
        await db.transact(partial(insert_missing, table=schema.events, row=event_row(1, at=at)))
    assert [row["at"] for row in await kept(db)] == [1]


async def test_a_concurrent_insert_of_the_same_key_is_waited_for(db: Database, database_url: str) -> None:
    other = open_database(database_url)
    written, go_on = threading.Event(), threading.Event()

    def first(tx: Transaction) -> None:
        tx.execute(insert(schema.events).values(event_row(1, at=1)))
        written.set()
        assert go_on.wait(PATIENCE_SECONDS)

    def second(tx: Transaction) -> int:
        insert_missing(tx, schema.events, event_row(1, at=2))
        return int(tx.value(select(schema.events.c.at)))

    writing = asyncio.create_task(db.transact(first))
    await asyncio.to_thread(written.wait)
    waiting = asyncio.create_task(other.transact(second))
    await eventually(lambda: somebody_waits(database_url))
    assert not waiting.done()
    go_on.set()
    await writing
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == 1
    other.close()


async def test_rows_that_others_hold_are_passed_over(db: Database, database_kind: str, database_url: str) -> None:
    await db.transact(lambda tx: insert_many(tx, schema.events, [event_row(number) for number in range(6)]))
    other = open_database(database_url)
    held, go_on = threading.Event(), threading.Event()
    query = skip_locked(select(schema.events.c.id).order_by(schema.events.c.id).limit(3))

    def take(tx: Transaction) -> list[int]:
        return [row[0] for row in tx.rows(query)]

    def hold(tx: Transaction) -> list[int]:
        taken = take(tx)
        held.set()
        if database_kind != "sqlite":  # there the second would never begin
            assert go_on.wait(PATIENCE_SECONDS)
        return taken

    holding = asyncio.create_task(db.transact(hold))
    await asyncio.to_thread(held.wait)
    taken = await asyncio.wait_for(other.transact(take), PATIENCE_SECONDS)
    go_on.set()
    assert await holding == [0, 1, 2]
    assert taken == ([0, 1, 2] if database_kind == "sqlite" else [3, 4, 5])
    other.close()
