"""The login throttle: how many passwords may be tried, by whom, and what the answers give away."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from tests.access.acting import HERE, PASSWORD, Verifications, new_user
from tests.conftest import OpenApp, SetClock, on_sqlite
from weft.access.sessions import delay_seconds
from weft.app import App
from weft.errors import TooManyLogins, Unknown

ELSEWHERE = "198.51.100.9"


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> Verifications:
    return Verifications(monkeypatch)


async def fail(app: App, times: int, name: str = "ada", address: str = HERE) -> None:
    for _ in range(times):
        with pytest.raises(Unknown):
            await app.logins.check(name, "a wrong password", address)


def test_delays_double_after_the_fifth_failure_up_to_a_quarter_of_an_hour() -> None:
    assert [delay_seconds(count) for count in range(4, 10)] == [0, 1, 2, 4, 8, 16]
    assert delay_seconds(15) == delay_seconds(10**6) == 900


async def test_after_five_failures_no_password_is_looked_at_not_even_the_right_one(
    app: App, verifications: Verifications
) -> None:
    await new_user(app)
    await fail(app, 5)
    with pytest.raises(TooManyLogins, match="try again in 1 s") as refused:
        await app.logins.check("ada", PASSWORD, HERE)
    assert refused.value.retry_after_seconds == 1
    assert verifications.count == 5


async def test_after_the_delay_the_right_password_is_right_and_clears_the_account(app: App, clock: SetClock) -> None:
    await new_user(app)
    await fail(app, 5)
    clock.forward(1)
    assert (await app.logins.check("ada", PASSWORD, HERE)).name == "ada"
    await fail(app, 5, address=ELSEWHERE)


async def test_an_account_is_held_back_wherever_the_attempts_come_from(app: App) -> None:
    await new_user(app)
    for number in range(5):
        await fail(app, 1, address=f"198.51.100.{number}")
    with pytest.raises(TooManyLogins):
        await app.logins.check("ada", PASSWORD, HERE)


async def test_an_address_is_held_back_whatever_names_it_tries(app: App) -> None:
    await new_user(app)
    for number in range(5):
        await fail(app, 1, name=f"user{number}")
    with pytest.raises(TooManyLogins):
        await app.logins.check("ada", PASSWORD, HERE)
    assert (await app.logins.check("ada", PASSWORD, ELSEWHERE)).name == "ada"


async def test_one_login_does_not_buy_an_address_five_more_guesses(app: App, clock: SetClock) -> None:
    await new_user(app, "mine")
    for number in range(5):
        await fail(app, 1, name=f"user{number}")
    clock.forward(1)
    await app.logins.check("mine", PASSWORD, HERE)
    await fail(app, 1, name="user9")
    with pytest.raises(TooManyLogins, match="try again in 2 s"):
        await app.logins.check("mine", PASSWORD, HERE)


@on_sqlite
async def test_addresses_of_one_ipv6_network_count_as_one(app: App) -> None:
    for number in range(5):
        await fail(app, 1, name=f"user{number}", address=f"2001:db8::{number}")
    with pytest.raises(TooManyLogins):
        await app.logins.check("ada", PASSWORD, "2001:db8::ffff")
    await fail(app, 1, address="2001:db8:1::1")


async def test_all_gateways_count_together(app: App, another_app: OpenApp, verifications: Verifications) -> None:
    await new_user(app)
    gateways = [app, await another_app(), await another_app()]
    for number in range(5):
        await fail(gateways[number % 3], 1)
    for gateway in gateways:
        with pytest.raises(TooManyLogins):
            await gateway.logins.check("ada", PASSWORD, HERE)
    assert verifications.count == 5


async def test_attempts_at_the_same_moment_are_counted_one_after_another(
    app: App, another_app: OpenApp, verifications: Verifications
) -> None:
    await new_user(app)
    gateways = [app, await another_app()]
    attempts = [gateways[n % 2].logins.check("ada", "a wrong password", HERE) for n in range(60)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert {type(each) for each in outcomes} == {Unknown, TooManyLogins}
    assert verifications.count == 5


@on_sqlite
async def test_of_a_thousand_wrong_logins_in_ten_minutes_twenty_are_looked_at(
    app: App, clock: SetClock, verifications: Verifications
) -> None:
    await new_user(app)
    for _ in range(1000):
        with pytest.raises((Unknown, TooManyLogins)):
            await app.logins.check("ada", "a wrong password", HERE)
        clock.forward(0.6)
    assert 10 <= verifications.count <= 20


async def test_what_failed_long_ago_is_not_held_against_anybody(app: App, clock: SetClock) -> None:
    await new_user(app)
    await fail(app, 5)
    clock.forward(3601)
    await fail(app, 5)
    clock.forward(3601)
    assert await app.throttle.forget_old() == 2


@on_sqlite
async def test_a_name_that_nobody_has_is_answered_and_held_back_as_one_that_somebody_has(
    app: App, verifications: Verifications
) -> None:
    await new_user(app)
    await new_user(app, "gone")
    await app.users.deactivate("gone")
    told = []
    for number, name in enumerate(("ada", "nobody", "gone", "", "é" * 500, "\ud800")):
        address = f"198.51.100.{number}"
        with pytest.raises(Unknown) as refused:
            await app.logins.check(name, "a wrong password", address)
        await fail(app, 4, name, address)
        with pytest.raises(TooManyLogins) as blocked:
            await app.logins.check(name, "a wrong password", address)
        told.append((str(refused.value), str(blocked.value)))
    assert len(set(told)) == 1
    assert verifications.count == 5 * 6


@on_sqlite
async def test_a_name_that_nobody_has_costs_as_much_as_one_that_somebody_has(app: App, clock: SetClock) -> None:
    """Measured in time of the processor, which other processes do not disturb."""
    await new_user(app)
    took: dict[str, list[float]] = {"ada": [], "nobody": []}
    for _ in range(16):
        for name, times in took.items():
            began = time.process_time()
            await fail(app, 1, name)
            times.append(time.process_time() - began)
            clock.forward(3601)
    known, unknown = (statistics.median(times[1:]) for times in took.values())
    assert known > 0.005
    assert abs(known - unknown) < 0.005


@on_sqlite
async def test_a_client_that_sends_its_password_with_every_call_is_checked_once(
    app: App, verifications: Verifications
) -> None:
    await new_user(app)
    users = await asyncio.gather(*(app.logins.check_again("ada", PASSWORD, HERE) for _ in range(50)))
    assert {user.name for user in users} == {"ada"}
    assert (await app.logins.check_again("ada", PASSWORD, HERE)).name == "ada"
    assert verifications.count == 1


@on_sqlite
async def test_a_password_that_was_believed_is_not_when_it_has_changed(app: App) -> None:
    await new_user(app)
    await app.logins.check_again("ada", PASSWORD, HERE)
    await app.users.set_password("ada", "a new password")
    with pytest.raises(Unknown):
        await app.logins.check_again("ada", PASSWORD, HERE)
    await app.logins.check_again("ada", "a new password", HERE)
    await app.users.deactivate("ada")
    with pytest.raises(Unknown):
        await app.logins.check_again("ada", "a new password", HERE)


@on_sqlite
async def test_wrong_passwords_sent_with_every_call_are_throttled(app: App, verifications: Verifications) -> None:
    await new_user(app)
    for number in range(5):
        with pytest.raises(Unknown):
            await app.logins.check_again("ada", f"wrong {number}", HERE)
    with pytest.raises(TooManyLogins):
        await app.logins.check_again("ada", "wrong 6", HERE)
    assert verifications.count == 5
