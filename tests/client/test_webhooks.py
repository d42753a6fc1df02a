"""Webhooks of a weft elsewhere."""

from __future__ import annotations

import pytest

from weft.app import App
from weft.client.client import Client
from weft.errors import NotFound

URL = "https://receiver.example/weft"


async def test_webhooks_are_made_changed_and_removed_elsewhere(app: App, far: Client) -> None:
    made, secret = await far.webhooks.create(URL, project="shop", kinds=["run_finished"])
    assert secret.startswith("whsec_")
    assert [made] == await app.webhooks.find() == await far.webhooks.find() == await far.webhooks.find({"shop"})
    assert await far.webhooks.get(made.id) == made
    changed = await far.webhooks.change(made.id, kinds=[], active=False)
    assert (changed.kinds, changed.active) == ((), False)
    assert await app.webhooks.get(made.id) == changed
    assert await far.webhooks.deliveries(made.id) == []
    with pytest.raises(NotFound):
        await far.webhooks.replay(made.id, 1)
    await far.webhooks.remove(made.id)
    with pytest.raises(NotFound):
        await far.webhooks.get(made.id)
