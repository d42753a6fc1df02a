"""Workers, projects and settings over HTTP."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest

from tests.api.acting import Visitor
from tests.runs.acting import Hand
from tests.tasks.scene import keep, noop
from weft.access.model import Role
from weft.api.v1 import settings
from weft.config import Config


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


async def test_the_settings_of_a_project_are_set_by_its_admin(nobody: Visitor) -> None:
    await keep(nobody.app, noop("prices", project="shop"), noop("prices", project="bank"))
    wanted = {"weight": 2.5, "max_running": 7, "max_queued": 100, "tags": {"heavy": 2}}
    wanted |= {"keep_days": 30.0, "min_isolation": "L1"}
    developer, owner = [await nobody.with_role(role, "shop") for role in (Role.DEVELOPER, Role.ADMIN)]
    assert (await developer.call("PUT", "/v1/projects/shop", wanted)).status == 403
    answer = await owner.call("PUT", "/v1/projects/shop", wanted)
    assert answer.json == {"name": "shop"} | wanted
    assert (await developer.get("/v1/projects/shop")).json == answer.json
    assert [each["name"] for each in (await developer.get("/v1/projects")).json["items"]] == ["shop"]
    assert (await owner.get("/v1/projects/bank")).status == 404
    assert (await owner.call("PUT", "/v1/projects/shop", {"weight": 0})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"keep_days": 0})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {"min_isolation": "L9"})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {})).json["tags"] == {}


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
    shown = msgspec.json.encode([settings._document(each) for each in settings.explained(config)]).decode()
    assert "hush" not in shown
    assert "postgresql://weft:••••@db/weft" in shown
