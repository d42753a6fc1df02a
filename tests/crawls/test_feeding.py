"""Addresses that come to a crawl from outside, and crawls that cannot go on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import Hand, submit
from tests.servers import Server
from weft.adapters.brokers.resp import Address, Connection
from weft.app import App
from weft.crawler.messages import CrawlTurn, CrawlTurnReply
from weft.crawls.metrics import measure_crawls
from weft.errors import FrontierLost
from weft.ports import DONE, QUEUED, HostLease, HostReport, Outcome, Turn
from weft.runs.model import Lease

pytestmark = on_sqlite

SEED = "http://one.example/"
POLICY = {"crawl_contact": "crawl@weft.example"}


async def partition(app: App, hand: Hand, task: str, **spec: Any) -> Lease:
    await submit(app, kind="crawl", task=task, spec={"urls": [SEED], **spec})
    return await hand.lease_one()


async def turned(app: App, hand: Hand, lease: Lease, turn: Turn, **more: Any) -> CrawlTurnReply:
    return await app.protocol.frontier(hand.id, lease.run_id, lease.attempt, CrawlTurn(turn, **more))


def done_with(held: HostLease, *, release: bool = False) -> HostReport:
    outcomes = [Outcome(each.key, DONE, status=200, fetched_at=1) for each in held.urls]
    return HostReport(held.host, held.fence, outcomes, release=release)


async def test_a_crawl_with_nobody_to_feed_is_paused_and_its_page_is_not_done(app: App) -> None:
    hand = await Hand.join(app)
    lease = await partition(app, hand, "links", tier="discover", feeds="pages")
    (held,) = (await turned(app, hand, lease, Turn(hosts=1))).turned.leases
    answer = await turned(app, hand, lease, Turn(reports=[done_with(held)]), feed=["http://two.example/x"])
    assert (answer.stop, [kept.held for kept in answer.turned.kept]) == ("paused", [True])
    assert "pages" in answer.reason
    known = await app.frontier.look(answer.crawl, held.urls[0].key)
    assert known is not None
    assert known.state != DONE
    await turned(app, hand, lease, Turn(reports=[HostReport(held.host, held.fence, release=True)]))
    assert [each.state for each in await app.frontier.urls(answer.crawl)] == [QUEUED]


@pytest.mark.parametrize("state", ["active", "paused"])
async def test_a_crawl_that_has_not_begun_or_rests_is_fed_as_well(another_app: OpenApp, state: str) -> None:
    app = await another_app(**POLICY)
    hand = await Hand.join(app)
    fed = await app.crawls.create("shop", {"tier": "fetch"}, name="pages", paused=state == "paused")
    for _ in await hand.lease():
        pass  # its first share does nothing yet
    lease = await partition(app, hand, "links", tier="discover", feeds="pages")
    answer = await turned(app, hand, lease, Turn(hosts=1), feed=["http://two.example/x#part", "no address"])
    assert answer.stop == ""
    assert [each.url for each in await app.frontier.urls(fed.id)] == ["http://two.example/x"]


async def test_a_list_of_addresses_is_taken_in_parts_and_each_once(another_app: OpenApp) -> None:
    app = await another_app(**POLICY)
    crawl = await app.crawls.create("shop", {"urls": [SEED]})
    urls = [f"http://one.example/{n}" for n in range(2_500)]
    assert await app.crawls.feed(crawl.id, urls) == 2_500
    assert await app.crawls.feed(crawl.id, urls[::2]) == 0
    assert (await app.crawls.counts(crawl.id)).queued == 2_500


async def test_a_crawl_that_its_frontier_has_lost_is_paused_and_not_done(
    another_app: OpenApp, redis_server: Server
) -> None:
    prefix = f"weft-{uuid.uuid4().hex}:"
    app = await another_app(frontier=f"{redis_server.url}?prefix={prefix}", **POLICY)
    hand = await Hand.join(app)
    lease = await partition(app, hand, "site")
    begun = await turned(app, hand, lease, Turn(hosts=1))
    assert [each.host for each in begun.turned.leases] == ["one.example"]
    await lose_all(redis_server, prefix)
    answer = await turned(app, hand, lease, Turn(reports=[done_with(begun.turned.leases[0])], hosts=1))
    assert (answer.stop, [kept.held for kept in answer.turned.kept]) == ("paused", [False])
    crawl = await app.crawls.get(begun.crawl)
    assert (crawl.state, crawl.reason) == ("paused", answer.reason)
    assert f"crawl {begun.crawl}" in crawl.reason
    with pytest.raises(FrontierLost):
        await app.crawls.feed(begun.crawl, ["http://two.example/"])


async def lose_all(server: Server, prefix: str) -> None:
    connection = await Connection.open(Address.parse(server.url))
    for key in await connection.call("KEYS", f"{prefix}*"):
        await connection.call("DEL", key)
    await connection.close()


async def test_crawls_are_left_out_of_the_numbers_while_their_frontier_is_away(another_app: OpenApp) -> None:
    app = await another_app(frontier="redis://127.0.0.1:1/0", **POLICY)
    await app.crawls.create("shop", {"urls": [SEED]})
    assert await measure_crawls(app.db, app.crawls) == []
