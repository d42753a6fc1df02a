"""Each item of an attempt is stored once, whatever is sent twice, late, at once or in another order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import OpenApp, SetClock, on_sqlite, sqlite_copy
from tests.items.scene import Spider, counted, line, lines, start, stored
from tests.runs.acting import Hand, events_of, submit_many
from weft.app import App, open_app
from weft.config import Config
from weft.db import schema
from weft.items.model import ItemBatch, ItemQuery


@dataclass
class LoopApp:
    """An app on SQLite in an event loop that outlives one example."""

    app: App
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)


@pytest.fixture
def loop_app(sqlite_template: Path, tmp_path: Path) -> Iterator[LoopApp]:
    config = Config(data_dir=str(tmp_path), database=sqlite_copy(sqlite_template, tmp_path), broker="memory:")
    with asyncio.Runner() as runner:
        app = runner.run(open_app(config))
        yield LoopApp(app, runner)
        runner.run(app.close())


async def test_items_are_stored_in_their_order(app: App) -> None:
    spider = await start(app)
    assert await spider.yields({"n": 1}, {"n": 2}) == 3
    assert await spider.yields({"n": 3}) == 4
    found = [row async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
    assert [(row.seq, row.data["n"]) for row in found] == [(1, 1), (2, 2), (3, 3)]


async def test_a_batch_that_is_sent_twice_is_stored_once(app: App) -> None:
    spider = await start(app)
    batch = lines([{"n": 1}, {"n": 2}])
    assert [await spider.send(batch, 1), await spider.send(batch, 1)] == [3, 3]
    assert len(await stored(app)) == 2
    assert await counted(app, spider.run_id) == {"items": 2, "new": 2, "changed": 0, "refused": 0}


async def test_of_a_batch_that_overlaps_only_the_rest_is_stored(app: App) -> None:
    spider = await start(app)
    await spider.send(lines([{"n": 1}, {"n": 2}]), 1)
    assert await spider.send(lines([{"n": 2}, {"n": 3}]), 2) == 4
    assert sorted(row["seq"] for row in await stored(app)) == [1, 2, 3]


async def test_after_a_gap_nothing_is_stored(app: App) -> None:
    spider = await start(app)
    assert await spider.send(lines([{"n": 5}]), 5) == 1
    assert await stored(app) == []


async def test_a_batch_may_hold_the_same_item_several_times(app: App) -> None:
    spider = await start(app)
    await spider.yields({"n": 1}, {"n": 1}, {"n": 2}, {"n": 1})
    assert len(await stored(app)) == 4
    (one,) = (each for each in await stored(app, schema.records) if each["seen"] == 3)
    assert one["revisions"] == 1
    assert await counted(app, spider.run_id) == {"items": 4, "new": 2, "changed": 0, "refused": 0}


async def test_the_order_of_fields_makes_no_other_record(app: App) -> None:
    spider = await start(app)
    await spider.yields({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert len(await stored(app, schema.records)) == 1


async def test_with_key_fields_a_change_is_a_new_look_of_the_same_record(app: App) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    spider = await start(app)
    await spider.yields({"id": 7, "price": 1}, {"id": 7, "price": 2}, {"id": 7, "price": 2}, {"id": 8, "price": 1})
    later = await start(app, hand=spider.hand)
    await later.yields({"id": 7, "price": 3}, at=1_790_000_000_000_000)
    assert await counted(app, spider.run_id) == {"items": 4, "new": 2, "changed": 1, "refused": 0}
    assert await counted(app, later.run_id) == {"items": 1, "new": 0, "changed": 1, "refused": 0}
    page = await app.datasets.records("shop", "quotes")
    seven = next(record for record in page.records if record.data["id"] == 7)
    _, revisions = await app.datasets.record("shop", "quotes", seven.id)
    assert [revision.data["price"] for revision in revisions] == [3, 2, 1]
    assert (seven.seen, seven.revisions, seven.last_seen_at) == (4, 3, 1_790_000_000_000_000)


async def test_an_item_without_any_key_field_is_known_by_all_of_it(app: App) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    spider = await start(app)
    await spider.yields({"name": "a"}, {"name": "b"}, {"name": "a"})
    assert len(await stored(app, schema.records)) == 2


async def test_a_worker_cannot_deliver_for_a_run_that_was_never_its_own(app: App) -> None:
    spider = await start(app)
    stranger = Spider(await Hand.join(app, "stranger"), spider.lease)
    assert await stranger.yields({"n": 1}) == 0
    assert await stored(app) == []


async def test_a_fenced_attempt_still_brings_its_items(app: App) -> None:
    spider = await start(app, retries=3)
    await spider.yields({"n": 1})
    await spider.hand.lose()
    other = await Hand.join(app, "other")
    again = Spider(other, await other.lease_one())
    assert again.run_id == spider.run_id
    assert again.lease.attempt > spider.lease.attempt
    same_name = await Hand.join(app, spider.hand.name)
    assert await Spider(same_name, spider.lease).send(lines([{"n": 2}]), 2) == 3
    assert await again.yields({"n": 1}) == 2
    assert len(await stored(app)) == 3
    of_last = [row.data async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
    of_all = [row.data async for row in app.items.rows(ItemQuery(run_id=spider.run_id, all_attempts=True))]
    assert (of_last, of_all) == ([{"n": 1}], [{"n": 1}, {"n": 2}, {"n": 1}])


async def test_what_is_no_item_is_counted_and_holds_nothing_up(app: App) -> None:
    spider = await start(app)
    data = line({"n": 1}) + b"nonsense\n" + line([1, 2]) + b"\n" + line({"n": 5})
    assert await spider.send(data) == 6
    assert await counted(app, spider.run_id) == {"items": 2, "new": 2, "changed": 0, "refused": 3}
    assert sorted(row["seq"] for row in await stored(app)) == [1, 5]


async def test_what_a_database_cannot_keep_is_replaced(app: App) -> None:
    spider = await start(app)
    await spider.send(b'{"item":{"a\\u0000":"x\\u0000y","b":"\\ud800","c":"\xff","d":NaN,"e":"\xf0\x9f\x98\x80"}}\n')
    (row,) = [row async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
    assert row.data == {"a\ufffd": "x\ufffdy", "b": "\ufffd", "c": "\ufffd", "d": None, "e": "\U0001f600"}


async def test_an_item_of_seven_megabytes_is_kept(app: App) -> None:
    spider = await start(app)
    await spider.yields({"page": "é\"'\\" * 1_000_000})
    (row,) = [row async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
    assert len(row.data["page"]) == 4_000_000


@on_sqlite
async def test_an_item_that_is_too_large_is_refused(app: App) -> None:
    spider = await start(app)
    assert await spider.yields({"page": "x" * 17_000_000}, {"n": 2}) == 3
    assert await counted(app, spider.run_id) == {"items": 1, "new": 1, "changed": 0, "refused": 1}


async def test_statistics_come_without_items_too(app: App) -> None:
    spider = await start(app)
    await spider.send(b"", stats={"item_scraped_count": 3})
    await spider.send(b"")
    (stats,) = await app.items.stats(spider.run_id)
    assert (stats.stats, stats.items, stats.dataset) == ({"item_scraped_count": 3}, 0, "quotes")


async def test_items_that_are_not_as_the_schema_says_are_stored_and_counted(app: App) -> None:
    await app.datasets.set("shop", "quotes", schema={"required": ["text"]})
    spider = await start(app)
    await spider.yields({"text": "a"}, {"author": "b"})
    (stats,) = await app.items.stats(spider.run_id)
    assert (stats.items, stats.invalid) == (2, 1)


async def test_items_are_told_of_once_a_second(app: App, clock: SetClock) -> None:
    spider = await start(app)
    for _ in range(5):
        await spider.yields({"n": spider.awaited})
    clock.forward(1)
    await spider.yields({"n": 6})
    told = [event for event in await events_of(app, spider.run_id) if event.kind == "items_collected"]
    assert [event.data["items"] for event in told] == [1, 6]
    made = [event.data for event in await events_of(app, spider.run_id) if event.kind == "dataset_created"]
    assert made == [{"dataset": "quotes"}]


async def test_collectors_that_meet_the_same_records_at_once_agree(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app(), await another_app()]
    spiders = [await start(each, hand=await Hand.join(each, f"w{n}")) for n, each in enumerate(apps)]
    every = [{"n": n} for n in range(60)]

    async def crawl(spider: Spider, order: list[dict[str, int]]) -> None:
        for place in range(0, len(order), 20):
            await spider.yields(*order[place : place + 20])

    await asyncio.gather(
        crawl(spiders[0], every), crawl(spiders[1], every[::-1]), crawl(spiders[2], every[30:] + every[:30])
    )
    records = await stored(app, schema.records)
    assert len(records) == 60
    assert {each["seen"] for each in records} == {3}
    assert sum([(await counted(app, spider.run_id))["new"] for spider in spiders]) == 60
    assert len(await stored(app)) == 180


async def test_several_attempts_may_come_in_one_call(app: App) -> None:
    hand = await Hand.join(app)
    one, two = await start(app, hand=hand), await start(app, "books", hand=hand)
    harvests = [
        ItemBatch(one.run_id, one.lease.attempt, 1, lines([{"n": 1}])),
        ItemBatch(two.run_id, two.lease.attempt, 1, lines([{"n": 1}])),
        ItemBatch(one.run_id, one.lease.attempt, 2, lines([{"n": 2}])),
        ItemBatch(999, 1, 1, lines([{"n": 1}])),
    ]
    assert await app.protocol.collect(hand.id, harvests) == [2, 2, 3, 0]
    assert [each.name for each in await app.datasets.all()] == ["books", "quotes"]


@pytest.mark.parametrize("keyed", [False, True])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sends=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30), st.integers(0, 12)), max_size=25),
    values=st.lists(st.integers(0, 5), min_size=45, max_size=45),
)
def test_whatever_is_sent_each_number_is_stored_once_and_the_counts_agree(
    loop_app: LoopApp, keyed: bool, sends: list[tuple[int, int, int]], values: list[int]
) -> None:
    loop_app.run(check_sends(loop_app.app, keyed, sends, values))


async def check_sends(app: App, keyed: bool, sends: list[tuple[int, int, int]], values: list[int]) -> None:
    """Two runs of one spider; each send is a run, the number of its first item, and how many there are."""
    name = f"spider-{len(await app.datasets.all())}"
    await app.datasets.set("shop", name, key_fields=["key"] if keyed else [])
    hand = await Hand.join(app)
    spiders = [await start(app, name, hand), await start(app, name, hand)]
    items = [{"key": value % 3, "value": value} for value in values]
    awaited = [1, 1]
    for which, first, count in sends:
        answer = await spiders[which].send(lines(items[first - 1 : first - 1 + count]), first)
        if first <= awaited[which]:
            awaited[which] = max(awaited[which], first + count)
        assert answer == awaited[which]
    for spider, expected in zip(spiders, awaited, strict=True):
        rows = [row async for row in app.items.rows(ItemQuery(run_id=spider.run_id))]
        assert [row.seq for row in rows] == list(range(1, expected))
        assert [row.data for row in rows] == items[: expected - 1]
        stats = await app.items.stats(spider.run_id)
        assert [each.items for each in stats] == ([expected - 1] if stats else [])
    yielded = items[: awaited[0] - 1] + items[: awaited[1] - 1]
    records = (await app.datasets.records("shop", name, limit=100)).records
    assert len(records) == len({item["key"] if keyed else item["value"] for item in yielded})
    assert sum(record.seen for record in records) == len(yielded)


async def test_thousands_of_attempts_may_tell_at_once(app: App) -> None:
    hand = await Hand.join(app)
    await submit_many(app, 1100, spec={"spider": "quotes"})
    leases = [lease for _ in range(2) for lease in await hand.lease(1000)]
    harvests = [ItemBatch(each.run_id, each.attempt, 1, line({"n": each.run_id})) for each in leases]
    assert await app.protocol.collect(hand.id, harvests) == [2] * 1100
    assert await app.protocol.collect(hand.id, harvests) == [2] * 1100
