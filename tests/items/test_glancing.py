"""What is told of datasets and items at a glance costs the same however much there is, on every database."""

from __future__ import annotations

from typing import Any

import pytest

from tests.items.scene import AT, Spider, start
from weft.app import App
from weft.errors import NotFound
from weft.items.datasets import RecordFilter
from weft.items.model import FieldFilter, ItemQuery

MINUTE = 60_000_000


async def crawl(app: App, *items: dict[str, Any], at: int = AT) -> Spider:
    spider = await start(app)
    await spider.yields(*items, at=at)
    await spider.hand.end(spider.lease)
    return spider


async def test_a_glance_tells_what_came_last_and_counts_only_so_far(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    assert (await app.datasets.glance("shop", "quotes"))[2] is None
    await crawl(app, {"id": 1, "v": 1}, {"id": 2, "v": 1})
    last = await crawl(app, {"id": 1, "v": 2}, {"id": 3, "v": 1}, {"id": 3, "v": 1}, at=AT + MINUTE)
    _, counts, newest = await app.datasets.glance("shop", "quotes")
    assert (counts.records, counts.at_least) == (3, 3)
    assert newest is not None
    assert (newest.run_id, newest.state, newest.items) == (last.run_id, "succeeded", 3)
    assert (newest.new_records, newest.changed_records, newest.drift) == (1, 1, [])
    monkeypatch.setattr("weft.items.datasets.MOST_COUNTED", 2)
    counts = (await app.datasets.glance("shop", "quotes"))[1]
    assert (counts.records, counts.at_least) == (None, 2)


async def test_what_runs_brought_is_listed_newest_first_in_parts(app: App) -> None:
    crawls = [await crawl(app, {"n": n}, at=AT + n * MINUTE) for n in range(5)]
    first = await app.datasets.runs("shop", "quotes", limit=2)
    rest = await app.datasets.runs("shop", "quotes", below=(first[-1].run_id, first[-1].attempt), limit=9)
    assert [each.run_id for each in [*first, *rest]] == [each.run_id for each in reversed(crawls)]


async def test_datasets_are_found_by_part_of_their_name_whatever_signs_it_has(app: App) -> None:
    for project, name in (("b", "a%b"), ("b", "A_b"), ("a", "prices"), ("c", "Prices")):
        await app.datasets.set(project, name)

    async def names(part: str = "", **where: object) -> list[str]:
        return [each[0].name for each in await app.datasets.glances(part=part, **where)]  # type: ignore[arg-type]

    assert await names("%") == ["a%b"]
    assert await names("a_") == ["A_b"]
    assert await names("PRICES") == ["prices", "Prices"]
    assert await names("prices", projects={"c"}) == ["Prices"]
    every = await names()
    seen, after = [], ("", "")
    while part := await app.datasets.glances(after=after, limit=1):
        seen.append(part[0][0].name)
        after = (part[0][0].project, part[0][0].name)
    assert seen == every
    assert len(every) == 4


async def test_things_that_a_run_has_not_seen_any_more_are_found(app: App) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    await crawl(app, {"id": 1}, {"id": 2}, {"id": 3})
    last = await crawl(app, {"id": 2}, at=AT + MINUTE)
    gone = await app.datasets.records("shop", "quotes", RecordFilter(unseen_in_run=last.run_id))
    assert [each.data["id"] for each in gone.records] == [3, 1]


async def test_looks_of_a_record_are_had_in_parts(app: App) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    await crawl(app, *({"id": 1, "v": n} for n in range(5)))
    (record,) = (await app.datasets.records("shop", "quotes")).records
    _, revisions = await app.datasets.record("shop", "quotes", record.id, below=5, limit=2)
    assert [each.number for each in revisions] == [4, 3]


async def test_one_item_and_its_dataset_are_found(app: App) -> None:
    spider = await crawl(app, {"n": 1}, {"n": 2})
    assert (await app.items.one(spider.run_id, spider.lease.attempt, 2)).data == {"n": 2}
    with pytest.raises(NotFound):
        await app.items.one(spider.run_id, spider.lease.attempt, 3)
    dataset = await app.items.dataset(spider.run_id)
    assert dataset is not None
    assert dataset.name == "quotes"
    assert await app.items.dataset(999) is None


async def test_a_search_finds_a_text_in_any_field(app: App) -> None:
    spider = await crawl(app, {"a": "Straße"}, {"b": ["STRASSE"]}, {"strasse": 1})
    wanted = ItemQuery(run_id=spider.run_id, where=(FieldFilter(None, "strasse", part=True),))
    assert [row.seq async for row in app.items.rows(wanted)] == [1, 2]
