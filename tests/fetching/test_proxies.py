"""Proxy plans: where sites stand, which exits are well, what it costs. On every database."""

from typing import Any

import pytest
from sqlalchemy import select

from tests.conftest import SetClock, on_sqlite
from weft.app import App
from weft.db import schema
from weft.errors import Invalid, NotFound
from weft.proxies.model import ProxyTurn, ProxyUsage, SiteDirective

PROJECT, PLAN, SITE = "shop", "ways", "shop.example"
EXITS: list[dict[str, Any]] = [
    {"name": "c1", "url": "http://me:{{secret:PROXY}}@10.0.0.1:3128", "per_gb": 2.0},
    {"name": "d1", "url": "http://10.0.0.2:3128", "tier": "dear", "per_request": 0.5},
]
DOCUMENT: dict[str, Any] = {"sites": ["*.example"], "exits": EXITS}
MINUTE = 60.0


async def set_up(app: App, **more: Any) -> None:
    await app.secrets.set(PROJECT, "PROXY", "pass/word", by="test")
    await app.proxies.set(PROJECT, PLAN, DOCUMENT | more, by="test")


async def told(app: App, *used: ProxyUsage) -> SiteDirective:
    """Tell what was used, and ask how the site stands."""
    turned = await app.proxies.turn(PROJECT, ProxyTurn(PLAN, 1, list(used), [SITE]))
    return turned.site_states[0]


def blocked(rung: int, exit: str = "", count: int = 2) -> ProxyUsage:
    return ProxyUsage(SITE, exit, rung, "hard_block", count)


async def test_a_plan_comes_with_its_secrets_once(app: App) -> None:
    await set_up(app)
    first = await app.proxies.turn(PROJECT, ProxyTurn(PLAN))
    assert first.plan is not None
    assert first.plan.exits[0].url == "http://me:pass%2Fword@10.0.0.1:3128"
    assert (await app.proxies.turn(PROJECT, ProxyTurn(PLAN, first.revision))).plan is None
    with pytest.raises(NotFound, match="proxy plan"):
        await app.proxies.turn("other", ProxyTurn(PLAN))


async def test_blocks_move_a_site_up_to_a_pause_and_probes_bring_it_down(app: App, clock: SetClock) -> None:
    await set_up(app)
    assert await told(app, blocked(0, count=1)) == SiteDirective(SITE)
    assert (await told(app, blocked(0, count=1))).rung == 1
    assert (await told(app, blocked(1, "c1"))).rung == 2
    paused = await told(app, blocked(2, "d1"))
    assert (paused.rung, paused.probe) == (3, False)
    for rung in (3, 2, 1):
        for _ in range(3):
            clock.forward(12 * MINUTE)
            probe = await told(app)
            assert (probe.rung, probe.probe) == (rung, True)
            assert not (await told(app)).probe  # there is one
            last = await told(app, ProxyUsage(SITE, "", rung - 1, "ok"))
        assert last.rung == rung - 1
    assert await told(app) == SiteDirective(SITE)


async def test_a_site_that_the_plan_does_not_name_is_always_asked_directly(app: App) -> None:
    await set_up(app, sites=["else.where"])
    assert await told(app, blocked(0, count=10)) == SiteDirective(SITE)


async def test_a_proxy_that_fails_is_left_alone_for_a_while_and_the_site_stays(app: App, clock: SetClock) -> None:
    await set_up(app)
    await told(app, blocked(0))
    failed = ProxyTurn(PLAN, 1, [ProxyUsage(SITE, "c1", 1, "proxy_error", 5)], [SITE])
    turned = await app.proxies.turn(PROJECT, failed)
    assert turned.ill == {"c1": pytest.approx(30.0)}
    assert turned.site_states[0].rung == 1
    clock.forward(31)
    assert (await app.proxies.turn(PROJECT, ProxyTurn(PLAN, 1))).ill == {}


async def test_what_goes_through_a_proxy_is_counted_and_paid_for(app: App) -> None:
    await set_up(app)
    await told(app, ProxyUsage(SITE, "c1", 1, "ok", 3, 1_000_000, 499_000_000), ProxyUsage(SITE, "", 0, "ok", 5, 7, 7))
    await told(app, ProxyUsage(SITE, "d1", 2, "soft_block", 2, 10, 10))
    by_exit = {row["exit"]: row for row in await app.proxies.spent(PROJECT, PLAN, by="exit")}
    assert (by_exit["c1"]["cost"], by_exit["d1"]["cost"]) == (1_000_000, 1_000_000)
    assert (by_exit["c1"]["requests"], by_exit["c1"]["received"], by_exit["d1"]["soft_block"]) == (3, 499_000_000, 2)
    (day,) = await app.proxies.spent(PROJECT, PLAN)
    assert day["cost"] == 2_000_000


async def test_a_budget_warns_once_and_then_stops(app: App, clock: SetClock) -> None:
    await set_up(app, budget={"day_warn": 0.5, "day_stop": 1.0})
    costs = ProxyTurn(PLAN, 1, [ProxyUsage(SITE, "d1", 2, "ok", 1)])
    assert (await app.proxies.turn(PROJECT, costs)).stop == ""
    assert (await app.proxies.turn(PROJECT, ProxyTurn(PLAN, 1))).stop == ""
    assert (await app.proxies.turn(PROJECT, costs)).stop == "the budget of the day, 1, is used up"
    clock.forward(24 * 60 * MINUTE)
    assert (await app.proxies.turn(PROJECT, ProxyTurn(PLAN, 1))).stop == ""
    kinds = await app.db.read(lambda tx: [row.kind for row in tx.rows(select(schema.events.c.kind))])
    assert sorted(kinds) == ["proxy_budget_spent", "proxy_budget_warned"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exits": []}, "length >= 1"),
        ({"exits": [{"name": "a", "url": "socks5://x:1"}]}, "http://user"),
        ({"exits": [{"name": "a", "url": "http://u:open@x:1"}]}, "must be a secret"),
        ({"exits": [EXITS[0], EXITS[0]]}, "a name of its own"),
        ({"rules": [{"verdict": "ok", "body": "("}]}, "a regular expression"),
        ({"rules": [{"verdict": "ok"}]}, "what it looks for"),
        ({"colour": "red"}, "colour"),
    ],
)
@on_sqlite
async def test_a_plan_that_cannot_work_is_refused(app: App, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        await app.proxies.set(PROJECT, PLAN, DOCUMENT | change, by="test")


async def test_metrics_tell_what_a_plan_has_cost_and_how_requests_ended(app: App, clock: SetClock) -> None:
    await set_up(app)
    await told(app, ProxyUsage(SITE, "d1", 2, "ok", 2), blocked(0))
    (total,) = await app.proxies.totals()
    assert (total["project"], total["name"], total["cost"], total["ok"]) == (PROJECT, PLAN, 1_000_000, 2)
    assert total["hard_block"] == 2
    clock.forward(31 * 24 * 60 * MINUTE)
    assert await app.proxies.totals() == []
