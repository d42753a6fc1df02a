"""The circuit breaker of a webhook: a receiver that is down is left alone, probed by one, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.runs.acting import submit, submit_many
from tests.waiting import eventually
from tests.webhooks.receiving import Receiver
from weft import events
from weft.app import App
from weft.webhooks import model
from weft.webhooks.model import (
    CLOSED_CIRCUIT,
    FAILURES_TO_OPEN,
    LONGEST_OPEN_SECONDS,
    DeliveryState,
    Webhook,
    WebhookCircuit,
)
from weft.webhooks.sender import CLAIM_SECONDS, DOWN_SECONDS


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than what a single delivery waits for its next try, so that the two are told apart."""
    monkeypatch.setattr(model, "FIRST_OPEN_SECONDS", 30.0)


async def deliver(app: App) -> None:
    await app.courier.tick()
    await app.courier.rest()


async def circuit_of(app: App, webhook: Webhook) -> WebhookCircuit:
    return (await app.webhooks.circuits([webhook.id]))[webhook.id]


async def told(app: App) -> list[tuple[str, str, Any]]:
    """The events of breakers: kind, project and data."""
    found = await app.db.read(lambda tx: events.beyond(tx, 0, [], 10_000))
    return [(each.kind, each.project, dict(each.data)) for each in found if each.kind.startswith("breaker_")]


async def opened(app: App, receiver: Receiver, count: int = 20) -> Webhook:
    """A webhook whose receiver fails, with so many deliveries and an open breaker."""
    webhook, _ = await app.webhooks.create(receiver.url, project="shop", kinds=["run_queued"], by="test")
    receiver.status = 500
    await submit_many(app, count, project="shop")
    await deliver(app)
    return webhook


