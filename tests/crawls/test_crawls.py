"""The front door of crawls: what is begun, how it is steered, spread and asked about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from tests.crawls.steering import SITE, SKIPS, SPEC, TRAP, Share, a_crawl
from tests.runs.acting import Hand
from weft.app import App
from weft.clock import SECOND
from weft.crawls.autoscaler import AFTER_FAILURE, SETTLED, CrawlAutoscaler, ScaleTarget
from weft.crawls.model import Crawl
from weft.crawls.model import CrawlPartition as ShareOf
from weft.crawls.store import has_active
from weft.errors import Conflict, Invalid, NotFound
from weft.events import newest
from weft.fetching.urls import host_of, key_of
from weft.ports import DONE, FAILED, Found, HostReport, Outcome, Turn


def spreader(app: App, clock: SetClock) -> CrawlAutoscaler:
    return CrawlAutoscaler(app.db, app.crawls, app.frontier, clock)


async def live(app: App, crawl: Crawl) -> list[str]:
    partitions = (await app.crawls.report(crawl.id)).partitions
    return [partition.state for partition in partitions if partition.finished_at is None]


async def spread_over(app: App, partition: Share, hosts: int) -> None:
    """Find pages of so many hosts."""
    urls = [f"https://h{number}.example/" for number in range(hosts)]
    await partition.turn(Turn(found=[Found(key_of(url), url, host_of(url), 1) for url in urls]))


async def test_a_crawl_is_begun_with_its_first_run(app: App) -> None:
    crawl = await a_crawl(app)
    assert (crawl.state, crawl.name, crawl.project, crawl.created_by) == ("active", "site.example", "shop", "test")
    report = await app.crawls.report(crawl.id)
    [partition] = report.partitions
    assert (partition.run_id, partition.state, crawl.run_id) == (crawl.run_id, "queued", partition.run_id)
    assert (await app.crawls.all({"shop"}))[0] == crawl
    assert await app.crawls.project_of(crawl.id) == "shop"
    assert await app.crawls.all({"blog"}) == await app.crawls.all(state="paused") == []


async def test_a_process_knows_whether_any_crawl_is_active(app: App) -> None:
    assert not await app.db.glance(has_active)
    crawl = await a_crawl(app)
    assert await app.db.glance(has_active)
    await app.crawls.pause(crawl.id)
    assert not await app.db.glance(has_active)


@on_sqlite
@for_each(
    ("change", "said"),
    [
        ({"fetching": {}}, "those who are crawled must be able to reach somebody"),
        ({"fetching": {"contact": "nobody"}}, "it must be a mail address or an http(s) address"),
        ({"urls": ["site.example"]}, "urls is 'site.example'; it must be an http or https address"),
        ({"urls": ["http://192.168.0.1/"]}, "belongs to a private network"),
        ({"urls": ["http://169.254.169.254/latest"]}, "belongs to the keys of a cloud"),
        ({"sitemaps": ["file:///etc/passwd"]}, "sitemaps is 'file:///etc/passwd'; it must be an http"),
        ({"scope": {"deny": ["("]}}, "crawl.scope.deny is '('; it must be a regular expression"),
        ({"urls": []}, "it must have at least one address to begin with"),
        ({"crawl": 7}, "a new crawl is no partition of another"),
        ({"scope": {"within": "world"}}, "invalid enum value 'world'"),
    ],
)
async def test_a_crawl_that_may_not_begin_is_refused_in_a_sentence(app: App, change: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        await a_crawl(app, **change)
    assert said in str(refused.value)
    assert await app.crawls.all() == []


async def test_pausing_gives_back_what_is_held_and_resuming_goes_on(app: App) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    assert (await app.crawls.pause(crawl.id)).state == "paused"
    [host] = partition.hosts
    given_back = Turn(reports=[HostReport(host.host, host.fence, release=True)])
    turned = await partition.turn(given_back)
    assert (turned.stop, turned.reason) == ("paused", "paused by a person")
    await partition.hand.end(partition.lease)
    assert (await app.crawls.counts(crawl.id)).queued == 1
    await app.crawls.resume(crawl.id)
    again = await Share.of(app, crawl, "other")
    await again.turn()
    assert [given.url for each in again.hosts for given in each.urls] == [SITE]
    kinds = [event.kind for event in await app.db.read(lambda tx: newest(tx, 100))][::-1]
    assert [kind for kind in kinds if kind.startswith("crawl_")] == ["crawl_started", "crawl_paused", "crawl_resumed"]


async def test_a_partition_that_waits_is_cancelled_when_its_crawl_rests(app: App) -> None:
    crawl = await a_crawl(app)
    await app.crawls.pause(crawl.id)
    assert await live(app, crawl) == []
    with pytest.raises(Conflict, match="only one that is active can be paused"):
        await app.crawls.pause(crawl.id)


async def test_a_crawl_that_is_stopped_is_forgotten_with_all_that_it_knows(app: App) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.fetch(pages=3, skips=SKIPS)
    await app.blobs.put(f"crawls/{crawl.id}/warc/a.warc.gz", b"raw")
    with pytest.raises(Conflict, match="stop it first"):
        await app.crawls.delete(crawl.id)
    await app.crawls.stop(crawl.id)
    await app.crawls.delete(crawl.id)
    with pytest.raises(NotFound):
        await app.crawls.report(crawl.id)
    assert (await app.crawls.counts(crawl.id)).done == 0
    assert await app.blobs.keys(f"crawls/{crawl.id}") == []


async def test_a_report_counts_pages_partitions_skips_and_traps(app: App) -> None:
    crawl = await a_crawl(app, budget={"pages": 30})
    partition = await Share.of(app, crawl)
    await partition.fetch(pages=4, failed=1, skips=SKIPS)
    await partition.turn(Turn(), skips=[TRAP])
    report = await app.crawls.report(crawl.id)
    assert (report.counts.done, report.counts.failed, report.counts.hosts, report.counts.size) == (4, 1, 1, 500)
    assert {each.reason: each.count for each in report.skips} == {"scope": 612, "calendar": 82, "robots": 20}
    assert [(trap.pattern, trap.count) for trap in report.traps] == [("/calendar/{number}", 82)]
    assert [(each.state, each.worker) for each in report.partitions] == [("running", "hand")]


async def test_a_crawl_is_spread_over_the_workers_that_are_there_while_hosts_wait(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    for name in ("second", "third"):
        await Hand.join(app, name)
    await partition.turn()
    assert await spreader(app, clock).tick() == 0  # one host, one partition
    await spread_over(app, partition, 2)
    assert await spreader(app, clock).tick() == 2
    assert await spreader(app, clock).tick() == 0
    assert sorted(await live(app, crawl)) == ["queued", "queued", "running"]


async def test_a_crawl_is_spread_no_further_than_it_says(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app, spread=2)
    partition = await Share.of(app, crawl)
    await partition.turn()
    await spread_over(app, partition, 5)
    assert sorted(await live(app, crawl)) == ["queued", "running"]  # both are queued with the crawl
    assert await spreader(app, clock).tick() == 0
    assert len(await live(app, crawl)) == 2


async def test_a_crawl_whose_run_failed_rests_and_says_why(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await app.runs.cancel(partition.run_id, "cancelled by a person")
    await partition.hand.end(partition.lease, "cancelled", reason="cancelled by a person")
    assert await spreader(app, clock).tick() == 0
    clock.now += SETTLED + SECOND
    assert await spreader(app, clock).tick() == 0
    rests = await app.crawls.get(crawl.id)
    assert (rests.state, rests.reason) == ("paused", f"run {partition.run_id} cancelled: cancelled by a person")


async def test_a_partition_that_failed_for_good_is_not_queued_again_and_again(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    await spread_over(app, partition, 5)
    lacking = await Hand.join(app, "lacking")
    assert await spreader(app, clock).tick() == 1
    lease = await lacking.lease_one()
    await lacking.end(lease, "failed", reason="keeping.text: this needs a package", permanent=True)
    assert (await app.runs.get(lease.run_id)).state == "failed"
    assert await spreader(app, clock).tick() == 0
    await lacking.beat()
    clock.now += AFTER_FAILURE - SECOND
    assert await spreader(app, clock).tick() == 0
    assert (await app.crawls.get(crawl.id)).state == "active"


async def test_a_crawl_whose_only_run_failed_for_good_rests_with_its_sentence(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.hand.end(partition.lease, "failed", reason="keeping.text: this needs a package", permanent=True)
    clock.now += SETTLED + SECOND
    assert await spreader(app, clock).tick() == 0
    rests = await app.crawls.get(crawl.id)
    reason = f"run {partition.run_id} failed: keeping.text: this needs a package"
    assert (rests.state, rests.reason) == ("paused", reason)
    assert [(each.state, each.attempt) for each in (await app.crawls.report(crawl.id)).partitions] == [("failed", 1)]


async def test_a_crawl_without_a_run_gets_one_again(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    await partition.hand.end(partition.lease)
    clock.now += SETTLED + SECOND
    assert await spreader(app, clock).tick() == 1
    assert await live(app, crawl) == ["queued"]


async def test_addresses_that_are_given_are_fetched_even_after_the_end(app: App) -> None:
    crawl = await app.crawls.create("shop", SPEC, by="test", paused=True)
    assert await live(app, crawl) == []
    assert await app.crawls.feed(crawl.id, [f"{SITE}{number}" for number in range(5)] + [f"{SITE}0#top"]) == 5
    assert await app.crawls.feed(crawl.id, [f"{SITE}0?utm_source=x"]) == 0
    with pytest.raises(Invalid, match=r"urls\[1\]"):
        await app.crawls.feed(crawl.id, [SITE, "mailto:us@weft.example"])
    await app.crawls.resume(crawl.id)
    assert await live(app, crawl) == ["queued"]


async def test_what_failed_is_put_back_in_line(app: App) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.fetch(pages=1, failed=2)
    assert await app.crawls.requeue(crawl.id, FAILED) == 2
    assert (await app.crawls.counts(crawl.id)).queued == 2
    with pytest.raises(Invalid, match="it must be failed or skipped"):
        await app.crawls.requeue(crawl.id, "done")


@pytest.mark.parametrize(
    ("budget", "found", "spent"),
    [
        ({"pages": 2}, 3, "its budget of 2 pages is used up"),
        ({"pages": 2}, 1, "its budget of 2 pages is used up"),
        ({"pages_per_host": 2}, 3, "its budget of 2 pages of each host is used up"),
        ({"seconds": 60}, 1, "its time of 60 s is used up"),
        ({"bytes": 200}, 1, "its 200 bytes are used up"),
    ],
)
async def test_a_crawl_without_budget_takes_nothing_back_in_line_and_loses_nothing(
    app: App, clock: SetClock, budget: dict[str, int], found: int, spent: str
) -> None:
    crawl = await a_crawl(app, budget=budget)
    await one_page_and_one_failure(app, crawl, found)
    clock.forward(61)
    before = await app.crawls.counts(crawl.id)
    with pytest.raises(Conflict) as refused:
        await app.crawls.requeue(crawl.id)
    said = f"crawl {crawl.id} is over and cannot go on: {spent}; begin a new one with a larger budget"
    assert str(refused.value) == said
    assert (await app.crawls.counts(crawl.id), await live(app, crawl)) == (before, [])
    assert [each.state for each in await app.crawls.urls(crawl.id, state=FAILED)] == [FAILED]
    if "pages_per_host" not in budget:  # another host has pages left
        with pytest.raises(Conflict, match="cannot go on"):
            await app.crawls.feed(crawl.id, ["https://other.example/"])


async def test_a_crawl_that_is_over_goes_on_with_what_failed_while_its_budget_lasts(app: App) -> None:
    crawl = await a_crawl(app, budget={"pages": 3, "pages_per_host": 3})
    await one_page_and_one_failure(app, crawl, found=1)
    assert await app.crawls.requeue(crawl.id) == 1
    assert ((await app.crawls.get(crawl.id)).state, await live(app, crawl)) == ("active", ["queued"])


async def one_page_and_one_failure(app: App, crawl: Crawl, found: int) -> None:
    """Let a crawl fetch its seed, find so many pages, fail with one of them, and end."""
    partition = await Share.of(app, crawl)
    urls = [f"{SITE}{number}" for number in range(found)]
    await partition.turn(
        Turn(found=[Found(key_of(url), url, host_of(url), 1) for url in urls], hosts=10, urls_per_host=2)
    )
    [host] = partition.hosts
    states = ((DONE, 200, 100), (FAILED, 500, 100))
    outcomes = [
        Outcome(each.key, state, status=status, fetched_at=1, size=size)
        for each, (state, status, size) in zip(host.urls, states, strict=True)
    ]
    report = HostReport(host.host, host.fence, outcomes, release=True)
    assert (await partition.turn(Turn(reports=[report], hosts=10))).stop == "done"
    await partition.hand.end(partition.lease)


async def test_a_worker_that_took_two_partitions_leaves_one_for_another(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    await spread_over(app, partition, 5)
    second = await Hand.join(app, "second")
    assert await spreader(app, clock).tick() == 1
    assert len(await partition.hand.lease()) == 1  # the greedy one takes that too
    assert await spreader(app, clock).tick() == 1
    assert len(await second.lease()) == 1
    assert await spreader(app, clock).tick() == 0


def test_no_crawl_has_more_than_twice_as_many_partitions_as_workers() -> None:
    def taken(worker: str, state: str = "running") -> ShareOf:
        return ShareOf(
            run_id=1,
            state=state,
            worker=worker,
            attempt=1,
            started_at=1,
            finished_at=None,
            outcome=None,
            reason=None,
        )

    assert ScaleTarget(3, by_worker=True).missing([taken("a")] * 2) == 2
    assert ScaleTarget(3, by_worker=True).missing([taken("a")] * 6) == 0
    assert ScaleTarget(3, by_worker=False).missing([taken("a")] * 2) == 1
    assert ScaleTarget(0, by_worker=True).missing([]) == 1
    assert ScaleTarget(3, by_worker=True).missing([taken("a"), taken("a", "paused")]) == 1, (
        "it waits, wherever it was before"
    )


async def test_a_crawl_of_a_project_that_cannot_be_is_refused(app: App) -> None:
    with pytest.raises(Invalid, match="project is 'no such'"):
        await app.crawls.create("no such", SPEC)
    assert await app.crawls.all() == []
