"""What was refused is told by the audit log, but never so often that it fills it."""

from __future__ import annotations

import pytest

from tests.access.acting import HERE, PASSWORD, new_user
from tests.conftest import SetClock, on_sqlite
from weft.access import audit
from weft.access.audit import MINUTE, MOST_EACH, MOST_IN_ALL
from weft.access.model import Caller
from weft.app import App
from weft.errors import TooManyLogins, Unknown

ANN = Caller(name="ann", kind="user", address=HERE)


async def refuse(app: App, times: int, caller: Caller = ANN, action: str = "runs.cancel") -> None:
    for _ in range(times):
        await app.denied_requests.tell(caller, action, "not_allowed", project="bank", target="run 7")


async def told(app: App) -> list[tuple[str, str, str | None]]:
    return [(each.actor, each.action, each.data) async for each in app.audit.every()]


@on_sqlite
async def test_of_one_caller_and_action_a_few_are_told_in_a_minute_and_the_rest_is_counted(
    app: App, clock: SetClock
) -> None:
    await refuse(app, MOST_EACH + 7)
    once = ("user:ann", "runs.cancel", '{"refused":true,"code":"not_allowed"}')
    assert await told(app) == [once] * MOST_EACH
    assert await app.denied_requests.tick() == 0  # the minute is not over
    clock.now += MINUTE
    assert await app.denied_requests.tick() == 1
    assert (await told(app))[-1] == ("user:ann", "runs.cancel", '{"refused":true,"left_out":7}')
    await refuse(app, 1)
    assert (await told(app))[-1] == once


@on_sqlite
async def test_many_callers_together_do_not_fill_the_log_either(app: App, clock: SetClock) -> None:
    for number in range(MOST_IN_ALL + 40):
        await refuse(app, 1, Caller(name="nobody", kind="nobody", address=f"192.0.2.{number}"))
    assert len(await told(app)) == MOST_IN_ALL
    clock.now += MINUTE
    assert await app.denied_requests.tick() == 40
    assert len(await told(app)) == MOST_IN_ALL + 40


@on_sqlite
async def test_more_callers_than_are_remembered_are_counted_together(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_CALLERS", 3)
    for number in range(20):
        await refuse(app, 1, Caller(name="nobody", kind="nobody", address=f"192.0.2.{number}"))
    clock.now += MINUTE
    await app.denied_requests.tick()
    found = await told(app)
    assert len(found) == 3 + MOST_EACH + 1
    assert found[-1] == ("nobody:many", "*", f'{{"refused":true,"left_out":{17 - MOST_EACH}}}')


async def test_a_refused_login_is_told_with_the_name_of_the_user_if_there_is_one(app: App) -> None:
    await new_user(app)
    for name in ("ada", "hunter22"):
        with pytest.raises(Unknown):
            await app.logins.check(name, "a wrong password", HERE)
    found = [each async for each in app.audit.every()]
    assert [(each.actor, each.address, each.action, each.target) for each in found] == [
        ("nobody:nobody", HERE, "session.start", "user ada"),
        ("nobody:nobody", HERE, "session.start", ""),  # perhaps a password that was typed in the wrong place
    ]
    assert "hunter22" not in repr(found)


@on_sqlite
async def test_a_login_that_was_not_looked_at_is_told(app: App) -> None:
    await new_user(app)
    await app.users.deactivate("ada")
    for _ in range(5):
        with pytest.raises(Unknown):
            await app.logins.check("ada", PASSWORD, HERE)
    with pytest.raises(TooManyLogins):
        await app.logins.check("ada", PASSWORD, "198.51.100.9")
    *_, last = [each async for each in app.audit.every()]
    assert (last.address, last.data) == ("198.51.100.9", '{"refused":true,"code":"too_many_requests"}')
