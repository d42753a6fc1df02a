from __future__ import annotations

from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import submit
from tests.webhooks.receiving import Receiver


@on_sqlite
async def test_no_webhook_reaches_a_closed_address(another_app: OpenApp, receiver: Receiver) -> None:
    app = await another_app(allowed_networks="")
    webhook, _ = await app.webhooks.create(receiver.url, project="shop", by="test")
    await submit(app)
    await app.courier.tick()
    await app.courier.rest()
    [delivery] = await app.webhooks.deliveries(webhook.id)
    assert receiver.received == []
    assert delivery.problem is not None
    assert "allowed_networks" in delivery.problem
