"""A server that acknowledges what it is sent and never answers is given up, as one that is down."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from experiments.proxy import Fault, Proxy
from tests.waiting import eventually
from weft.db import server
from weft.db.database import Database, Transaction, open_database
from weft.errors import DatabaseDown

on_servers = pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)


def one(tx: Transaction) -> int:
    return int(tx.value(text("SELECT 1")))


async def behind(proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(server, "TRANSACTION_SECONDS", 1)
    for options in server.CONNECT.values():
        for name in options.keys() & {"connect_timeout", "read_timeout"}:
            monkeypatch.setitem(options, name, 2)
    db = open_database(make_url(url).set(port=proxy.port).render_as_string(hide_password=False))
    assert await db.transact(one) == 1
    return db


@on_servers
async def test_a_transaction_that_nobody_answers_ends_and_the_next_finds_the_way(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(make_url(database_url).port or 0) as proxy:
        db = await behind(proxy, database_url, monkeypatch)
        proxy.strike(Fault.SILENT)
        with pytest.raises(DatabaseDown):
            await db.transact(one)
        with pytest.raises(DatabaseDown):
            await db.read(one)
        proxy.mend()
        assert await db.transact(one) == 1
        await eventually(lambda: not proxy.waiting())
        db.close()


@on_servers
async def test_a_transaction_that_is_answered_too_slowly_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(make_url(database_url).port or 0) as proxy:
        db = await behind(proxy, database_url, monkeypatch)
        proxy.strike(Fault.THIN)
        with pytest.raises(DatabaseDown):
            await db.transact(lambda tx: tx.value(text("SELECT REPEAT('x', 20000)")))
        proxy.mend()
        assert await db.transact(one) == 1
        db.close()
