"""What Prometheus reads at /metrics is true, and documented."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.api.acting import Visitor
from tests.cli.commanding import Hand
from tests.conftest import SetClock, on_sqlite
from tests.crawls.steering import SITE, Share, a_crawl
from tests.runs.acting import new_run
from weft.access.model import Role
from weft.items.model import Harvest
from weft.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


async def read(visitor: Visitor) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    answer = await visitor.get("/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = text_string_to_metric_families(answer.data.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


async def test_ended_runs_are_counted_once_with_how_long_they_waited(admin: Visitor, clock: SetClock) -> None:
    app, hand = admin.app, await Hand.join(admin.app)
    await read(admin)
    await app.runs.submit([new_run()] * 3)
    clock.forward(0.04)
    for outcome in ("succeeded", "succeeded", "failed"):
        await hand.end(await hand.lease(), outcome)
    clock.forward(3)
    for _ in range(2):
        found = await read(admin)
        assert found["weft_runs_ended_total", ("succeeded",)] == 2
        assert found["weft_runs_ended_total", ("failed",)] == 1
        assert found["weft_dispatch_seconds_bucket", ("0.025",)] == 0
        assert found["weft_dispatch_seconds_bucket", ("0.05",)] == 3
        assert found["weft_dispatch_seconds_count", ()] == 3
        assert round(found["weft_dispatch_seconds_sum", ()], 3) == 0.12


async def test_runs_and_workers_are_told_as_they_stand(admin: Visitor) -> None:
    hand = await Hand.join(admin.app, name="w7")
    await admin.app.runs.submit([new_run()] * 2)
    await hand.lease()
    await hand.beat(breakers=[{"target": "shop.test", "state": "open", "failures": 5}])
    found = await read(admin)
    assert (found["weft_runs", ("running",)], found["weft_runs", ("ready",)]) == (1, 1)
    assert found["weft_workers", ("online",)] == 1
    assert found["weft_worker_running", ("w7",)] == 1
    assert found["weft_worker_capacity", ("w7",)] == 10
    assert found["weft_breakers", ("open", "shop.test", "w7")] == 1


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
    rows = re.findall(r"^\| `(weft_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    named = [(m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels) or "none", m.doc) for m in METRICS]
    assert rows == named


async def test_crawls_are_told_in_numbers_until_they_are_over(admin: Visitor) -> None:
    crawl = await a_crawl(admin.app)
    share = await Share.of(admin.app, crawl)
    await share.fetch(pages=3, failed=1)
    said = {"crawl/asks": 4, "crawl/asks_met": 1, "crawl/fetch_seconds": 2.0, "response_received_count": 4}
    await admin.app.protocol.collect(share.hand.id, [Harvest(share.run_id, share.lease.attempt, 1, b"", said)])
    await admin.app.crawls.feed(crawl.id, [f"{SITE}more/{number}" for number in range(7)])
    found, of = await read(admin), (str(crawl.id), "site.example", "shop")
    assert found["weft_crawl_urls", (*of, "done")] == 3
    assert found["weft_crawl_backlog", of] == 7
    assert found["weft_crawl_success_ratio", of] == 0.75
    assert found["weft_crawl_lease_ratio", of] == 0.25
    assert found["weft_crawl_fetch_seconds", of] == 0.5
    assert found["weft_crawls", ("active",)] == 1
    await admin.app.crawls.stop(crawl.id)
    over = await read(admin)
    assert ("weft_crawl_backlog", of) not in over
    assert over["weft_crawls", ("stopped",)] == 1
