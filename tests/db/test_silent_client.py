"""A client that stops in the middle of a transaction keeps nobody waiting for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import select, update

from weft.db import schema, server
from weft.db.database import Transaction, open_database

on_servers = pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)


@on_servers
async def test_a_client_that_is_silent_in_a_transaction_loses_its_locks(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 1)
    frozen, alive = open_database(database_url), open_database(database_url)
    locked, thaw = threading.Event(), threading.Event()

    def freeze(tx: Transaction) -> int:
        touch(tx)
        locked.set()
        thaw.wait()
        return touch(tx)

    try:
        freezing = asyncio.ensure_future(frozen.transact(freeze))
        await asyncio.to_thread(locked.wait)
        async with asyncio.timeout(15):
            assert await alive.transact(touch) == 1
        thaw.set()
        assert await freezing == 1  # it was run again from its start
    finally:
        thaw.set()
        frozen.close()
        alive.close()


def touch(tx: Transaction) -> int:
    table = schema.schema_version
    version = tx.value(select(table.c.version))
    return tx.execute(update(table).values(version=version)).rowcount
