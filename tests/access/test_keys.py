"""API keys: what makes one count, and how soon a revoked one does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import event

from tests.access.acting import is_refused, new_user
from tests.cases import for_each
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.waiting import eventually
from weft.access import keys
from weft.access.model import EVERYWHERE, Grants, Role, within
from weft.app import App


async def test_a_revoked_key_is_refused_soon_even_where_it_was_just_believed(app: App, another_app: OpenApp) -> None:
    other = await another_app()
    key, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test")
    assert (await other.keys.caller(token)).name == "k"
    await app.keys.revoke(key.id)
    assert await is_refused(app, token)
    assert await eventually(lambda: is_refused(other, token))
    assert keys.BELIEVED_SECONDS <= 0.2


@on_sqlite
async def test_a_key_that_expires_is_refused_although_it_was_believed(app: App, clock: SetClock) -> None:
    _, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test", expires_at=clock() + 1)
    assert not await is_refused(app, token)
    clock.forward(1)
    assert await is_refused(app, token)


@on_sqlite
async def test_a_token_that_differs_in_one_character_is_nobodys(app: App) -> None:
    _, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test")
    last = "0" if token[-1] != "0" else "1"
    for guess in (
        token[:-1] + last,
        token[:-1],
        token + "0",
        token.upper(),
        token.replace("weft", "left"),
        " " + token,
    ):
        assert await is_refused(app, guess), guess


@on_sqlite
@for_each("token", ["", "_", "weft__", "weft_x_y_z", "é" * 50, "\ud800", "weft_" + "a" * 10**5])
async def test_what_is_no_token_is_nobodys(app: App, token: str) -> None:
    assert await is_refused(app, token)


async def test_the_use_of_a_key_is_noted(app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "NOTE_SECONDS", 0.0)
    key, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test")
    assert key.last_used_at is None
    clock.forward(5)
    await app.keys.caller(token)
    assert (await app.keys.get(key.id)).last_used_at == clock()


VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN


@for_each(
    ("grants", "limit", "left"),
    [
        ({"a": ADMIN}, {"a": ADMIN}, {"a": ADMIN}),
        ({"a": ADMIN}, {"a": VIEWER}, {"a": VIEWER}),
        ({"a": VIEWER}, {"a": ADMIN}, {"a": VIEWER}),
        ({"a": ADMIN}, {"b": ADMIN}, {}),
        ({"a": ADMIN}, {EVERYWHERE: OPERATOR}, {"a": OPERATOR}),
        ({EVERYWHERE: ADMIN}, {"a": OPERATOR}, {"a": OPERATOR}),
        ({EVERYWHERE: VIEWER}, {"a": ADMIN, EVERYWHERE: VIEWER}, {"a": VIEWER, EVERYWHERE: VIEWER}),
        ({EVERYWHERE: VIEWER, "a": ADMIN}, {EVERYWHERE: OPERATOR}, {EVERYWHERE: VIEWER, "a": OPERATOR}),
        ({EVERYWHERE: ADMIN}, {}, {}),
        ({}, {EVERYWHERE: ADMIN}, {}),
    ],
)
def test_what_is_within_a_limit_is_in_no_place_more_than_either(grants: Grants, limit: Grants, left: Grants) -> None:
    assert within(grants, limit) == left


async def test_a_key_is_worth_no_more_than_its_maker_is_now(app: App, another_app: OpenApp) -> None:
    await new_user(app, "ada", {"shop": ADMIN})
    key, token = await app.keys.create("k", {"shop": OPERATOR}, by="ada")
    assert (await app.keys.caller(token)).grants == {"shop": OPERATOR}
    pass_on, _ = await app.tokens.issue(await app.keys.caller(token), 60)
    await app.users.grant("ada", {"shop": VIEWER})
    assert (await app.keys.caller(token)).grants == {"shop": VIEWER}
    other = await another_app()
    assert (await other.keys.caller(token)).grants == {"shop": VIEWER}
    assert (await other.tokens.caller(pass_on)).grants == {"shop": VIEWER}
    await app.users.grant("ada", {"shop": ADMIN})
    assert (await (await another_app()).keys.caller(token)).grants == {"shop": OPERATOR}
    assert (await app.keys.get(key.id)).grants == {"shop": OPERATOR}


async def test_all_who_come_with_one_key_at_once_ask_the_database_once(app: App) -> None:
    _, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test")
    asked: list[str] = []

    @event.listens_for(app.db.engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM api_keys" in statement:
            asked.append(statement)

    found = await asyncio.gather(*(app.keys.caller(token) for _ in range(50)))
    assert {caller.name for caller in found} == {"k"}
    assert len(asked) == 1


async def test_one_who_goes_away_leaves_the_answer_to_the_others(app: App) -> None:
    _, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test")
    first, second = (asyncio.create_task(app.keys.caller(token)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "k"
