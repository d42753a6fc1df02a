"""The audit log only grows, and nothing in it can be changed unnoticed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from tests.conftest import OpenApp, on_sqlite, plain_engine
from weft.access.audit import FIRST_DIGEST, audit_entry
from weft.access.model import Caller
from weft.app import App

ANN = Caller(name="ann", kind="user", address="192.0.2.7")


async def write(app: App, count: int) -> None:
    for number in range(count):
        await app.audit.write(
            audit_entry(ANN, "runs.cancel", project="shop", target=f"run {number}", data={"reason": "too slow"})
        )


def tamper(app: App, *statements: str) -> None:
    """What somebody with the password of the database does, who takes the triggers away first."""
    with plain_engine(app.config.database_url).begin() as connection:
        disarm(connection)
        for statement in statements:
            connection.execute(text(statement))


def disarm(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER USER"))
        return
    for verb in ("update", "delete"):
        connection.execute(text(f"DROP TRIGGER audit_no_{verb}"))


@pytest.fixture
def rearmed(app: App) -> Any:
    """The database is used by other tests, which need its triggers."""
    yield
    from weft.db import schema
    from weft.db.dialect_options import protect

    with plain_engine(app.config.database_url).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("ALTER TABLE audit ENABLE TRIGGER USER"))
        elif connection.dialect.name != "sqlite":
            connection.execute(text("TRUNCATE TABLE audit"))
            protect(connection, schema.audit)


async def test_an_entry_says_who_did_what_from_where(app: App) -> None:
    await write(app, 1)
    [found] = await app.audit.find({})
    assert (found.actor, found.address, found.action) == ("user:ann", "192.0.2.7", "runs.cancel")
    assert (found.project, found.target, found.data) == ("shop", "run 0", '{"reason":"too slow"}')
    assert (found.id, found.previous) == (1, FIRST_DIGEST)


async def test_an_entry_in_the_transaction_of_a_change_is_gone_with_it(app: App) -> None:
    def work(tx: Any) -> None:
        app.audit.add(tx, [audit_entry(ANN, "tasks.delete", target="task 1")])
        raise LookupError("the change failed")

    with pytest.raises(LookupError):
        await app.db.transact(work)
    await app.db.transact(lambda tx: app.audit.add(tx, [audit_entry(ANN, "tasks.delete", target="task 2")]))
    assert [(each.id, each.target) for each in await app.audit.find({})] == [(1, "task 2")]


async def test_writers_in_several_processes_do_not_fork_the_chain(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app(), await another_app()]
    await asyncio.gather(*(write(each, 20) for each in apps * 2))
    verified = await app.audit.verify()
    assert (verified.entries, verified.broken) == (120, None)


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'user:bob' WHERE id = 1", "DELETE FROM audit"])
async def test_the_database_refuses_to_change_an_entry(app: App, statement: str) -> None:
    await write(app, 1)
    engine = plain_engine(app.config.database_url)
    with pytest.raises(DBAPIError, match="rows of audit are only ever added"), engine.begin() as connection:
        connection.execute(text(statement))
    assert (await app.audit.verify()).entries == 1


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
async def test_postgresql_refuses_to_truncate_the_log(app: App) -> None:
    engine = plain_engine(app.config.database_url)
    with pytest.raises(DBAPIError, match="rows of audit are only ever added"), engine.begin() as connection:
        connection.execute(text("TRUNCATE TABLE audit"))


@pytest.mark.usefixtures("rearmed")
@pytest.mark.parametrize("field", ["actor", "address", "action", "project", "target", "data", "previous", "digest"])
async def test_a_changed_field_is_named_by_its_entry(app: App, field: str) -> None:
    await write(app, 5)
    tamper(app, f"UPDATE audit SET {field} = 'x' WHERE id = 3")
    verified = await app.audit.verify()
    assert (verified.broken, verified.entries) == (3, 2)


@pytest.mark.usefixtures("rearmed")
@pytest.mark.parametrize(
    ("statement", "broken", "why"),
    [
        ("UPDATE audit SET at = at + 1 WHERE id = 1", 1, "it was changed"),
        ("DELETE FROM audit WHERE id = 3", 3, "it is missing: entry 4 comes next"),
        ("DELETE FROM audit WHERE id >= 4", 4, "it is missing, and so are all after it"),
        ("DELETE FROM audit", 1, "it is missing, and so are all after it"),
    ],
)
async def test_what_is_missing_is_named(app: App, statement: str, broken: int, why: str) -> None:
    await write(app, 5)
    tamper(app, statement)
    verified = await app.audit.verify()
    assert verified.broken == broken
    assert why in verified.why


@on_sqlite
async def test_an_entry_that_was_made_up_is_named(app: App) -> None:
    await write(app, 2)
    columns = "at, actor, address, action, project, target, data"
    tamper(
        app,
        f"INSERT INTO audit (id, {columns}, previous, digest) "
        f"SELECT 3, {columns}, digest, '{'f' * 64}' FROM audit WHERE id = 2",
    )
    assert (await app.audit.verify()).broken == 3


@on_sqlite
async def test_what_must_stay_secret_is_masked_before_it_is_written(app: App) -> None:
    data = {"password": "hunter22", "url": "amqp://u:hunter22@h", "headers": {"Authorization": "Bearer hunter22"}}
    await app.audit.write(audit_entry(ANN, "users.create", target="user password=hunter22", data=data))
    [found] = await app.audit.find({})
    assert "hunter22" not in repr(found)
    assert found.data == '{"password":"••••","url":"amqp://••••@h","headers":{"Authorization":"••••"}}'


@on_sqlite
async def test_what_is_too_large_is_not_kept_but_counted(app: App) -> None:
    await app.audit.write(audit_entry(ANN, "tasks.apply", target="x" * 400, data={"tasks": ["y" * 20_000]}))
    [found] = await app.audit.find({})
    assert (len(found.target), found.data) == (250, '{"too_large":20014}')
    assert (await app.audit.verify()).broken is None


async def test_entries_are_found_by_field_and_place(app: App) -> None:
    await write(app, 3)
    await app.audit.write(audit_entry(Caller(name="ci", kind="key"), "runs.submit", project="bank"))
    assert [each.id for each in await app.audit.find({"project": "shop"}, limit=2)] == [3, 2]
    assert [each.id for each in await app.audit.find({"actor": "key:ci"})] == [4]
    assert [each.id for each in await app.audit.find({}, before=3)] == [2, 1]
    assert [each.id async for each in app.audit.every()] == [1, 2, 3, 4]