async def test_a_receiver_that_fails_again_and_again_is_left_alone(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    circuit = await circuit_of(app, webhook)
    assert (circuit.state(clock.now), circuit.failures) == ("open", FAILURES_TO_OPEN)
    tried = len(receiver.received)
    assert FAILURES_TO_OPEN <= tried < 20
    clock.forward(29)  # beyond the pause of those that have failed
    await deliver(app)
    assert len(receiver.received) == tried
    found = await app.webhooks.deliveries(webhook.id, limit=50)
    assert sum(each.tries for each in found) == tried, "what waits spends no tries"
    assert await told(app) == [("breaker_opened", "shop", {"webhook": webhook.id, "failures": FAILURES_TO_OPEN})]


async def test_one_delivery_probes_a_receiver_and_a_longer_pause_follows_where_it_fails(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    for pause in (30, 60, 120):
        tried = len(receiver.received)
        clock.forward(pause - 1)
        await deliver(app)
        assert len(receiver.received) == tried
        clock.forward(1)
        await deliver(app)
        assert len(receiver.received) == tried + 1
        assert (await circuit_of(app, webhook)).pause_seconds == 2 * pause
    assert len(await told(app)) == 1, "a probe that fails is no news"


async def test_a_probe_that_succeeds_closes_the_breaker_and_everything_arrives(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    receiver.received.clear()
    receiver.status = 204
    clock.forward(30)
    await deliver(app)
    assert len(set(receiver.deliveries)) == len(receiver.received) == 20
    assert await circuit_of(app, webhook) == CLOSED_CIRCUIT
    assert [kind for kind, _, _ in await told(app)] == ["breaker_opened", "breaker_closed"]


async def test_couriers_that_both_believe_they_lead_make_one_probe(
    app: App, another_app: OpenApp, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    tried = len(receiver.received)
    clock.forward(30)
    receiver.may_answer.clear()
    other = await another_app()
    await app.courier.tick()
    await eventually(lambda: len(receiver.received) == tried + 1)
    await other.courier._send_due(webhook)
    assert len(receiver.received) == tried + 1
    assert (await circuit_of(app, webhook)).state(clock.now) == "half-open"
    receiver.may_answer.set()
    await app.courier.rest()


async def test_a_probe_whose_courier_died_is_made_again(
    app: App, another_app: OpenApp, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    receiver.may_answer.clear()
    tried = len(receiver.received)
    clock.forward(30)
    await app.courier.tick()
    await eventually(lambda: len(receiver.received) == tried + 1)
    await app.courier.close()
    receiver.may_answer.set()
    receiver.status = 204
    other = await another_app()
    await deliver(other)
    assert len(receiver.received) == tried + 1
    clock.forward(CLAIM_SECONDS)
    await deliver(other)
    assert await app.webhooks.waiting([webhook.id]) == {}
    assert await circuit_of(app, webhook) == CLOSED_CIRCUIT


@on_sqlite
async def test_failures_with_a_success_between_them_open_nothing(app: App, receiver: Receiver, clock: SetClock) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, project="shop", kinds=["run_queued"], by="test")
    for number in range(3 * FAILURES_TO_OPEN):
        receiver.status = 204 if number % FAILURES_TO_OPEN == FAILURES_TO_OPEN - 1 else 500
        await submit(app, project="shop")
        await deliver(app)
        assert (await circuit_of(app, webhook)).is_closed
    assert len(receiver.received) == 3 * FAILURES_TO_OPEN
    assert await told(app) == []


@on_sqlite
async def test_others_are_told_while_a_receiver_is_down(app: App, receiver: Receiver) -> None:
    await opened(app, receiver)
    tried = len(receiver.received)
    sound = Receiver()
    await sound.start()
    other, _ = await app.webhooks.create(sound.url, kinds=["run_queued"], by="test")
    await submit_many(app, 3, project="shop")
    await app.courier.tick()
    assert list(app.courier._sending) == [other.id], "nothing is begun for the one that is down"
    await app.courier.rest()
    assert (len(sound.received), len(receiver.received)) == (3, tried)
    await sound.stop()


@on_sqlite
async def test_a_webhook_hears_of_the_breakers_of_others_and_not_of_its_own(app: App, receiver: Receiver) -> None:
    failing = Receiver()
    await failing.start()
    failing.status = 500
    await app.webhooks.create(failing.url, by="test")
    await app.webhooks.create(receiver.url, kinds=["breaker_opened"], by="test")
    await submit_many(app, FAILURES_TO_OPEN, project="shop")
    await deliver(app)
    before = len(await app.webhooks.deliveries(1, limit=500))
    await deliver(app)
    assert [each.action for each in receiver.received] == ["breaker_opened"]
    assert len(await app.webhooks.deliveries(1, limit=500)) == before
    await failing.stop()


@on_sqlite
async def test_a_new_address_is_tried_at_once(app: App, receiver: Receiver) -> None:
    webhook = await opened(app, receiver)
    sound = Receiver()
    await sound.start()
    await app.webhooks.change(webhook.id, url=sound.url)
    assert await circuit_of(app, webhook) == CLOSED_CIRCUIT
    await deliver(app)
    assert len(sound.received) == 12, "those that have failed once have a pause of their own"
    assert [kind for kind, _, _ in await told(app)] == ["breaker_opened", "breaker_closed"]
    await sound.stop()


async def test_what_has_waited_for_days_for_a_receiver_that_is_down_is_given_up(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook = await opened(app, receiver)
    clock.forward(DOWN_SECONDS / 2)
    await app.courier.forget_old()
    assert (await app.webhooks.waiting([webhook.id]))[webhook.id][0] == 20
    clock.forward(DOWN_SECONDS)
    await app.courier.forget_old()
    found = await app.webhooks.deliveries(webhook.id, limit=50)
    assert {each.state for each in found} == {DeliveryState.GIVEN_UP}
    assert {each.problem for each in found} == {"the receiver was down, and it has waited for 3 days"}


def test_pauses_of_a_breaker_grow_to_a_limit() -> None:
    circuit, now = CLOSED_CIRCUIT, 0
    for _ in range(FAILURES_TO_OPEN + 10):
        circuit = circuit.failed(now)
        now = circuit.open_until or now
    assert circuit.pause_seconds == LONGEST_OPEN_SECONDS
    assert (circuit.room(now - 1, 8), circuit.room(now, 8)) == (0, 1)
