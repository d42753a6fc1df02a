"""Sessions: how long one counts and what ends it."""

from __future__ import annotations

from tests.access.acting import new_user
from tests.conftest import OpenApp, SetClock
from weft.app import App

HOUR = 3600.0


async def test_a_session_tells_whose_it_is_on_every_gateway(app: App, another_app: OpenApp) -> None:
    user = await new_user(app)
    session, session_id = await app.sessions.start(user, address="192.0.2.7", agent="browser")
    found = await (await another_app()).sessions.find(session_id)
    assert found == session
    assert found is not None
    assert found.user == user


async def test_an_id_that_nobody_was_given_is_none(app: App) -> None:
    await app.sessions.start(await new_user(app))
    for guess in ("", "x", "é", "\ud800", "a" * 100_000):
        assert await app.sessions.find(guess) is None


async def test_a_session_ends_after_twelve_idle_hours(app: App, clock: SetClock) -> None:
    _, session_id = await app.sessions.start(await new_user(app))
    clock.forward(11.9 * HOUR)
    assert await app.sessions.find(session_id) is not None
    clock.forward(11.9 * HOUR)
    assert await app.sessions.find(session_id) is not None
    clock.forward(12.1 * HOUR)
    assert await app.sessions.find(session_id) is None


async def test_a_session_ends_after_seven_days_however_busy(app: App, clock: SetClock) -> None:
    _, session_id = await app.sessions.start(await new_user(app))
    for _ in range(7 * 24):
        assert await app.sessions.find(session_id) is not None
        clock.forward(HOUR)
    clock.forward(1)
    assert await app.sessions.find(session_id) is None


async def test_a_login_replaces_the_session_that_the_browser_came_with(app: App) -> None:
    user = await new_user(app)
    _, old = await app.sessions.start(user)
    _, other = await app.sessions.start(user)
    _, new = await app.sessions.start(user, instead_of=old)
    assert len({old, other, new}) == 3
    assert await app.sessions.find(old) is None
    assert await app.sessions.find(other) is not None
    assert await app.sessions.find(new) is not None


async def test_ending_all_sessions_of_a_user_leaves_those_of_others(app: App) -> None:
    ada, bob = await new_user(app, "ada"), await new_user(app, "bob")
    mine = [(await app.sessions.start(ada))[1] for _ in range(2)]
    _, another = await app.sessions.start(bob)
    assert await app.sessions.end_all(ada.id) == 2
    assert [await app.sessions.find(each) for each in mine] == [None, None]
    assert await app.sessions.find(another) is not None


async def test_sessions_that_no_longer_count_are_forgotten(app: App, clock: SetClock) -> None:
    user = await new_user(app)
    await app.sessions.start(user)
    clock.forward(12.5 * HOUR)
    _, young = await app.sessions.start(user)
    assert await app.sessions.forget_old() == 1
    assert await app.sessions.find(young) is not None
