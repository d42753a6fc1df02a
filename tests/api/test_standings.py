"""How projects and spiders do, over the API; and versions in pages and beside each other."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.conftest import SetClock
from tests.items.pasts import crawled
from tests.projects.making import PRICES, a_version
from tests.runs.acting import submit
from weft.access.model import Role
from weft.app import App
from weft.projects.model import Spider


async def test_standings_come_in_pages_of_the_projects_that_one_may_see(app: App, admin: Visitor) -> None:
    for name in ("a", "b", "c", "hidden"):
        await submit(app, project=name, kind="noop")
    somebody = await admin.granted({"a": Role.VIEWER, "b": Role.VIEWER, "c": Role.VIEWER})
    first = (await somebody.get("/v1/spider-health?limit=2")).json
    assert [each["project"] for each in first["items"]] == ["a", "b"]
    assert [each["queued"] for each in first["items"]] == [1, 1]
    rest = (await somebody.get(f"/v1/spider-health?limit=2&after={first['next']}")).json
    assert ([each["project"] for each in rest["items"]], rest["next"]) == (["c"], None)
    assert (await somebody.get("/v1/spider-health?after=nonsense")).status == 422


async def test_a_history_tells_what_was_usual_before_each_run(app: App, admin: Visitor, clock: SetClock) -> None:
    await a_version(app, "shop")
    for count in (10, 10, 10, 20):
        await crawled(app, clock, count, args={"country": "de"} if count == 20 else {})
    found = (await admin.get("/v1/projects/shop/history?spider=prices")).json
    assert [each["items"] for each in found["runs"]] == [20, 10, 10, 10]
    assert [each["usual_items"] for each in found["runs"]] == [
        {"low": 7.0, "middle": 10.0, "high": 13.0},
        None,
        None,
        None,
    ]
    assert found["usual_items"] == {"low": 7.0, "middle": 10.0, "high": 20.0}
    assert [each["drifted"] for each in found["runs"]] == [True, False, False, False]
    assert [each["args"] for each in found["earlier"]] == [{"country": "de"}, {}]
    assert found["last_good_run_id"] == found["runs"][0]["run_id"]
    assert len((await admin.get("/v1/projects/shop/history?spider=prices&limit=2")).json["runs"]) == 2
    assert (await admin.get("/v1/projects/shop/history?spider=prices&limit=101")).status == 422
    assert (await admin.get("/v1/projects/shop/history?spider=nobody")).json["runs"] == []


async def test_a_project_that_nobody_knows_has_no_standing(admin: Visitor) -> None:
    assert (await admin.get("/v1/projects/nowhere/health")).status == 404


async def test_versions_are_listed_briefly_and_in_pages_where_that_is_asked_for(app: App, admin: Visitor) -> None:
    for version in ("1.9", "1.10"):
        await a_version(app, "shop", version)
    whole = (await admin.get("/v1/projects/shop/versions")).json["items"]
    assert [(each["version"], len(each["spiders"]), each["spider_count"]) for each in whole] == [
        ("1.10", 1, 1),
        ("1.9", 1, 1),
    ]
    brief = (await admin.get("/v1/projects/shop/versions?brief=true&limit=1")).json
    assert [(each["version"], each["spiders"], each["spider_count"]) for each in brief["items"]] == [("1.10", [], 1)]
    rest = (await admin.get(f"/v1/projects/shop/versions?limit=1&after={brief['next']}")).json
    assert ([each["version"] for each in rest["items"]], rest["next"]) == (["1.9"], None)


async def test_a_version_is_compared_with_the_current_one_unless_told(app: App, admin: Visitor) -> None:
    await a_version(app, "shop", "1.0")
    await a_version(app, "shop", "2.0", digest="cd" * 32, spiders=(PRICES, Spider("stock")))
    found = (await admin.get("/v1/projects/shop/versions/1.0/changes")).json
    assert (found["before"], found["after"], found["removed"], found["settings"]) == ("2.0", "1.0", ["stock"], None)
    back = (await admin.get("/v1/projects/shop/versions/2.0/changes?since=1.0")).json
    assert (back["added"], back["same_code"]) == (["stock"], False)
    assert (await admin.get("/v1/projects/shop/versions/2.0/changes?since=7")).status == 404
