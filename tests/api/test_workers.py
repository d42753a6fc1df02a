"""Workers, projects and settings over HTTP."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.runs.acting import Hand
from tests.tasks.scene import keep, noop
from weft.access.model import Role


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
    developer, owner = [await nobody.with_role(role, "shop") for role in (Role.DEVELOPER, Role.ADMIN)]
    assert (await developer.call("PUT", "/v1/projects/shop", wanted)).status == 403
    answer = await owner.call("PUT", "/v1/projects/shop", wanted)
    assert answer.json == {"name": "shop"} | wanted
    assert (await developer.get("/v1/projects/shop")).json == answer.json
    assert [each["name"] for each in (await developer.get("/v1/projects")).json["items"]] == ["shop"]
    assert (await owner.get("/v1/projects/bank")).status == 404
    assert (await owner.call("PUT", "/v1/projects/shop", {"weight": 0})).status == 422
    assert (await owner.call("PUT", "/v1/projects/shop", {})).json["tags"] == {}
