"""Users and keys of a weft elsewhere are kept as those of one that is here."""

from __future__ import annotations

import pytest

from tests.conftest import SetClock, on_sqlite
from weft.access.model import Role
from weft.app import App
from weft.client import Client, connect
from weft.clock import seconds
from weft.errors import ChangedMeanwhile, Conflict, NotAllowed, NotFound, Unknown

PASSWORD = "correct horse battery"
pytestmark = on_sqlite


async def test_users_are_kept_elsewhere(app: App, far: Client) -> None:
    made = await far.users.create("Ada", PASSWORD, {"shop": Role.VIEWER})
    assert made == await app.users.get("ada") == await far.users.get("ada")
    assert await far.users.all() == [made]
    assert (await far.users.grant("ada", {"shop": Role.ADMIN})).grants == {"shop": Role.ADMIN}
    assert (await far.users.deactivate("ada")).active is False
    assert (await far.users.activate("ada")).active
    assert (await far.users.set_password("ada", "another password")).name == "ada"
    assert (await app.logins.check("ada", "another password", "")).name == "ada"


async def test_a_user_that_somebody_changed_since_it_was_read_is_not_changed(app: App, far: Client) -> None:
    await app.users.create("ada", PASSWORD, {"shop": Role.VIEWER})
    await far.users.get("ada")
    await app.users.grant("ada", {"shop": Role.OPERATOR})
    with pytest.raises(ChangedMeanwhile, match=r"user ada .* changed meanwhile; read it again"):
        await far.users.grant("ada", {"shop": Role.ADMIN})
    assert (await far.users.get("ada")).grants == {"shop": Role.OPERATOR}
    assert (await far.users.grant("ada", {"shop": Role.ADMIN})).grants == {"shop": Role.ADMIN}


async def test_what_cannot_be_is_told_as_it_is_here(far: Client) -> None:
    await far.users.create("ada", PASSWORD, {})
    with pytest.raises(Conflict, match="there is a user ada already"):
        await far.users.create("ada", PASSWORD, {})
    with pytest.raises(NotFound, match="there is no user bob"):
        await far.users.get("bob")
    with pytest.raises(NotFound, match="there is no key 99"):
        await far.keys.revoke(99)


async def test_keys_are_kept_elsewhere(app: App, far: Client, clock: SetClock) -> None:
    until = clock() + seconds(3600)
    key, token = await far.keys.create("ci", {"shop": Role.OPERATOR}, expires_at=until)
    assert key == await app.keys.get(key.id)
    assert (await app.keys.caller(token)).grants == {"shop": Role.OPERATOR}
    assert [each.name for each in await far.keys.all()] == ["test", "ci"]
    assert (await far.keys.revoke(key.id)).revoked_at is not None
    with pytest.raises(Unknown):
        await app.keys.caller(token)


async def test_more_than_a_page_of_keys_is_listed(app: App, far: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.client.people.MOST_A_PAGE", 2)
    for number in range(4):
        await app.keys.create(f"k{number}", {"shop": Role.VIEWER}, by="test")
    assert len(await far.keys.all()) == 5


async def test_a_key_that_may_not_is_refused_there(app: App, far: Client) -> None:
    _, token = await far.keys.create("weak", {"shop": Role.VIEWER})
    async with connect(far.connection.url, token) as weak:
        with pytest.raises(NotAllowed):
            await weak.users.all()
        with pytest.raises(NotAllowed):
            await weak.keys.create("more", {"shop": Role.ADMIN})
