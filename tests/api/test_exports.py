"""Items as files, through the gateway."""

from __future__ import annotations

import csv
import io
import json

import aiohttp
import pyarrow.parquet
import pytest
from sqlalchemy import delete

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.items.yielding import Crawl, crawled
from weft.access.model import Role
from weft.db import schema

TEAS = [{"name": f"tea {number}", "price": number} for number in range(3)]


async def test_the_items_of_a_run_are_a_file(nobody: Visitor) -> None:
    crawl = await crawled(nobody.app, TEAS)
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    answer = await viewer.get(f"/v1/runs/{crawl.run_id}/items/export?format=csv&fields=price,name")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="run-{crawl.run_id}.csv"'
    assert list(csv.reader(io.StringIO(answer.data.decode()))) == [
        ["price", "name"],
        ["0", "tea 0"],
        ["1", "tea 1"],
        ["2", "tea 2"],
    ]


async def test_a_dataset_is_the_newest_look_of_each_record_or_every_item(nobody: Visitor) -> None:
    await crawled(nobody.app, TEAS)
    await crawled(nobody.app, TEAS)
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    newest = await viewer.get("/v1/datasets/shop/prices/export")
    assert [json.loads(line) for line in newest.data.splitlines()] == TEAS
    every = await viewer.get("/v1/datasets/shop/prices/export?every=true&format=json&ids=true")
    assert [(each["weft_seq"], each["name"]) for each in every.json] == [
        (number + 1, f"tea {number}") for number in (0, 1, 2, 0, 1, 2)
    ]
    assert len({(each["weft_run"], each["weft_attempt"], each["weft_seq"]) for each in every.json}) == 6


@on_sqlite
@pytest.mark.parametrize(
    ("format", "media_type"),
    [
        ("jsonl", "application/x-ndjson"),
        ("json", "application/json"),
        ("csv", "text/csv; charset=utf-8"),
        ("xml", "application/xml"),
        ("parquet", "application/vnd.apache.parquet"),
    ],
)
async def test_each_format_says_what_it_is(nobody: Visitor, format: str, media_type: str) -> None:
    await crawled(nobody.app, TEAS)
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    path = f"/v1/datasets/shop/prices/export?format={format}"
    answer, head = await viewer.get(path), await viewer.call("HEAD", path)
    assert answer.headers["content-type"] == head.headers["content-type"] == media_type
    assert head.headers["content-disposition"] == f'attachment; filename="shop-prices.{format}"'
    assert (len(head.data), head.status) == (0, 200)
    if format == "parquet":
        assert pyarrow.parquet.read_table(io.BytesIO(answer.data)).to_pylist() == TEAS


@on_sqlite
async def test_what_cannot_be_exported_is_a_problem_and_no_file(nobody: Visitor) -> None:
    crawl = await crawled(nobody.app, TEAS)
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    for path, status in (
        (f"/v1/runs/{crawl.run_id}/items/export?format=xlsx", 422),
        (f"/v1/runs/{crawl.run_id}/items/export?fields=a,,b", 422),
        ("/v1/runs/999/items/export", 404),
        ("/v1/datasets/shop/nothing/export", 404),
        ("/v1/datasets/bank/prices/export", 404),
    ):
        answer = await viewer.get(path)
        assert (path, answer.status) == (path, status)
        assert answer.headers["content-type"] == "application/problem+json"


@on_sqlite
async def test_a_file_that_cannot_be_finished_is_cut_off(nobody: Visitor) -> None:
    crawl = await Crawl.begin(nobody.app)
    for _ in range(8):
        await crawl.yields([{"n": number, "text": "x" * 4000} for number in range(1000)])
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    headers = {"Authorization": f"Bearer {viewer.token}"}
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"{viewer.address}/v1/runs/{crawl.run_id}/items/export", headers=headers)
        assert answer.status == 200
        got = await answer.content.readany()
        nobody.app.db.close()  # far more is left than fits into what lies between
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
        assert len(got) > 0
        answer.close()


@on_sqlite
async def test_a_field_that_comes_late_does_not_vanish(nobody: Visitor) -> None:
    crawl = await crawled(nobody.app, [*TEAS, {"late": True}])
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    answer = await viewer.get(f"/v1/runs/{crawl.run_id}/items/export?format=csv")
    assert answer.data.decode().splitlines()[0] == "name,price,late"


@on_sqlite
async def test_a_run_whose_items_were_deleted_is_an_empty_file(nobody: Visitor) -> None:
    crawl = await crawled(nobody.app, TEAS)
    await nobody.app.db.transact(lambda tx: tx.execute(delete(schema.items)).rowcount)
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    answer = await viewer.get(f"/v1/runs/{crawl.run_id}/items/export")
    assert (answer.status, answer.data) == (200, b"")
