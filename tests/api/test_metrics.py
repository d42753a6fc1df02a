"""What Prometheus reads at /metrics is true, and documented."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.api.acting import Visitor, visiting
from tests.cli.commanding import Hand
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.crawls.steering import SITE, Share, a_crawl
from tests.intake.ordering import SOURCE, message
from tests.items.scene import start
from tests.runs.acting import new_run, set_limit
from weft.access.model import Role
from weft.items.model import ItemBatch
from weft.metrics import METRICS
from weft.runs.lanes import project_limit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


async def read(visitor: Visitor) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    answer = await visitor.get("/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = text_string_to_metric_families(answer.data.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


async def test_ended_runs_are_counted_once_with_how_long_they_waited(admin: Visitor, clock: SetClock) -> None:
    app, hand = admin.app, await Hand.join(admin.app)
    await app.runs.submit([new_run()] * 3)
    clock.forward(0.04)
    for outcome in ("succeeded", "succeeded", "failed"):
        await hand.end(await hand.lease(), outcome)
    for _ in range(2):
        found = await read(admin)
        assert found["weft_runs_ended_total", ("succeeded", "shop")] == 2
        assert found["weft_runs_ended_total", ("failed", "shop")] == 1
        assert found["weft_worker_runs_ended_total", ("failed", "hand")] == 1
        assert found["weft_dispatch_seconds_bucket", ("0.025",)] == 0
        assert found["weft_dispatch_seconds_bucket", ("0.05",)] == 3
        assert found["weft_dispatch_seconds_count", ()] == 3
        assert round(found["weft_dispatch_seconds_sum", ()], 3) == 0.12
        await app.counters.fold()


async def test_runs_and_workers_are_told_as_they_stand(admin: Visitor) -> None:
    hand = await Hand.join(admin.app, name="w7")
    await admin.app.runs.submit([new_run()] * 2)
    await hand.lease()
    await hand.beat(breakers=[{"target": "shop.test", "state": "open", "failures": 5, "project": "shop"}])
    found = await read(admin)
    assert (found["weft_runs", ("running",)], found["weft_runs", ("ready",)]) == (1, 1)
    assert found["weft_runs", ("held",)] == 0
    await set_limit(admin.app, project_limit("shop"), 1)
    found = await read(admin)
    assert (found["weft_runs", ("ready",)], found["weft_runs", ("held",)]) == (0, 1)
    assert found["weft_workers", ("online",)] == 1
    assert found["weft_worker_running", ("w7",)] == 1
    assert found["weft_worker_capacity", ("w7",)] == 10
    assert found["weft_breakers", ("shop", "open", "shop.test", "w7")] == 1
    assert found["weft_running", ("noop", "shop", "prices", "w7")] == 1


@on_sqlite
async def test_a_gateway_counts_its_answers(admin: Visitor) -> None:
    await admin.get("/v1/nothing")
    await admin.call("PROPFIND", "/v1/runs")
    found = await read(admin)
    assert found["weft_requests_total", ("GET", "404")] == 1
    assert found["weft_requests_total", ("other", "405")] == 1
    assert found["weft_request_seconds_count", ("GET",)] == 1
    assert found["process_resident_memory_bytes", ()] > 1e6


@on_sqlite
async def test_metrics_need_a_key_that_sees_all_projects(nobody: Visitor) -> None:
    assert (await nobody.get("/metrics")).status == 401
    assert (await (await nobody.with_role(Role.ADMIN, "shop")).get("/metrics")).status == 403
    assert (await (await nobody.with_role(Role.VIEWER)).get("/metrics")).status == 200


def test_the_reference_has_every_metric_with_its_kind_labels_and_meaning() -> None:
    rows = re.findall(r"^\| `((?:weft|crawler)_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    named = [(m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels) or "none", m.doc) for m in METRICS]
    assert rows == named


async def test_crawls_are_told_in_numbers_until_they_are_over(admin: Visitor) -> None:
    crawl = await a_crawl(admin.app)
    share = await Share.of(admin.app, crawl)
    await share.fetch(pages=3, failed=1)
    said = {"crawl/asks": 4, "crawl/asks_met": 1, "weft/fetch_seconds": 2.0, "response_received_count": 4}
    await admin.app.protocol.collect(share.hand.id, [ItemBatch(share.run_id, share.lease.attempt, 1, b"", said)])
    await admin.app.crawls.feed(crawl.id, [f"{SITE}more/{number}" for number in range(7)])
    found, of = await read(admin), (str(crawl.id), "site.example", "shop")
    assert found["weft_crawl_urls", (*of, "done")] == 3
    assert found["weft_crawl_backlog", of] == 7
    assert found["weft_crawl_success_ratio", of] == 0.75
    assert found["weft_crawl_lease_ratio", of] == 0.25
    assert found["weft_crawl_fetch_seconds", of] == 0.5
    assert found["weft_crawls", ("active",)] == 1
    assert found["crawler_queue_depth", ()] == 7
    await admin.app.crawls.stop(crawl.id)
    over = await read(admin)
    assert (
        over["weft_pages_total", ("site.example", "shop")] == found["weft_pages_total", ("site.example", "shop")] == 4
    )
    assert ("weft_crawl_backlog", of) not in over
    assert over["weft_crawls", ("stopped",)] == 1


@on_sqlite
async def test_every_message_that_came_from_a_queue_is_counted_once(admin: Visitor, another_app: OpenApp) -> None:
    messages = [message(b"no order", id="m-1"), message(id="m-2")]
    await admin.app.intake.take(SOURCE, messages)
    assert (await read(admin))["crawler_messages_received_total", ()] == 2
    async with visiting(await another_app()) as nobody:
        other = Visitor(nobody._session, nobody.app, nobody.address, admin.token)
        assert (await read(other))["crawler_messages_received_total", ()] == 2


URLS = {"crawl/urls/done": 3, "crawl/urls/failed": 1, "crawl/urls/skipped": 2}
FETCHES = {"weft/fetch_seconds": 2.0, "weft/fetch_seconds/0.5": 3, "weft/fetch_seconds/2.5": 1}


async def test_what_a_crawl_has_counted_stays_after_its_end_and_is_told_by_the_names_of_other_crawlers(
    admin: Visitor,
) -> None:
    crawl = await a_crawl(admin.app)
    share, of = await Share.of(admin.app, crawl, "w7"), ("site.example", "shop")
    said = {"crawl/asks": 4, "crawl/asks_met": 1, "response_received_count": 4, **URLS, **FETCHES}
    harvest = ItemBatch(share.run_id, share.lease.attempt, 1, b"", {**said, "downloader/response_bytes": 500})
    await admin.app.protocol.collect(share.hand.id, [harvest])
    await admin.app.crawls.stop(crawl.id)
    await share.hand.end(share.lease)
    found = await read(admin)
    assert found["weft_urls_total", (*of, "skipped")] == 2
    assert found["weft_received_bytes_total", of] == 500
    assert found["weft_worker_pages_total", ("w7",)] == 4
    assert found["weft_fetch_seconds_bucket", ("0.5", *of)] == 3
    assert found["weft_fetch_seconds_bucket", ("+Inf", *of)] == found["weft_fetch_seconds_count", of] == 4
    assert found["weft_fetch_seconds_sum", of] == 2
    assert found["crawler_urls_crawled_total", ()] == 4
    assert (found["crawler_success_rate", ()], found["crawler_error_rate", ()]) == (0.75, 0.25)
    assert found["crawler_lock_acquisition_rate", ()] == 0.25
    assert found["crawler_processing_duration_seconds_bucket", ("1",)] == 3
    assert found["crawler_queue_depth", ()] == found["crawler_messages_received_total", ()] == 0


@on_sqlite
async def test_every_gateway_tells_the_same_counts_of_runs_and_spiders(admin: Visitor, another_app: OpenApp) -> None:
    spider = await start(admin.app)
    await spider.send(b'{"item":{"n":1}}\n', stats={"response_received_count": 3})
    await spider.hand.end(spider.lease)
    async with visiting(await another_app()) as nobody:
        other = Visitor(nobody._session, nobody.app, nobody.address, admin.token)
        told = [{name: n for name, n in (await read(each)).items() if is_counted(name[0])} for each in (admin, other)]
        hours = [(await each.get("/v1/activity")).json["hour"] for each in (admin, other)]
    assert told[0] == told[1]
    assert told[0]["weft_items_total", ("quotes", "shop")] == 1
    assert hours[0] == hours[1]
    assert (sum(hours[0]["pages"]), sum(hours[0]["succeeded"])) == (3, 1)


def is_counted(name: str) -> bool:
    """Whether a metric is a count that the database keeps."""
    is_one = name.endswith(("_total", "_bucket", "_count", "_sum")) and not name.startswith("weft_request")
    return is_one and name.startswith(("weft_", "crawler_"))
