"""A server that acknowledges what it is sent and never answers is given up, as one that is down."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from experiments.proxy import Fault, Proxy
from tests.api.acting import visiting
from tests.waiting import eventually
from weft.access.model import Role
from weft.app import open_app
from weft.config import Config
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


@contextmanager
def in_a_thread(proxy: Proxy) -> Iterator[asyncio.AbstractEventLoop]:
    """The proxy in a loop of its own, for a start of weft that waits for its database."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(30)
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@on_servers
@pytest.mark.parametrize("fault", [Fault.BROKEN, None], ids=["broken off", "refused"])
async def test_no_answer_tells_where_the_database_is_and_the_log_does(
    database_url: str, tmp_path: Path, fault: Fault | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with in_a_thread(proxy := Proxy(make_url(database_url).port or 0)) as loop:
        url = make_url(database_url).set(port=proxy.port).render_as_string(hide_password=False)
        app = await open_app(Config(data_dir=str(tmp_path), database=url, broker="memory:"))
        async with visiting(app) as nobody:
            developer = await nobody.with_role(Role.DEVELOPER)
            assert (await developer.get("/v1/runs")).status == 200
            if fault is not None:
                loop.call_soon_threadsafe(proxy.strike, fault)
            else:
                asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(30)
            reads = ("/v1/runs", "/v1/runs/1/log", "/v1/workers", "/readyz", "/listprojects.json", "/jobs")
            answers = [await developer.get(path) for path in reads]
            answers.append(await developer.post("/v1/runs", {"kind": "noop"}))
            assert [answer.status for answer in answers] == [503] * len(answers)
            for answer in answers:
                text = answer.data.decode()
                assert "he database does not answer" in text
                hidden = ("127.0.0.1", "localhost", str(proxy.port), make_url(url).username or "?", "sqlalche")
                assert [each for each in hidden if each in text.replace("weft", "")] == [], text
        await app.close()
    assert any(getattr(record, "why", "").startswith("the database does not answer (") for record in caplog.records)
