"""Workers, projects and settings over HTTP."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from tests.api.acting import Visitor
from tests.runs.acting import Hand, submit_many
from tests.tasks.scene import keep, noop
from weft import __version__
from weft.access.model import Role
from weft.config import Config
from weft.db import schema
from weft.errors import Misconfigured
from weft.operations import system
from weft.workers.protocol import Heartbeat


async def test_workers_are_shown_by_name_and_number(admin: Visitor) -> None:
    hand = await Hand.join(admin.app, "crawler", ["eu"])
    [listed] = (await admin.get("/v1/workers")).json["items"]
    assert (listed["name"], listed["labels"], listed["id"]) == ("crawler", ["eu"], hand.id)
    assert (await admin.get("/v1/workers/crawler")).json == listed
    assert (await admin.get(f"/v1/workers/{hand.id}")).json == listed
    assert (await admin.get("/v1/workers/nobody")).status == 404


async def test_the_viewer_of_a_project_does_not_see_the_workers(nobody: Visitor) -> None:
    await Hand.join(nobody.app)
    viewer = await nobody.with_role(Role.ADMIN, "shop")
    assert (await viewer.get("/v1/workers")).status == 403
    assert (await viewer.get("/v1/workers/hand")).status in (403, 404)


async def test_what_a_worker_runs_comes_before_what_it_has_run(admin: Visitor) -> None:
    hand, other = await Hand.join(admin.app, "crawler"), await Hand.join(admin.app, "other")
    ended, running, elsewhere = await submit_many(admin.app, 3)
    [first] = await hand.lease(1)
    [_] = await hand.lease(1)
    [third] = await other.lease(1)
    await hand.end(first, "failed", reason="it broke")
    await other.end(third)
    items = (await admin.get("/v1/workers/crawler/runs")).json["items"]
    assert [(each["id"], each["state"], each["reason"]) for each in items] == [
        (running, "running", None),
        (ended, "failed", "it broke"),
    ]
    assert [each["id"] for each in (await admin.get("/v1/workers/other/runs")).json["items"]] == [elsewhere]
    assert len((await admin.get("/v1/workers/crawler/runs?limit=1")).json["items"]) == 1
    assert (await admin.get("/v1/workers/nobody/runs")).status == 404


async def test_a_worker_that_is_drained_hears_of_it_with_its_heartbeat(admin: Visitor) -> None:
    hand = await Hand.join(admin.app, "crawler")
    beat = Heartbeat(state="online", running=0, done=0)
    assert not (await admin.app.protocol.heartbeat(hand.id, beat)).drain
    answer = await admin.call("POST", "/v1/workers/crawler/drain")
    assert (answer.status, answer.json["state"]) == (202, "draining")
    assert (await admin.app.protocol.heartbeat(hand.id, beat)).drain
    assert (await admin.get("/v1/workers/crawler")).json["state"] == "draining"
    [entry] = (await admin.get("/v1/audit?action=workers.drain")).json["items"]
    assert entry["data"]["after"] == {"state": "draining"}
    await admin.app.protocol.heartbeat(hand.id, Heartbeat(state="offline", running=0, done=0))
    assert (await admin.get("/v1/workers/crawler")).json["state"] == "offline"
    assert (await admin.call("POST", "/v1/workers/crawler/drain")).status == 409


async def test_everybody_with_a_role_is_told_what_weft_is(nobody: Visitor) -> None:
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    told = (await viewer.get("/v1/about")).json
    assert (told["version"], told["schema_version"]) == (__version__, schema.VERSION)
    assert told["database"] in ("sqlite", "postgresql", "mysql", "mariadb")
    assert told["up_seconds"] >= 0


async def test_the_settings_of_a_project_are_set_by_its_admin(nobody: Visitor) -> None:
    await keep(nobody.app, noop("prices", project="shop"), noop("prices", project="bank"))
    wanted = {"weight": 2.5, "max_running": 7, "max_queued": 100, "tags": {"heavy": 2}}
    wanted |= {"keep_days": 30.0, "min_isolation": "L1", "grace_seconds": 60.0}
    wanted |= {"success_if": {"errors": {"max": 0}}, "spiders": {"all": {"success_if": {"items": {"min": 1}}}}}
    developer, owner = [await nobody.with_role(role, "shop") for role in (Role.DEVELOPER, Role.ADMIN)]
    assert (await developer.call("PUT", "/v1/projects/shop", wanted)).status == 403
    answer = await owner.call("PUT", "/v1/projects/shop", wanted)
    untrusted = {"may_run_unsandboxed": False, "may_build": False, "spider_env": [], "network": "all"}
    assert answer.json == {"name": "shop"} | untrusted | wanted
    assert (await developer.get("/v1/projects/shop")).json == answer.json
    assert [each["name"] for each in (await developer.get("/v1/projects")).json["items"]] == ["shop"]
    assert (await owner.get("/v1/projects/bank")).status == 404
    assert (await owner.call("PUT", "/v1/projects/shop", {"weight": 0})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"keep_days": 0})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"min_isolation": "L9"})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"grace_seconds": 3601})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"min_isolation": "L1"})).json["tags"] == {}


@pytest.mark.parametrize("wrong", ["some", [], [0], [65536], [443.5], ["443"], list(range(1, 100))])
async def test_a_network_that_cannot_be_is_refused(nobody: Visitor, wrong: Any) -> None:
    owner = await nobody.with_role(Role.ADMIN, "shop")
    assert (await owner.call("PUT", "/v1/projects/shop", {"network": wrong})).status == 422


@pytest.mark.parametrize(
    ("before", "narrower", "wider"),
    [("none", ["none"], [[443], "all", None]), ([80, 443], [[443], [443, 80], "none"], [[443, 8080], "all", None])],
)
async def test_the_network_of_a_project_is_widened_by_an_admin_of_all_alone_and_that_is_recorded(
    nobody: Visitor, before: Any, narrower: list[Any], wider: list[Any]
) -> None:
    owner, admin = await nobody.with_role(Role.ADMIN, "shop"), await nobody.with_role(Role.ADMIN)
    for network in (before, *(each for less in narrower for each in (less, before))):
        asking = owner if network != before or network == "none" else admin
        assert (await asking.call("PUT", "/v1/projects/shop", {"network": network})).status in (200, 201)
    for settings in ({} if network is None else {"network": network} for network in wider):
        for way in (
            ("PUT", "/v1/projects/shop", settings),
            ("POST", "/v1/tasks/apply", {"projects": {"shop": settings}}),
        ):
            assert (await owner.call(*way)).status == 403
        assert (await owner.get("/v1/projects/shop")).json["network"] == before
        assert (await admin.call("PUT", "/v1/projects/shop", settings)).status == 200
        entry = (await admin.get("/v1/audit?action=projects.put")).json["items"][0]
        now = settings.get("network", "all")
        assert [entry["data"][each].get("network") for each in ("before", "after")] == [before, now]
        assert (await admin.call("PUT", "/v1/projects/shop", {"network": before})).status == 200


@pytest.mark.parametrize("less", [{}, {"min_isolation": "L0"}, {"min_isolation": "L1"}])
async def test_the_isolation_of_a_project_is_lowered_by_an_admin_of_all_alone(
    nobody: Visitor, less: dict[str, str]
) -> None:
    owner, admin = await nobody.with_role(Role.ADMIN, "shop"), await nobody.with_role(Role.ADMIN)
    assert (await owner.call("PUT", "/v1/projects/shop", {"min_isolation": "L2"})).status in (200, 201)
    ways = [("PUT", "/v1/projects/shop", less), ("POST", "/v1/tasks/apply", {"projects": {"shop": less}})]
    for way in ways:
        assert (await owner.call(*way)).status == 403
    assert (await owner.get("/v1/projects/shop")).json["min_isolation"] == "L2"
    for way in ways:
        assert (await admin.call(*way)).status in (200, 201)
    assert (await owner.get("/v1/projects/shop")).json["min_isolation"] == less.get("min_isolation")


@pytest.mark.parametrize(
    ("name", "more", "none"),
    [("may_run_unsandboxed", True, False), ("may_build", True, False), ("spider_env", ["SHOP_DB", "PROXY_*"], [])],
)
async def test_a_project_is_trusted_with_more_by_an_admin_of_all_alone(
    nobody: Visitor, name: str, more: Any, none: Any
) -> None:
    owner, admin = await nobody.with_role(Role.ADMIN, "shop"), await nobody.with_role(Role.ADMIN)
    ways = [
        ("PUT", "/v1/projects/shop", {name: more}),
        ("POST", "/v1/tasks/apply", {"projects": {"shop": {name: more}}}),
    ]
    for way in ways:
        assert (await owner.call(*way)).status == 403
        assert (await owner.get("/v1/projects/shop")).json[name] == none
    for way in ways:
        assert (await admin.call(*way)).status in (200, 201)
        assert (await owner.call("PUT", "/v1/projects/shop", {name: more, "weight": 2})).json[name] == more
        assert (await owner.call("PUT", "/v1/projects/shop", {})).json[name] == none
    entries = (await admin.get("/v1/audit?action=projects.put")).json["items"]
    assert any((each["data"].get("after") or {}).get(name) == more for each in entries), entries


@pytest.mark.parametrize("name", ["WEFT_TOKEN", "WEFT_*", "*", "A*", "A=B", "1A", "", "_*"])
async def test_a_variable_of_wefts_own_or_one_without_a_name_is_refused(nobody: Visitor, name: str) -> None:
    admin = await nobody.with_role(Role.ADMIN)
    answer = await admin.call("PUT", "/v1/projects/shop", {"spider_env": ["FINE", name]})
    assert (answer.status, "the name of a variable, or PREFIX_*" in answer.json["detail"]) == (422, True)
    if name:
        with pytest.raises(Misconfigured, match="the name of a variable, or PREFIX_"):
            Config(spider_env=f"FINE, {name}")


async def test_settings_are_told_to_an_admin_with_their_origin(
    nobody: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CAPACITY", "10")
    admin = await nobody.with_role(Role.ADMIN)
    found = {each["name"]: each for each in (await admin.get("/v1/settings")).json["items"]}
    assert set(found) == {each.name for each in fields(Config)}
    assert (found["capacity"]["value"], found["capacity"]["origin"]) == (10, "WEFT_CAPACITY")
    assert found["port"]["origin"] == "default"
    assert found["data_dir"]["origin"] == "command line"
    for role, project in ((Role.DEVELOPER, "*"), (Role.ADMIN, "shop")):
        assert (await (await nobody.with_role(role, project)).get("/v1/settings")).status == 403


def test_a_secret_is_shown_as_dots() -> None:
    config = Config(database="postgresql://weft:hush@db/weft", secret_key="hush-hush", admin_password="hush-hush-hush")
    shown = msgspec.json.encode([system._setting_document(each) for each in system.explained(config)]).decode()
    assert "hush" not in shown
    assert "postgresql://weft:••••@db/weft" in shown
