"""Short reads: each sees what was committed, whoever else reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from tests.conftest import OpenApp
from weft.app import App
from weft.db.database import Transaction, Unit
from weft.errors import NotFound


async def test_many_at_once_get_each_its_own_answer(app: App) -> None:
    def look(number: int) -> Unit[Any]:
        return lambda tx: tx.value(text("SELECT 1 * :number"), {"number": number})

    found = await asyncio.gather(*(app.db.glance(look(number)) for number in range(200)))
    assert [int(each) for each in found] == list(range(200))


async def test_one_that_fails_leaves_the_others_alone(app: App) -> None:
    def fail(tx: Transaction) -> int:
        raise NotFound("run", 1)

    def look(tx: Transaction) -> int:
        return int(tx.value(text("SELECT 7")))

    found = await asyncio.gather(*(app.db.glance(each) for each in (look, fail, look, look)), return_exceptions=True)
    assert [found[0], found[2], found[3]] == [7, 7, 7]
    assert isinstance(found[1], NotFound)


async def test_one_that_is_given_up_leaves_the_others_alone(app: App) -> None:
    def look(tx: Transaction) -> int:
        return int(tx.value(text("SELECT 7")))

    waiting = [asyncio.create_task(app.db.glance(look)) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[5].cancel()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [each for place, each in enumerate(found) if place != 5] == [7] * 19


async def test_it_sees_what_another_process_has_committed(app: App, another_app: OpenApp) -> None:
    await app.db.glance(lambda tx: tx.value(text("SELECT 1")))
    other = await another_app()
    key, _ = await other.keys.create("other", {}, by="test")
    assert await app.db.glance(lambda tx: tx.value(text("SELECT name FROM api_keys"))) == key.name


async def test_a_wrong_statement_is_told_to_who_asked(app: App) -> None:
    with pytest.raises(Exception, match="nothing_like_it"):
        await app.db.glance(lambda tx: tx.value(text("SELECT * FROM nothing_like_it")))
    assert await app.db.glance(lambda tx: int(tx.value(text("SELECT 1")))) == 1
