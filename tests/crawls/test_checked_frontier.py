"""The URLs of a crawl are in one frontier: whoever is set to use another is told so, and sees no zeros."""

from __future__ import annotations

import pytest

from tests.api.acting import visiting
from tests.conftest import OpenApp
from tests.crawls.steering import Share, a_crawl
from tests.runs.acting import Hand
from weft.access.model import Role
from weft.app import App
from weft.config import without_secrets
from weft.crawler.messages import CrawlTurn
from weft.crawls.autoscaler import CrawlAutoscaler
from weft.crawls.metrics import measure_crawls
from weft.errors import (
    BlobsDown,
    BrokerDown,
    FrontierDown,
    FrontierElsewhere,
    FrontierLost,
    InboxDown,
    LimiterDown,
    OutboxDown,
    WeftError,
)
from weft.ports import Turn

ELSEWHERE = "redis://user:s3cret@127.0.0.1:1/0"
SAID = (
    r"crawl \d+ keeps its URLs in the database, and this process uses redis://127.0.0.1:1/0: "
    r"set frontier \(WEFT_FRONTIER\) to the same value everywhere"
)


async def test_a_process_with_another_frontier_is_refused(app: App, another_app: OpenApp) -> None:
    crawl = await a_crawl(app)
    await (await Share.of(app, crawl)).fetch(pages=3)
    other = await another_app(frontier=ELSEWHERE)
    assert crawl.frontier == "the database"
    with pytest.raises(FrontierElsewhere, match=SAID):
        await other.crawls.report(crawl.id)
    with pytest.raises(FrontierElsewhere, match=SAID):
        await other.crawls.urls(crawl.id)
    assert (await app.crawls.report(crawl.id)).counts.done == 3


async def test_nobody_is_told_over_the_network_where_a_frontier_is(app: App, another_app: OpenApp) -> None:
    crawl = await a_crawl(app)
    async with visiting(await another_app(frontier=ELSEWHERE)) as nobody:
        viewer = await nobody.with_role(Role.VIEWER)
        refused = await viewer.get(f"/v1/crawls/{crawl.id}/urls")
        assert (refused.status, "in another frontier than this weft uses" in refused.data.decode()) == (409, True)
        listed = await viewer.get("/v1/crawls")
        assert listed.json["items"][0]["frontier"] == "database"
        for answer in (refused, listed):
            assert "127.0.0.1:1" not in answer.data.decode()
    elsewhere = await a_crawl(await another_app(frontier=ELSEWHERE))
    async with visiting(app) as nobody:
        viewer = await nobody.with_role(Role.VIEWER)
        assert (await viewer.get("/v1/crawls")).json["items"][0]["id"] == elsewhere.id
        assert (await viewer.get("/v1/crawls")).json["items"][0]["frontier"] == "redis"


@pytest.mark.parametrize(
    "problem",
    [
        BlobsDown("s3://bucket?endpoint=http://blobs.internal:9000", "no route to blobs.internal"),
        BrokerDown("redis", "cannot connect to broker.internal:6379"),
        InboxDown("amqp:broker.internal:5672/scraper_tasks", "broker.internal refused"),
        OutboxDown("amqp://broker.internal/scraper_tasks", "broker.internal refused", reached=True),
        FrontierDown("redis://frontier.internal:6379", "frontier.internal is away"),
        FrontierLost("dynamodb://table?endpoint=http://table.internal", "table.internal is new"),
        FrontierElsewhere(7, "redis://one.internal:6379", "redis://two.internal:6379"),
        LimiterDown("redis://limits.internal:6379", "limits.internal is away"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_no_error_tells_over_the_network_where_a_store_is(problem: WeftError) -> None:
    assert "internal" in str(problem)
    assert "internal" not in problem.public


async def test_a_worker_with_another_frontier_is_refused(app: App, another_app: OpenApp) -> None:
    await a_crawl(app)
    hand = await Hand.join(await another_app(frontier=ELSEWHERE))
    lease = await hand.lease_one()
    with pytest.raises(FrontierElsewhere, match=SAID):
        await hand.app.protocol.frontier(hand.id, lease.run_id, lease.attempt, CrawlTurn(turn=Turn(hosts=1)))


async def test_what_looks_at_many_crawls_leaves_out_those_of_another_frontier(app: App, another_app: OpenApp) -> None:
    crawl, other = await a_crawl(app), await another_app(frontier=ELSEWHERE)
    await (await Share.of(app, crawl)).turn()
    assert await other.crawls.counting.here(await other.crawls.get(crawl.id)) is None
    assert await measure_crawls(other.db, other.crawls) == []
    assert await CrawlAutoscaler(other.db, other.crawls, other.frontier, other.clock).tick() == 0


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("redis://:s3cret@cache:6379/0", "redis://cache:6379/0"),
        ("redis://cache:6379/0/?prefix=a&password=x", "redis://cache:6379/0?prefix=a"),
        (
            "dynamodb://table?region=eu&secret_key=x&endpoint=http%3A%2F%2Fa",
            "dynamodb://table?endpoint=http%3A%2F%2Fa&region=eu",
        ),
    ],
)
def test_what_is_kept_of_a_frontier_has_no_secret(url: str, kept: str) -> None:
    assert without_secrets(url) == kept
