"""Who asked for a change is told in the transaction of the change, whoever else changes something at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.access.acting import PASSWORD, new_user
from tests.conftest import OpenApp, on_sqlite
from tests.tasks.scene import noop
from weft.access.audit import AuditContext, audit_entry, audited, record_change
from weft.access.model import Caller, Role
from weft.app import App
from weft.db.batching import Batched
from weft.db.database import Transaction
from weft.errors import Conflict


def witness(app: App, name: str) -> AuditContext:
    """Sees everything as done by this one."""
    caller = Caller(name=name, kind="user")
    return AuditContext(app.audit, lambda told: audit_entry(caller, "test", target=told.target or "", data=told.data))


async def told(app: App) -> list[tuple[str, str | None]]:
    return [(each.actor, each.data) async for each in app.audit.every()]


@on_sqlite
async def test_what_nobody_asked_for_is_not_told(app: App) -> None:
    await new_user(app)
    assert await told(app) == []


async def test_everybody_is_told_of_under_their_own_name(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app()]

    async def change(number: int) -> None:
        weft = apps[number % 2]
        with audited(witness(weft, f"u{number}")):
            await weft.tasks.put(noop(f"t{number}", description=f"of u{number}"))
            await weft.keys.create(f"k{number}", {"shop": Role.VIEWER}, by=f"u{number}")

    await asyncio.gather(*(change(number) for number in range(20)))
    verified = await app.audit.verify()
    assert (verified.entries, verified.broken) == (40, None)
    for actor, data in await told(app):
        assert f'of {actor.removeprefix("user:")}"' in str(data) or f'"{actor.removeprefix("user:")}"' in str(data)


@on_sqlite
async def test_what_is_made_for_many_is_made_in_nobodys_name(app: App) -> None:
    def work(tx: Transaction, asked: Sequence[str]) -> Sequence[str]:
        record_change(tx)
        return asked

    together = Batched(app.db, work)
    with audited(witness(app, "ann")):
        assert await together("who?") == "who?"
    assert await told(app) == []


@on_sqlite
async def test_a_change_that_fails_is_not_told(app: App) -> None:
    await new_user(app)
    seen = witness(app, "ann")
    with audited(seen), pytest.raises(Conflict):
        await app.users.create("ada", PASSWORD, {})
    assert (seen.has_recorded, await told(app)) == (False, [])


@on_sqlite
async def test_a_call_is_told_once_whether_its_front_door_does_so_or_not(app: App) -> None:
    silent, told_by_door = witness(app, "ann"), witness(app, "bob")
    with audited(told_by_door):
        await app.users.create("ada", PASSWORD, {})
    for each in (silent, told_by_door):
        await each.record_afterwards()
    assert [actor for actor, _ in await told(app)] == ["user:bob", "user:ann"]
