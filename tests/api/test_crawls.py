"""Crawls over HTTP."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.crawls.steering import SITE, SKIPS, SPEC, Share, a_crawl
from weft.access.model import Role
from weft.crawler.cdxj import location_of

pytestmark = on_sqlite

PLACE = (
    b'{"url":"http://a.example/","mime":"text/html","status":"200","digest":"sha1:A","length":"1",'
    b'"offset":"7","filename":"a.warc.gz"}\n'
)


async def test_a_crawl_is_begun_and_shown_with_how_far_it_is(admin: Visitor) -> None:
    made = await admin.post("/v1/crawls", {"spec": SPEC | {"budget": {"pages": 100}}, "project": "shop", "name": "x"})
    assert (made.status, made.headers["Location"]) == (202, "/v1/crawls/1")
    partition = await Share.of(admin.app, await admin.app.crawls.get(1))
    await partition.fetch(pages=3, failed=1, skips=SKIPS)
    shown = (await admin.get("/v1/crawls/1")).json
    assert (shown["crawl"]["name"], shown["crawl"]["state"], shown["crawl"]["urls"]) == ("x", "active", [SITE])
    assert (shown["counts"]["done"], shown["counts"]["failed"], shown["left"]) == (3, 1, 0)
    assert [each["run_id"] for each in shown["partitions"]] == [partition.run_id]
    assert shown["skips"][0] == {
        "reason": "scope",
        "sentence": "it lies outside of what the crawl may fetch",
        "count": 612,
    }
    assert shown["traps"][0]["pattern"] == "/calendar/{number}"
    assert [each["id"] for each in (await admin.get("/v1/crawls?state=active")).json["items"]] == [1]
    assert (await admin.get("/v1/crawls?state=done")).json["items"] == []


@pytest.mark.parametrize(
    ("keeping", "field"),
    [
        ({"text": True}, "keeping.text"),
        ({"markdown": True}, "keeping.markdown"),
        ({"fields": {"sku": {"jsonpath": "$.sku"}}}, "keeping.fields.sku"),
    ],
)
async def test_a_crawl_that_needs_an_extra_which_is_not_installed_is_refused(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch, keeping: dict[str, Any], field: str
) -> None:
    for package in ("turbohtml", "jsonpath_rfc9535"):
        monkeypatch.setitem(sys.modules, package, None)
    refused = await admin.post("/v1/crawls", {"spec": SPEC | {"keeping": keeping}})
    assert (refused.status, refused.json["field"]) == (422, field)
    assert "pip install 'weft[text]'" in refused.json["detail"]
    assert (await admin.get("/v1/crawls")).json["items"] == []

    assert (await admin.post("/v1/crawls", {"spec": SPEC | {"keeping": {"language": True}}})).status == 202


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"urls": [SITE]}, "fetching.contact"),
        (SPEC | {"urls": ["http://10.0.0.1/"]}, "urls"),
        (SPEC | {"scope": {"allow": ["["]}}, "crawl.scope.allow"),
        (SPEC | {"budget": {"pages": -1}}, "spec.budget.pages"),
        (SPEC | {"nonsense": 1}, "spec"),
    ],
)
async def test_what_is_wrong_with_a_crawl_is_told_by_its_field(
    admin: Visitor, spec: dict[str, Any], field: str
) -> None:
    answer = await admin.post("/v1/crawls", {"spec": spec})
    assert (answer.status, answer.json["field"]) == (422, field)
    assert (await admin.get("/v1/crawls")).json["items"] == []


async def test_secrets_of_a_spec_are_not_shown(admin: Visitor) -> None:
    fetching = {"contact": "us@weft.example", "password": "hush", "headers": {"X-Key": "hush", "Y": "{{secret:Y}}"}}
    await a_crawl(admin.app, fetching=fetching)
    answer = await admin.get("/v1/crawls/1")
    assert b"hush" not in answer.data
    assert answer.json["spec"]["fetching"]["headers"]["Y"] == "{{secret:Y}}"


async def test_long_lists_come_in_pages(admin: Visitor) -> None:
    partition = await Share.of(admin.app, await a_crawl(admin.app))
    await partition.fetch(pages=5)
    seen: list[str] = []
    after = ""
    while True:
        page = (await admin.get(f"/v1/crawls/1/urls?limit=2{after}")).json
        seen += [each["url"] for each in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert len(seen) == len(set(seen)) == 5
    assert (await admin.get("/v1/crawls/1/urls?after=bogus")).status == 422
    assert [each["host"] for each in (await admin.get("/v1/crawls/1/hosts")).json["items"]] == ["site.example"]
    assert (await admin.get("/v1/crawls/1/urls?host=site.example&state=failed")).json["items"] == []


async def test_a_crawl_is_steered_by_operators_and_begun_by_developers(admin: Visitor) -> None:
    await a_crawl(admin.app)
    operator = await admin.with_role(Role.OPERATOR, "shop")
    assert (await operator.post("/v1/crawls", {"spec": SPEC, "project": "shop"})).status == 403
    assert (await operator.post("/v1/crawls/1/pause")).json["reason"] == "paused by test"
    assert (await operator.post("/v1/crawls/1/resume")).json["state"] == "active"
    assert (await operator.post("/v1/crawls/1/urls", {"urls": [f"{SITE}a", f"{SITE}b#c"]})).json == {
        "given": 2,
        "new": 2,
    }
    assert (await operator.post("/v1/crawls/1/stop")).json["state"] == "stopped"
    assert (await operator.post("/v1/crawls/1/urls", {"urls": [SITE]})).status == 409
    assert (await operator.call("DELETE", "/v1/crawls/1")).status == 403
    stranger = await admin.with_role(Role.ADMIN, "blog")
    assert (await stranger.get("/v1/crawls/1")).status == 404
    assert (await admin.call("DELETE", "/v1/crawls/1")).status == 204
    assert (await admin.get("/v1/crawls/1")).status == 404


async def test_raw_files_are_given_as_they_are_kept(admin: Visitor) -> None:
    await a_crawl(admin.app)
    for name, data in (
        ("a.warc.gz", b"raw"),
        ("a.cdxj", b"com,b)/ 1 " + PLACE),
        ("b.warc.gz", b"x"),
        ("b.cdxj", b"com,a)/ 1 " + PLACE),
    ):
        await admin.app.blobs.put(f"crawls/1/warc/{name}", data)
    files = (await admin.get("/v1/crawls/1/warcs")).json["items"]
    assert [(each["name"], each["has_index"], each["size"]) for each in files] == [
        *(("a.warc.gz", True, 3), ("b.warc.gz", True, 1))
    ]
    assert (await admin.get("/v1/crawls/1/warcs/a.warc.gz")).data == b"raw"
    assert (await admin.get("/v1/crawls/1/cdxj")).data == b"com,a)/ 1 " + PLACE + b"com,b)/ 1 " + PLACE
    joined = (await admin.get("/v1/crawls/1/cdxj?joined_as=site.warc.gz")).data
    places = [location_of(line) for line in joined.splitlines()]
    assert [(each.offset, each.filename) for each in places] == [("10", "site.warc.gz"), ("7", "site.warc.gz")]
    assert (await admin.get("/v1/crawls/1/warcs/c.warc.gz")).status == 404
    assert (await admin.get("/v1/crawls/1/warcs/..%2f..%2fsecret")).status == 404
