"""Proxy plans of a weft elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.api.walking import PROXY_PLAN
from weft.app import App
from weft.client.client import Client
from weft.errors import NotFound
from weft.proxies.model import ProxyTurn, ProxyUsage

USED = [ProxyUsage("shop.example", "", 0, "hard_block", 2), ProxyUsage("shop.example", "dc1", 1, "ok", 3, 10, 20)]


async def test_proxy_plans_are_set_and_looked_at_elsewhere(app: App, far: Client) -> None:
    made = await far.proxies.set("shop", "ways", PROXY_PLAN)
    await app.proxies.turn("shop", ProxyTurn("ways", 1, USED))
    [here] = await app.proxies.all("shop")
    assert replace(made, updated_at=0) == replace(here, id=0, updated_at=0)
    assert [made] == await far.proxies.all("shop")
    [(site, site_state, _)] = await far.proxies.sites("shop", "ways")
    assert (site, site_state.rung) == ("shop.example", 1)
    for by in ("day", "site", "exit"):
        assert await far.proxies.spent("shop", "ways", by=by) == await app.proxies.spent("shop", "ways", by=by)
    await far.proxies.delete("shop", "ways")
    with pytest.raises(NotFound):
        await far.proxies.get("shop", "ways")
