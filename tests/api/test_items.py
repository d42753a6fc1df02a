"""Items and datasets over the API."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.acting import Visitor
from tests.cases import for_each
from tests.conftest import on_sqlite
from tests.items.scene import AT, Spider, start
from weft.app import App
from weft.clock import iso

pytestmark = on_sqlite


async def crawl(app: App, *items: dict[str, Any], at: int = AT) -> Spider:
    spider = await start(app)
    await spider.yields(*items, at=at)
    return spider


async def test_items_of_a_run_come_in_pages(app: App, admin: Visitor) -> None:
    spider = await crawl(app, *({"n": n} for n in range(5)))
    seen, after = [], ""
    while after is not None:
        page = (await admin.get(f"/v1/runs/{spider.run_id}/items?limit=2{after and '&after=' + after}")).json
        seen += [(each["seq"], each["data"]["n"], each["at"]) for each in page["items"]]
        after = page["next"]
    assert seen == [(n + 1, n, iso(AT + n)) for n in range(5)]


async def test_the_statistics_of_a_run_are_told(app: App, admin: Visitor) -> None:
    spider = await crawl(app, {"n": 1}, {"n": 1})
    await spider.send(b"nonsense\n", stats={"item_scraped_count": 2})
    (told,) = (await admin.get(f"/v1/runs/{spider.run_id}/stats")).json["items"]
    assert (told["items"], told["new_records"], told["refused"]) == (2, 1, 1)
    assert told["stats"] == {"item_scraped_count": 2}


async def test_things_are_found_by_what_they_are(app: App, admin: Visitor) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    one = await crawl(app, {"id": 1, "text": "green tea"}, {"id": 2, "text": "coffee"})
    two = await crawl(app, {"id": 1, "text": "tea"}, at=AT + 60_000_000)

    async def ids(query: str) -> list[int]:
        answer = await admin.get(f"/v1/datasets/shop/quotes/records?{query}")
        return [each["data"]["id"] for each in answer.json["items"]]

    assert await ids("") == [2, 1]
    assert await ids("where=" + quote(json.dumps({"id": 1}))) == [1]
    assert await ids("contains=" + quote(json.dumps({"text": "off"}))) == [2]
    assert await ids(f"new_in_run={one.run_id}") == [2, 1]
    assert await ids(f"changed_in_run={two.run_id}") == [1]
    assert await ids(f"last_seen_before={quote(iso(AT + 30_000_000) or '')}") == [2]
    shown = (await admin.get("/v1/datasets/shop/quotes/records?contains=" + quote('{"text": "tea"}'))).json
    record = shown["items"][0]["id"]
    history = (await admin.get(f"/v1/datasets/shop/quotes/records/{record}")).json
    assert [look["data"]["text"] for look in history["revisions"]] == ["tea", "green tea"]
    assert history["record"]["seen"] == 2


@pytest.mark.parametrize("name", ["where", "contains"])
async def test_a_field_that_is_named_twice_in_a_condition_is_refused(app: App, admin: Visitor, name: str) -> None:
    run = await crawl(app, {"id": "1"})
    for address in ("/v1/datasets/shop/quotes/records", f"/v1/runs/{run.run_id}/items"):
        answer = await admin.get(f"{address}?{name}=" + quote('{"id": "2", "id": "1"}'))
        assert (answer.status, answer.json["field"]) == (422, name), address


async def test_a_dataset_counts_what_is_in_it(app: App, admin: Visitor) -> None:
    await crawl(app, {"n": 1}, {"n": 1}, {"n": 2})
    shown = (await admin.get("/v1/datasets/shop/quotes")).json
    assert (shown["records"], shown["items"]) == (2, 3)
    listed = (await admin.get("/v1/datasets?project=shop")).json["items"]
    assert [each["name"] for each in listed] == ["quotes"]
    fields = (await admin.get("/v1/datasets/shop/quotes/fields")).json
    assert fields["fields"] == [
        {"name": "n", "present": 2, "filled": 2, "fill_rate": 1.0, "types": {"integer": 2}},
    ]


@for_each(
    ("query", "status"),
    [
        ("where=nonsense", 422),
        ("where=[]", 422),
        ("where=" + quote('{"a": [1]}'), 422),
        ("after=nonsense", 422),
        ("attempt=0", 422),
        ("attempt=7", 422),
        ("attempt=all", 200),
        ("limit=0", 422),
        ("every=true", 422),
    ],
)
async def test_what_is_asked_wrongly_is_refused(app: App, admin: Visitor, query: str, status: int) -> None:
    spider = await crawl(app, {"n": 1})
    assert (await admin.get(f"/v1/runs/{spider.run_id}/items?{query}")).status == status


@for_each(
    "place",
    [["a", "b", "c"], ["1", "1", "9" * 19], ["1", "9" * 10, "1"], ["1", "1"], 7, ["-1", "0", "0"], ["²", "0", "0"]],
)
async def test_a_cursor_that_nobody_gave_is_refused(app: App, admin: Visitor, place: Any) -> None:
    from weft.operations.paging import encode_cursor

    spider = await crawl(app, {"n": 1})
    after = encode_cursor(place if isinstance(place, int) else tuple(place))
    assert (await admin.get(f"/v1/runs/{spider.run_id}/items?after={after}")).status == 422


@for_each(
    "body",
    [
        {"key_fields": ["a", "a"]},
        {"schema": {"pattern": "x"}},
        {"schema": {"type": "text"}},
        {"schema": {"properties": {"a": 7}}},
        {"schema": {"type": [["string"]]}},
        {"schema": {"required": [7]}},
        {"nonsense": 1},
    ],
)
async def test_settings_that_mean_nothing_are_refused(admin: Visitor, body: Any) -> None:
    assert (await admin.call("PUT", "/v1/datasets/shop/quotes", body)).status == 422


async def test_a_search_looks_into_every_field_and_capitals_count_for_nothing(app: App, admin: Visitor) -> None:
    spider = await crawl(app, {"a": "Green Tea", "b": 1}, {"a": "coffee", "tags": ["GREEN"]}, {"a": "milk", "b": None})
    for path, sought, found in (
        (f"/v1/runs/{spider.run_id}/items", "green", ["Green Tea", "coffee"]),
        ("/v1/datasets/shop/quotes/items", "NULL", ["milk"]),
        ("/v1/datasets/shop/quotes/records", "gReen", ["coffee", "Green Tea"]),
    ):
        answer = await admin.get(f"{path}?search={sought}")
        assert [each["data"]["a"] for each in answer.json["items"]] == found
    exported = await admin.get(f"/v1/runs/{spider.run_id}/items/export?search=green&fields=a&format=csv")
    assert exported.data.split() == [b"a", b"Green", b"Tea", b"coffee"]
    assert (await admin.get("/v1/datasets/shop/quotes/export?where=nonsense")).status == 422


async def test_one_item_is_shown_with_what_its_schema_says(app: App, admin: Visitor) -> None:
    await app.datasets.set("shop", "quotes", schema={"required": ["text"]})
    spider = await crawl(app, {"text": "a"}, {"n": 1})
    path = f"/v1/runs/{spider.run_id}/items/{spider.lease.attempt}"
    assert (await admin.get(f"{path}/1")).json["problem"] is None
    assert (await admin.get(f"{path}/2")).json["problem"] == "item has no text"
    assert [(await admin.get(f"{path}/{seq}")).status for seq in ("3", "0", "x")] == [404, 404, 404]
    for listed in (f"/v1/runs/{spider.run_id}/items", "/v1/datasets/shop/quotes/items"):
        problems = [each["problem"] for each in (await admin.get(listed)).json["items"]]
        assert problems == [None, "item has no text"]
    records = (await admin.get("/v1/datasets/shop/quotes/records")).json["items"]
    assert [each["problem"] for each in records] == ["item has no text", None]


async def test_the_fields_of_a_run_are_told_by_attempt(app: App, admin: Visitor) -> None:
    spider = await crawl(app, {"a": 1}, {"a": None})
    path = f"/v1/runs/{spider.run_id}/fields"
    told = (await admin.get(path)).json
    assert (told["sampled"], told["fields"][0]["fill_rate"]) == (2, 0.5)
    assert (await admin.get(f"{path}?attempt=all")).json == told
    assert (await admin.get(f"{path}?attempt=7")).status == 422
    assert (await admin.get("/v1/runs/999/fields")).status == 404


async def test_a_dataset_tells_what_each_run_brought(app: App, admin: Visitor) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    one = await crawl(app, {"id": 1, "v": 1}, {"id": 2, "v": 1})
    two = await crawl(app, {"id": 1, "v": 2}, {"id": 3, "v": 1}, at=AT + 60_000_000)
    path = "/v1/datasets/shop/quotes/runs"
    first = (await admin.get(f"{path}?limit=1")).json
    rest = (await admin.get(f"{path}?limit=1&after={first['next']}")).json
    told = [(each["run_id"], each["new_records"], each["changed_records"]) for each in first["items"] + rest["items"]]
    assert told == [(two.run_id, 1, 1), (one.run_id, 2, 0)]
    assert rest["next"] is None
    gone = (await admin.get(f"/v1/datasets/shop/quotes/records?unseen_in_run={two.run_id}")).json["items"]
    assert [each["data"]["id"] for each in gone] == [2]
    (listed,) = (await admin.get("/v1/datasets?newest=true")).json["items"]
    assert (listed["newest"]["run_id"], listed["records"], listed["at_least"]) == (two.run_id, 3, 3)


async def test_datasets_are_listed_in_pages_and_by_a_part_of_their_name(app: App, admin: Visitor) -> None:
    for project, name in (("shop", "Prices"), ("shop", "a_b"), ("blog", "posts"), ("blog", "a%b")):
        await app.datasets.set(project, name)
    seen, after = [], ""
    while after is not None:
        page = (await admin.get(f"/v1/datasets?newest=true&limit=3{after and '&after=' + after}")).json
        seen += [(each["project"], each["name"]) for each in page["items"]]
        after = page["next"]
    assert seen == sorted(seen)
    assert len(seen) == 4
    for newest in ("", "&newest=true"):
        found = (await admin.get(f"/v1/datasets?name=%25{newest}")).json["items"]
        assert [each["name"] for each in found] == ["a%b"]
        found = (await admin.get(f"/v1/datasets?name=PRI{newest}")).json["items"]
        assert [each["name"] for each in found] == ["Prices"]


async def test_looks_of_a_record_come_in_parts(app: App, admin: Visitor) -> None:
    await app.datasets.set("shop", "quotes", key_fields=["id"])
    await crawl(app, *({"id": 1, "v": n} for n in range(5)))
    (record,) = (await admin.get("/v1/datasets/shop/quotes/records")).json["items"]
    path = f"/v1/datasets/shop/quotes/records/{record['id']}"
    assert [each["number"] for each in (await admin.get(f"{path}?limit=2")).json["revisions"]] == [5, 4]
    assert [each["number"] for each in (await admin.get(f"{path}?below=4")).json["revisions"]] == [3, 2, 1]


async def test_very_many_records_are_counted_only_so_far(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.items.datasets.MOST_COUNTED", 2)
    await crawl(app, {"n": 1}, {"n": 2})
    assert (await app.datasets.glance("shop", "quotes"))[1].records == 2
    await crawl(app, {"n": 3})
    counts = (await app.datasets.glance("shop", "quotes"))[1]
    assert (counts.records, counts.at_least) == (None, 2)
