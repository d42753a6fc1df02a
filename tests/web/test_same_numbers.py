"""What is counted is told alike: by the metrics, the API and the first page, by each gateway, and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.access.acting import PASSWORD
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.items.scene import Spider, start
from tests.runs.acting import Hand
from tests.web.surfing import Surfer, surfing
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_app
from weft.clock import moment
from weft.config import Config

METRICS = {"items": "weft_items", "pages": "weft_pages", "errors": "weft_errors", "bytes": "weft_received_bytes"}
KEPT = ("_total", "_bucket", "_count", "_sum")
"""How the names of samples end that may only grow."""

Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture(autouse=True)
def today(clock: SetClock) -> None:
    """Pages know only the time that it is."""
    clock.now = moment(datetime.now(UTC))


@asynccontextmanager
async def reader(app: App) -> AsyncIterator[Surfer]:
    """Somebody who may see everything, at a gateway of ``app``."""
    if "ada" not in {each.name for each in await app.users.all()}:
        await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.VIEWER})
    async with surfing(app) as surfer:
        await surfer.send("/login", {"name": "ada", "password": PASSWORD})
        yield surfer


async def samples(surfer: Surfer) -> Samples:
    """Every count that the database keeps, by its name and the values of its labels."""
    shown = await surfer.get("/metrics")
    assert shown.status == 200
    families = text_string_to_metric_families(shown.text)
    found = [each for family in families for each in family.samples]
    return {
        (each.name, tuple(each.labels.values())): each.value
        for each in found
        if each.name.endswith(KEPT) and each.name.startswith(("weft_", "crawler_")) and "_request" not in each.name
    }


async def document(surfer: Surfer, path: str) -> Any:
    shown = await surfer.get(path)
    assert shown.status == 200
    return msgspec.json.decode(shown.data)


async def told(surfer: Surfer) -> dict[str, dict[str, int]]:
    """The same four counts from each place that tells them."""
    counts, activity, first = (
        await samples(surfer),
        await document(surfer, "/v1/activity"),
        await document(surfer, "/.json"),
    )
    return {
        "metrics": {name: int(counts[f"{metric}_total", ("quotes", "shop")]) for name, metric in METRICS.items()},
        "API, hour": {name: sum(activity["hour"][name]) for name in METRICS},
        "API, day": {name: sum(activity["day"][name]) for name in METRICS},
        "page, hour": {name: sum(first["hour"][name]) for name in METRICS},
        "page, day": {name: sum(first["day"][name]) for name in METRICS},
    }


async def counts(spider: Spider, items: int, pages: int, errors: int) -> None:
    """Store items, and tell how many pages and errors there were so far."""
    stats = {"response_received_count": pages, "log_count/ERROR": errors, "downloader/response_bytes": pages * 100}
    await spider.yields(*({"n": number} for number in range(items)))
    await spider.send(b"", stats=stats)


@on_sqlite
async def test_metrics_api_and_first_page_of_two_gateways_tell_the_same_numbers(
    app: App, another_app: OpenApp, clock: SetClock
) -> None:
    other = await another_app()
    async with reader(app) as one, reader(other) as two:
        spider = await start(app)
        await counts(spider, items=3, pages=5, errors=1)
        clock.forward(1)
        await counts(spider, items=1, pages=7, errors=2)
        expected = {"items": 4, "pages": 7, "errors": 2, "bytes": 700}
        for _ in range(2):
            for surfer in (one, two):
                assert await told(surfer) == dict.fromkeys(await told(surfer), expected)
            assert await samples(one) == await samples(two)
            assert [(await document(each, "/v1/activity"))["hour"] for each in (one, two)] == [
                (await document(one, "/v1/activity"))["hour"]
            ] * 2
            await other.counters.fold()
        assert ">4<" in (await one.get("/")).text.partition("Items, last hour")[2][:100]


async def test_no_number_falls_when_everything_is_started_anew(tmp_path: Path, clock: SetClock) -> None:
    """Between the starts there is an attempt that begins again from nothing, and counts that are not folded yet."""
    config = Config(data_dir=str(tmp_path / "data"), port=0)
    before: Samples = {}
    for attempt in (1, 2, 3):
        app = await open_app(config, clock)
        try:
            spider = (
                await start(app, retries=5, delay_seconds=0.0)
                if attempt == 1
                else Spider(hand := await Hand.join(app), await hand.lease_one())
            )
            async with reader(app) as surfer:
                now = await samples(surfer)
                assert {name: now.get(name) for name in before} == before, "a start changes nothing"
                assert spider.lease.attempt == attempt
                await counts(spider, items=2, pages=4, errors=1)
                if attempt == 2:
                    await app.counters.fold()
                    await app.counters.forget_old()
                await spider.hand.end(spider.lease, "failed")
                now = await samples(surfer)
                assert [name for name, value in before.items() if now.get(name, 0) < value] == []
                assert (await told(surfer))["metrics"] == (await told(surfer))["page, hour"]
                before = now
        finally:
            await app.close()
        clock.forward(61)
    assert [before[f"{metric}_total", ("quotes", "shop")] for metric in METRICS.values()] == [6, 12, 3, 1200]
    assert before["weft_worker_pages_total", ("hand",)] == 12
