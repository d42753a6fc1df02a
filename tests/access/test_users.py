"""Users: who there is, who the first one is, and what a change of one ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.access.acting import HERE, PASSWORD, is_refused, new_user
from tests.cases import for_each
from tests.conftest import OpenApp, on_sqlite, plain_engine
from tests.waiting import eventually
from weft.access import passwords
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.db import schema
from weft.errors import Conflict, Invalid, NotFound, Unknown


async def test_the_first_start_makes_an_admin_who_can_log_in(app: App) -> None:
    password = await app.users.create_first()
    assert password is not None
    user = await app.logins.check("admin", password, HERE)
    assert user.grants == {EVERYWHERE: Role.ADMIN}


async def test_the_second_start_makes_nobody_and_tells_nothing(app: App) -> None:
    await app.users.create_first()
    assert await app.users.create_first() is None
    assert await app.users.create_first("another password") is None
    assert len(await app.users.all()) == 1


async def test_a_password_that_was_chosen_is_not_told(app: App) -> None:
    assert await app.users.create_first(PASSWORD) is None
    assert (await app.logins.check("admin", PASSWORD, HERE)).name == "admin"


async def test_starts_at_the_same_moment_make_one_admin(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app(), await another_app()]
    told = await asyncio.gather(*(each.users.create_first() for each in apps * 2))
    (password,) = [each for each in told if each is not None]
    assert len(await app.users.all()) == 1
    assert (await app.logins.check("admin", password, HERE)).active


def test_a_generated_password_has_at_least_128_random_bits() -> None:
    made = {passwords.generate() for _ in range(200)}
    letters = set("".join(made)) - {"-"}
    assert len(made) == 200
    assert len(letters) == 32  # five bits each
    assert all(len(each.replace("-", "")) * 5 >= 128 for each in made)


async def test_a_name_is_kept_in_small_letters_and_taken_once(app: App) -> None:
    assert (await new_user(app, "Ada")).name == "ada"
    with pytest.raises(Conflict, match="there is a user ada already"):
        await new_user(app, "ADA")
    assert (await app.users.get("aDa")).name == "ada"


async def test_users_made_at_the_same_moment_with_one_name_are_one(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app()]
    made = await asyncio.gather(*(new_user(each) for each in apps * 2), return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in made) == 1
    assert all(isinstance(each, Conflict) for each in made if isinstance(each, BaseException))


@on_sqlite
@for_each("name", ["", "-ada", "a b", "ada\n", "é", "a" * 101, "a:b", "../ada", "ada\x00"])
async def test_a_name_that_is_none_is_refused(app: App, name: str) -> None:
    with pytest.raises(Invalid, match="the name of a user"):
        await new_user(app, name)


@on_sqlite
@pytest.mark.parametrize("password", ["", "short", "p" * 1001, "\ud800 is no character"])
async def test_a_password_that_is_none_is_refused_and_not_repeated(app: App, password: str) -> None:
    with pytest.raises(Invalid) as refused:
        await app.users.create("ada", password, {})
    assert not password or password not in str(refused.value)
    assert await app.users.all() == []


@on_sqlite
@pytest.mark.parametrize("project", ["", "a b", "..", "**", "x" * 101])
async def test_a_grant_of_no_project_is_refused(app: App, project: str) -> None:
    with pytest.raises(Invalid, match="the project of a grant"):
        await app.users.create("ada", PASSWORD, {project: Role.VIEWER})


@on_sqlite
async def test_who_is_not_there_is_not_found(app: App) -> None:
    for act in (app.users.get, app.users.activate, app.users.deactivate):
        with pytest.raises(NotFound, match="there is no user ada"):
            await act("ada")


async def test_a_password_change_ends_every_session(app: App) -> None:
    user = await new_user(app)
    sessions = [(await app.sessions.start(user))[1] for _ in range(3)]
    await app.users.set_password("ada", "a new password")
    assert [await app.sessions.find(each) for each in sessions] == [None] * 3
    with pytest.raises(Unknown):
        await app.logins.check("ada", PASSWORD, HERE)
    assert (await app.logins.check("ada", "a new password", HERE)).name == "ada"


async def test_a_deactivated_user_is_out_at_once_and_so_are_the_users_keys(app: App, another_app: OpenApp) -> None:
    await new_user(app, "root", {EVERYWHERE: Role.ADMIN})
    user = await new_user(app)
    _, session_id = await app.sessions.start(user)
    key, token = await app.keys.create("mine", {"shop": Role.VIEWER}, by="ada")
    other, _ = await app.keys.create("another's", {"shop": Role.VIEWER}, by="root")
    remote = await another_app()
    assert (await app.keys.caller(token)).name == (await remote.keys.caller(token)).name == "mine"
    assert (await app.users.deactivate("ada")).active is False
    with pytest.raises(Unknown):
        await app.keys.caller(token)
    assert await app.sessions.find(session_id) is None
    with pytest.raises(Unknown):
        await app.logins.check("ada", PASSWORD, HERE)
    assert (await app.keys.get(key.id)).revoked_at is not None
    assert (await app.keys.get(other.id)).revoked_at is None
    assert await eventually(lambda: is_refused(remote, token))


async def test_an_activated_user_logs_in_anew(app: App) -> None:
    await new_user(app)
    _, session_id = await app.sessions.start(await app.users.get("ada"))
    await app.users.deactivate("ada")
    assert (await app.users.activate("ada")).active
    assert await app.sessions.find(session_id) is None
    assert (await app.logins.check("ada", PASSWORD, HERE)).active


async def test_other_grants_replace_the_old_ones_and_end_the_sessions(app: App) -> None:
    user = await new_user(app)
    _, session_id = await app.sessions.start(user)
    assert (await app.users.grant("ada", {"shop": Role.VIEWER})).grants == {"shop": Role.VIEWER}
    assert await app.sessions.find(session_id) is None


async def test_the_last_admin_can_neither_be_shut_out_nor_demoted(app: App) -> None:
    await app.users.create_first(PASSWORD)
    with pytest.raises(Conflict, match="the last admin"):
        await app.users.deactivate("admin")
    with pytest.raises(Conflict, match="the last admin"):
        await app.users.grant("admin", {EVERYWHERE: Role.DEVELOPER})
    admin = await app.users.get("admin")
    assert (admin.active, admin.grants) == (True, {EVERYWHERE: Role.ADMIN})
    await new_user(app, "ada", {EVERYWHERE: Role.ADMIN})
    assert (await app.users.deactivate("admin")).active is False


async def test_no_password_and_no_secret_of_a_key_or_session_is_in_the_database(app: App, database_url: str) -> None:
    """What a copy of the database holds opens no door: neither the words themselves, nor what is kept of them."""
    user = await new_user(app)
    key, token = await app.keys.create("mine", {EVERYWHERE: Role.ADMIN}, by="ada")
    _, session_id = await app.sessions.start(user)
    with plain_engine(database_url).connect() as connection:
        rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(table.select())]
    dump = [str(value) for row in rows for value in row]
    assert not [value for value in dump if any(word in value for word in (PASSWORD, token.split("_")[2], session_id))]
    for value in dump:
        assert await app.sessions.find(value) is None
        for guess in (value, f"weft_{key.prefix}_{value}"):
            with pytest.raises(Unknown):
                await app.keys.caller(guess)
    hashed = next(value for value in dump if value.startswith("$argon2id$v=19$m=19456,t=2,p=1$"))
    with pytest.raises(Unknown):
        await app.logins.check("ada", hashed, HERE)
