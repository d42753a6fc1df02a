"""Many tasks at once over HTTP: paused together, as a graph, as a file, and found by a part of their name."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml

from tests.api.acting import Visitor
from tests.tasks.scene import keep, noop
from weft.access.model import Role
from weft.operations.tasks import toml_text, yaml_text
from weft.tasks.model import UpstreamTask


async def three(visitor: Visitor) -> None:
    await keep(
        visitor.app,
        noop("prices", "@daily", project="shop", tags=("eu",)),
        noop("report", project="shop", after=(UpstreamTask("prices"), UpstreamTask("blog/feed", "any"))),
        noop("feed", "@every 5m", project="blog", paused=True),
    )


async def paused(visitor: Visitor) -> dict[str, bool]:
    found = (await visitor.get("/v1/tasks")).json["items"]
    return {f"{each['project']}/{each['name']}": each["paused"] for each in found}


async def test_tasks_are_paused_and_let_go_on_together(admin: Visitor) -> None:
    await three(admin)
    answer = await admin.post("/v1/tasks/pause", {"all": True})
    assert answer.json == {"tasks": ["shop/prices", "shop/report"]}
    assert all((await paused(admin)).values())
    await admin.post("/v1/tasks/resume", {"project": "shop"})
    assert await paused(admin) == {"blog/feed": True, "shop/prices": False, "shop/report": False}
    answer = await admin.post("/v1/tasks/resume", {"tasks": ["blog/feed", "shop/prices"]})
    assert answer.json == {"tasks": ["blog/feed"]}


async def test_where_one_of_them_is_missing_none_is_paused(admin: Visitor) -> None:
    await three(admin)
    assert (await admin.post("/v1/tasks/pause", {"tasks": ["shop/prices", "shop/none"]})).status == 404
    assert not (await paused(admin))["shop/prices"]


@pytest.mark.parametrize("body", [{}, {"all": True, "project": "shop"}, {"tasks": []}, {"tasks": ["a/b"], "all": True}])
async def test_exactly_one_choice_is_taken(admin: Visitor, body: dict[str, Any]) -> None:
    assert (await admin.post("/v1/tasks/pause", body)).status == 422


async def test_all_are_all_that_the_caller_may_pause(admin: Visitor) -> None:
    await three(admin)
    await admin.post("/v1/tasks/resume", {"all": True})
    someone = await admin.granted({"shop": Role.VIEWER, "blog": Role.OPERATOR})
    assert (await someone.post("/v1/tasks/pause", {"all": True})).json == {"tasks": ["blog/feed"]}
    assert (await someone.post("/v1/tasks/pause", {"tasks": ["shop/prices"]})).status == 403


async def test_the_graph_has_every_task_that_comes_before_or_after_one(admin: Visitor) -> None:
    await three(admin)
    await keep(admin.app, noop("alone", project="shop"))
    await admin.post("/v1/tasks/shop/prices/start", {})
    graph = (await admin.get("/v1/tasks/graph")).json
    assert [each["name"] for each in graph["tasks"]] == ["feed", "prices", "report"]
    assert [each["last_run"] and each["last_run"]["state"] for each in graph["tasks"]] == [None, "queued", None]
    assert {(each["source"], each["target"], each["on"]) for each in graph["edges"]} == {
        ("shop/prices", "shop/report", "success"),
        ("blog/feed", "shop/report", "any"),
    }
    someone = await admin.granted({"shop": Role.VIEWER})
    seen = (await someone.get("/v1/tasks/graph")).json
    assert [each["source"] for each in seen["edges"]] == ["shop/prices"]


async def test_the_graph_around_a_task_has_what_comes_right_before_and_after_it(admin: Visitor) -> None:
    await three(admin)
    await keep(admin.app, noop("mail", project="shop", after=(UpstreamTask("report"),)))
    seen = (await admin.get("/v1/tasks/graph?task=shop/prices")).json
    assert [(each["source"], each["target"]) for each in seen["edges"]] == [("shop/prices", "shop/report")]
    assert (await admin.get("/v1/tasks/graph?task=shop/none")).status == 404


async def test_what_is_exported_can_be_applied(admin: Visitor) -> None:
    await three(admin)
    content = (await admin.get("/v1/tasks/export")).json
    assert (await admin.post("/v1/tasks/apply?dry_run=true&prune=true", content)).json["changes"] == []
    someone = await admin.granted({"blog": Role.VIEWER})
    assert [each["name"] for each in (await someone.get("/v1/tasks/export")).json["tasks"]] == ["feed"]


async def test_an_export_is_the_same_as_toml_and_as_yaml(admin: Visitor) -> None:
    await three(admin)
    odd = {"odd": 'a "quoted"\n\x7f\u2028 text', "list": [1, 2.5, True], "table": {"ü key": []}}
    await keep(admin.app, noop("odd", {"when": "2030-01-01 08:00"}, project="shop", params=odd))
    content = (await admin.get("/v1/tasks/export")).json
    text = toml_text(content)
    assert text is not None
    assert tomllib.loads(text) == content
    assert yaml.safe_load(yaml_text(content)) == content
    assert toml_text({"tasks": [{"name": "x", "params": {"open": None}}]}) is None


async def test_a_list_tells_the_newest_run_where_it_is_asked_to(admin: Visitor) -> None:
    await three(admin)
    await admin.post("/v1/tasks/shop/prices/start", {})
    run_id = (await admin.post("/v1/tasks/shop/prices/start", {})).json["run_id"]
    items = (await admin.get("/v1/tasks?last_run=true")).json["items"]
    assert [each["last_run"] and each["last_run"]["id"] for each in items] == [None, run_id, None]
    assert [each["starts"] for each in items][1] == "every day at 00:00 (UTC)"
    assert "last_run" not in (await admin.get("/v1/tasks")).json["items"][0]


async def test_tasks_are_found_by_a_part_of_their_name(admin: Visitor) -> None:
    await three(admin)
    for part, found in (("RIC", ["prices"]), ("e", ["feed", "prices", "report"]), ("%25", []), ("_", [])):
        items = (await admin.get(f"/v1/tasks?name={part}")).json["items"]
        assert [each["name"] for each in items] == found
