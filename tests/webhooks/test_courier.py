"""Deliveries: signed, at least once, tried again, and never of what a webhook did not ask for."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import msgspec
import pytest

from tests.cases import for_each
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.runs.acting import Hand, submit, submit_many
from tests.waiting import eventually
from tests.webhooks.receiving import Receiver
from weft import events
from weft.app import App
from weft.db import schema
from weft.db.database import Unit
from weft.errors import Invalid, NotFound
from weft.webhooks import sender as courier_module
from weft.webhooks.model import (
    LONGEST_PAUSE_SECONDS,
    MOST_TRIES,
    DeliveryState,
    WebhookDelivery,
    is_genuine,
    pause_seconds,
)
from weft.webhooks.sender import CLAIM_SECONDS, MOST_AT_ONCE


async def deliver(app: App) -> None:
    await app.courier.tick()
    await app.courier.rest()


async def test_an_event_arrives_signed_in_an_envelope(app: App, receiver: Receiver, clock: SetClock) -> None:
    _, secret = await app.webhooks.create(receiver.url, project="shop", by="test")
    run_id = await submit(app, correlation_id="order-7")
    await deliver(app)
    [message] = receiver.received
    envelope = msgspec.json.decode(message.body)
    assert (envelope["service"], envelope["action"], envelope["correlation_id"]) == ("weft", "run_queued", "order-7")
    assert envelope["payload"]["run_id"] == run_id
    assert (message.headers["Weft-Event"], message.headers["Content-Type"]) == ("run_queued", "application/json")
    signed = f"{message.headers['Weft-Timestamp']}.".encode() + message.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert message.headers["Weft-Signature"] == f"v1={expected}"
    now = clock.now / 1e6
    assert is_genuine(secret, message.headers, message.body, now)
    assert not is_genuine(secret, message.headers, message.body + b" ", now)
    assert not is_genuine("another", message.headers, message.body, now)
    assert not is_genuine(secret, message.headers | {"Weft-Timestamp": "1" * 5000}, message.body, now)
    assert not is_genuine(secret, message.headers, message.body, now + 301), "a message that was recorded is refused"


async def test_a_webhook_is_told_only_what_it_asked_for(app: App, receiver: Receiver) -> None:
    await app.webhooks.create(receiver.url, project="shop", kinds=["run_started"], by="test")
    await submit(app, project="secret")
    await submit(app, project="shop")
    hand = await Hand.join(app)
    await hand.lease()
    await deliver(app)
    [message] = receiver.received
    assert msgspec.json.decode(message.body)["payload"]["project"] == "shop"
    assert message.action == "run_started"


@on_sqlite
async def test_a_password_in_a_reason_does_not_leave_weft(app: App, receiver: Receiver) -> None:
    await app.webhooks.create(receiver.url, project="shop", kinds=["run_finished"], by="test")
    await submit(app)
    hand = await Hand.join(app)
    assert await hand.end(await hand.lease_one(), "failed", reason="amqp://u:hunter22@h did not answer")
    await deliver(app)
    [message] = receiver.received
    reason = msgspec.json.decode(message.body)["payload"]["data"]["reason"]
    assert reason.startswith("amqp://••••@h did not answer")


async def test_a_webhook_of_all_projects_also_hears_of_workers(app: App, receiver: Receiver) -> None:
    await app.webhooks.create(receiver.url, by="test")
    await submit(app, project="shop")
    await Hand.join(app)
    await deliver(app)
    assert sorted(each.action for each in receiver.received) == ["run_queued", "worker_joined"]


async def test_what_happened_before_a_webhook_is_not_sent_to_it(app: App, receiver: Receiver) -> None:
    await submit_many(app, 3)
    await app.webhooks.create(receiver.url, by="test")
    await deliver(app)
    assert receiver.received == []


async def test_a_receiver_that_was_down_gets_everything_when_it_is_back(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    await receiver.stop()
    await submit_many(app, 20)
    await deliver(app)
    assert await app.webhooks.waiting([webhook.id]) == {webhook.id: (20, MOST_AT_ONCE)}
    [*_, failed] = await app.webhooks.deliveries(webhook.id)
    assert failed.problem is not None
    assert "cannot be reached" in failed.problem
    await receiver.start()
    await deliver(app)
    assert receiver.received == [], "it is not tried again before its pause is over"
    clock.forward(40)
    await deliver(app)
    assert len(set(receiver.deliveries)) == len(receiver.received) == 20
    assert await app.webhooks.waiting([webhook.id]) == {}


@pytest.mark.parametrize("status", [301, 404, 500])
@on_sqlite
async def test_an_answer_that_is_no_success_is_a_failure(
    app: App, receiver: Receiver, status: int, clock: SetClock
) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    receiver.status = status
    await submit(app)
    await deliver(app)
    [delivery] = await app.webhooks.deliveries(webhook.id)
    assert (delivery.state, delivery.status, delivery.tries) == (DeliveryState.WAITING, status, 1)
    assert delivery.problem == f"the receiver answered {status}"
    assert len(receiver.received) == 1, "a redirection is not followed"


@on_sqlite
async def test_a_delivery_is_given_up_after_about_a_day_and_can_be_replayed(
    app: App, receiver: Receiver, clock: SetClock
) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    receiver.status, began = 500, clock.now
    await submit(app)

    async def tried() -> WebhookDelivery:
        await deliver(app)
        return (await app.webhooks.deliveries(webhook.id))[0]

    while (delivery := await tried()).next_at is not None:
        clock.now = delivery.next_at
    assert (delivery.state, delivery.tries) == (DeliveryState.GIVEN_UP, MOST_TRIES)
    assert 18 < (clock.now - began) / 3.6e9 < 30
    receiver.status = 200
    await app.webhooks.replay(webhook.id, delivery.id)
    await deliver(app)
    assert receiver.deliveries == [str(delivery.id)] * (MOST_TRIES + 1)
    [delivery] = await app.webhooks.deliveries(webhook.id)
    assert (delivery.state, delivery.status, delivery.problem) == (DeliveryState.DELIVERED, 200, None)


async def test_a_courier_that_dies_before_it_wrote_down_a_delivery_lets_it_happen_again(
    app: App, another_app: OpenApp, receiver: Receiver, clock: SetClock
) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    await submit(app)
    receiver.may_answer.clear()
    await app.courier.tick()
    await eventually(lambda: receiver.received)
    await app.courier.close()
    receiver.may_answer.set()
    other = await another_app()
    await deliver(other)
    assert len(receiver.received) == 1, "the claim holds for a while"
    clock.forward(CLAIM_SECONDS)
    await deliver(other)
    assert receiver.deliveries == [receiver.deliveries[0]] * 2
    assert [each.state for each in await app.webhooks.deliveries(webhook.id)] == [DeliveryState.DELIVERED]


async def test_two_couriers_that_both_believe_they_lead_write_each_delivery_once(
    app: App, another_app: OpenApp, receiver: Receiver
) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    other = await another_app()
    for _ in range(5):
        await submit_many(app, 10)
        await asyncio.gather(app.courier._write_deliveries(), other.courier._write_deliveries())
    await app.courier._write_deliveries()
    found = await app.webhooks.deliveries(webhook.id, limit=500)
    assert len({each.event_id for each in found}) == len(found) == 50


async def test_an_event_that_commits_late_is_delivered(app: App, receiver: Receiver, clock: SetClock) -> None:
    await submit(app)
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    last = await app.db.read(events.last_id)

    def commit(event_id: int) -> Unit[int]:
        row = {"id": event_id, "at": clock.now, "kind": "run_queued", "project": "shop"}
        return lambda tx: tx.execute(schema.events.insert().values(row)).rowcount

    for event_id in (last + 2, last + 1):
        await app.db.transact(commit(event_id))
        await deliver(app)
    found = await app.webhooks.deliveries(webhook.id)
    assert [each.event_id for each in found] == [last + 1, last + 2]


@on_sqlite
async def test_a_silent_receiver_keeps_no_other_waiting(
    app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Receiver()
    silent.may_answer.clear()
    await silent.start()
    await app.webhooks.create(silent.url, by="test")
    await app.webhooks.create(receiver.url, by="test")
    await submit(app)
    await app.courier.tick()
    await eventually(lambda: receiver.received and silent.received)
    await submit(app)
    await eventually(lambda: app.courier._sending and any(task.done() for task in app.courier._sending.values()))
    await app.courier.tick()
    await eventually(lambda: len(receiver.received) == 2)
    silent.may_answer.set()
    await app.courier.rest()
    await silent.stop()


@on_sqlite
async def test_a_receiver_that_does_not_answer_is_left_after_a_while(
    app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "ANSWER_SECONDS", 0.1)
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    receiver.may_answer.clear()
    await submit(app)
    await deliver(app)
    [delivery] = await app.webhooks.deliveries(webhook.id)
    assert delivery.problem == "the receiver did not answer within 0.1 s"


@on_sqlite
async def test_a_new_key_of_the_installation_changes_nothing_for_receivers(app: App, receiver: Receiver) -> None:
    _, secret = await app.webhooks.create(receiver.url, by="test")
    assert await app.secrets.rotate() == 1
    await submit(app)
    await deliver(app)
    [message] = receiver.received
    assert is_genuine(secret, message.headers, message.body, int(message.headers["Weft-Timestamp"]))


async def test_a_webhook_that_is_not_active_is_sent_nothing(app: App, receiver: Receiver) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    await app.webhooks.change(webhook.id, active=False)
    await app.webhooks.create("http://127.0.0.1:9/", kinds=["worker_lost"], by="test")
    await submit(app)
    await deliver(app)
    await app.webhooks.change(webhook.id, active=True, kinds=["run_queued"])
    run_id = await submit(app)
    await deliver(app)
    assert [msgspec.json.decode(each.body)["payload"]["run_id"] for each in receiver.received] == [run_id]


async def test_a_webhook_that_is_switched_off_in_the_middle_is_sent_nothing_more(app: App, receiver: Receiver) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, kinds=["run_queued"], by="test")
    await submit_many(app, 3 * MOST_AT_ONCE)
    receiver.may_answer.clear()
    await app.courier.tick()
    await eventually(lambda: len(receiver.received) == MOST_AT_ONCE)
    await app.webhooks.change(webhook.id, active=False)
    receiver.may_answer.set()
    await app.courier.rest()
    await deliver(app)
    assert len(receiver.received) == MOST_AT_ONCE
    await app.webhooks.change(webhook.id, active=True)
    await deliver(app)
    assert len(set(receiver.deliveries)) == 3 * MOST_AT_ONCE


async def test_what_waits_goes_to_the_new_address_of_a_webhook(app: App, receiver: Receiver) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, kinds=["run_queued"], by="test")
    await submit_many(app, 2 * MOST_AT_ONCE)
    receiver.may_answer.clear()
    await app.courier.tick()
    await eventually(lambda: len(receiver.received) == MOST_AT_ONCE)
    await app.webhooks.change(webhook.id, url="http://127.0.0.1:9/")
    receiver.may_answer.set()
    await app.courier.rest()
    await deliver(app)
    assert len(receiver.received) == MOST_AT_ONCE


async def test_a_removed_webhook_leaves_nothing_behind(app: App, receiver: Receiver) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    await submit(app)
    await deliver(app)
    await app.webhooks.remove(webhook.id)
    with pytest.raises(NotFound, match=f"webhook {webhook.id}"):
        await app.webhooks.get(webhook.id)
    assert await app.webhooks.deliveries(webhook.id) == []
    await submit(app)
    await app.webhooks.create(receiver.url, by="test")
    await deliver(app)
    assert len(receiver.received) == 1, "the new one is told nothing of what happened while there was none"


async def test_deliveries_that_ended_long_ago_are_forgotten(app: App, receiver: Receiver, clock: SetClock) -> None:
    webhook, _ = await app.webhooks.create(receiver.url, by="test")
    await submit(app)
    await deliver(app)
    assert await app.courier.forget_old() == 0
    clock.forward(31 * 24 * 3600)
    await submit(app)
    await app.courier._write_deliveries()
    assert await app.courier.forget_old() == 1
    assert len(await app.webhooks.deliveries(webhook.id)) == 1


@on_sqlite
@for_each(
    "url", ["", "ftp://example.com/", "file:///etc/passwd", "http://", "//x", "http://a b/", "http://[::1", "x" * 3000]
)
async def test_an_address_that_is_none_is_refused(app: App, url: str) -> None:
    with pytest.raises(Invalid, match="url"):
        await app.webhooks.create(url, by="test")


@on_sqlite
async def test_a_password_in_an_address_is_refused_and_not_repeated(app: App) -> None:
    with pytest.raises(Invalid) as refused:
        await app.webhooks.create("https://user:hunter2@example.com/", by="test")
    assert "hunter2" not in str(refused.value)


@on_sqlite
async def test_an_unknown_kind_is_refused(app: App) -> None:
    with pytest.raises(Invalid, match="run_dreamt"):
        await app.webhooks.create("https://example.com/", kinds=["run_dreamt"], by="test")


def test_pauses_grow_and_differ() -> None:
    for tries in range(1, 12):
        assert pause_seconds(tries, 0.0) < pause_seconds(tries, 1.0) <= 1.25 * LONGEST_PAUSE_SECONDS
    assert pause_seconds(2, 0.5) == 2 * pause_seconds(1, 0.5)
