"""What is changed over HTTP is told by the audit log; what is only looked at is not."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor
from tests.api.people import Person
from tests.api.walking import WALK, everything
from tests.conftest import on_sqlite, plain_engine
from tests.runs.acting import new_run
from weft.access.model import EVERYWHERE, Role
from weft.http.routes import operations

CHANGES = [each for each in operations() if each.changes and each.audited]
AFTERWARDS = {"session.issue_token"}
"""A token is kept nowhere, so there is no transaction to tell of it in."""


async def entries(visitor: Visitor, action: str) -> list[dict[str, Any]]:
    admin = await visitor.with_role(Role.ADMIN)
    return list((await admin.get(f"/v1/audit?action={action}")).json["items"])


async def changed(visitor: Visitor, action: str) -> tuple[str, Any, Any]:
    """The newest entry of an action: what it is about, before and after."""
    newest = (await entries(visitor, action))[0]
    return newest["target"], newest["data"]["before"], newest["data"]["after"]


async def test_a_change_is_told_with_who_where_and_what(admin: Visitor) -> None:
    [run] = await admin.app.runs.submit([new_run(project="shop")])
    await admin.get("/v1/runs")
    await admin.post(f"/v1/runs/{run.run_id}/cancel", headers={"X-Request-Id": "mine-1"})
    [entry] = (await admin.get("/v1/audit")).json["items"]
    assert (entry["actor"], entry["address"], entry["action"]) == ("key:test", "127.0.0.1", "runs.cancel")
    assert (entry["project"], entry["target"]) == ("shop", f"run {run.run_id}")
    assert entry["data"] == {"request_id": "mine-1"}
    assert (await admin.app.audit.verify()).entries == 1


@on_sqlite
async def test_what_is_not_there_for_anybody_is_not_told(admin: Visitor) -> None:
    assert (await admin.post("/v1/runs/99/cancel")).status == 404
    assert (await admin.get("/v1/audit")).json["items"] == []


@on_sqlite
async def test_the_log_comes_in_pages_and_by_project(nobody: Visitor, admin: Visitor) -> None:
    for name in ("A", "B", "C"):
        await admin.call("PUT", f"/v1/projects/shop/secrets/{name}", {"value": "long enough"})
    await admin.call("PUT", "/v1/projects/bank/secrets/D", {"value": "long enough"})
    first = (await admin.get("/v1/audit?limit=3&action=secrets.set")).json
    second = (await admin.get(f"/v1/audit?limit=3&after={first['next']}")).json
    targets = [entry["target"] for entry in first["items"] + second["items"]]
    assert targets == ["secret D", "secret C", "secret B", "secret A"]
    banker = await nobody.with_role(Role.ADMIN, "bank")
    assert [entry["target"] for entry in (await banker.get("/v1/audit")).json["items"]] == ["secret D"]
    assert (await banker.get("/v1/audit?project=shop")).status == 403
    assert (await (await nobody.with_role(Role.DEVELOPER)).get("/v1/audit")).json["items"] == []


@pytest.mark.parametrize("operation", [each for each in CHANGES if each.name in WALK], ids=lambda each: each.name)
@on_sqlite
async def test_every_change_has_an_entry(admin: Visitor, operation: Any) -> None:
    path, body = await WALK[operation.name].prepared(admin.app, operation.path, "shop")
    assert (await admin.call(operation.method, path, body)).status < 300
    [entry] = await entries(admin, operation.name)
    assert (entry["actor"], entry["address"]) == ("key:test", "127.0.0.1")
    assert (await admin.app.audit.verify()).broken is None


@on_sqlite
async def test_what_a_person_does_in_a_session_has_an_entry(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada")
    await person.call("PUT", "/v1/session/password", {"current": PASSWORD, "new": "staple the other horse"})
    assert (await person.log_in("staple the other horse")).status == 201
    await person.call("DELETE", "/v1/session")
    await person.log_in("staple the other horse")
    await person.call("DELETE", "/v1/sessions")
    told = [entry async for entry in nobody.app.audit.every()]
    assert [entry.action for entry in told] == [
        "session.start",
        "session.change_password",
        "session.start",
        "session.end",
        "session.start",
        "session.end_all",
    ]
    assert {entry.actor for entry in told} == {"user:ada"}
    assert "horse" not in repr(told)


@pytest.mark.parametrize(
    "operation",
    [each for each in CHANGES if each.name in WALK.keys() - AFTERWARDS],
    ids=lambda each: each.name,
)
@on_sqlite
async def test_a_change_that_the_log_cannot_tell_of_is_not_made(admin: Visitor, operation: Any) -> None:
    path, body = await WALK[operation.name].prepared(admin.app, operation.path, "shop")
    with plain_engine(admin.app.config.database_url).begin() as connection:
        connection.execute(text("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END"))
    before = await everything(admin.app)
    assert (await admin.call(operation.method, path, body)).status == 500
    assert await everything(admin.app) == before


async def test_an_entry_has_what_was_before_and_what_is_after(admin: Visitor) -> None:
    task = {"kind": "noop", "description": "first", "priority": 3}
    await admin.call("PUT", "/v1/tasks/shop/prices", task)
    assert await changed(admin, "tasks.put") == ("task shop/prices", None, task)
    await admin.call("PUT", "/v1/tasks/shop/prices", task | {"description": "second"})
    assert await changed(admin, "tasks.put") == (
        "task shop/prices",
        {"description": "first"},
        {"description": "second"},
    )
    await admin.post("/v1/tasks/shop/prices/pause")
    assert await changed(admin, "tasks.pause") == ("task shop/prices", {}, {"paused": True})
    await admin.call("DELETE", "/v1/tasks/shop/prices")
    assert await changed(admin, "tasks.delete") == (
        "task shop/prices",
        task | {"description": "second", "paused": True},
        None,
    )
    await admin.call("PUT", "/v1/datasets/shop/prices", {"key_fields": ["url"]})
    await admin.call("PUT", "/v1/datasets/shop/prices", {"key_fields": ["id"]})
    target, before, after = await changed(admin, "datasets.put")
    assert (target, before["key_fields"], after["key_fields"]) == ("dataset prices", ["url"], ["id"])
    await admin.call("PUT", "/v1/projects/shop", {"weight": 2, "tags": {"heavy": 1}})
    assert await changed(admin, "projects.put") == ("project shop", {"weight": 1.0}, {"weight": 2.0, "tags.heavy": 1})


async def test_what_a_user_may_do_is_told_before_and_after(admin: Visitor) -> None:
    body = {"name": "ada", "password": PASSWORD, "grants": {"shop": "viewer"}}
    assert (await admin.post("/v1/users", body)).status == 201
    target, before, after = await changed(admin, "users.create")
    assert (target, before, after["grants"]) == ("user ada", None, {"shop": "viewer"})
    await admin.call("PATCH", "/v1/users/ada", {"active": False, "grants": {EVERYWHERE: "operator"}})
    _, before, after = await changed(admin, "users.change")
    assert (before["active"], before["grants"]) == (True, {"shop": "viewer"})
    assert (after["active"], after["grants"]) == (False, {EVERYWHERE: "operator"})
    assert PASSWORD not in repr([entry async for entry in admin.app.audit.every()])


@on_sqlite
async def test_keys_webhooks_and_secrets_are_told_without_what_is_secret(admin: Visitor) -> None:
    made = (await admin.post("/v1/keys", {"name": "ci", "role": "viewer", "project": "shop"})).json
    await admin.call("DELETE", f"/v1/keys/{made['key']['id']}")
    target, before, after = await changed(admin, "keys.revoke")
    assert (target, before["revoked_at"]) == (f"key {made['key']['id']}", None)
    assert after["revoked_at"] is not None
    hook = (await admin.post("/v1/webhooks", {"url": "https://shop.example/a", "project": "shop"})).json
    await admin.call("PATCH", f"/v1/webhooks/{hook['webhook']['id']}", {"url": "https://shop.example/b"})
    target, before, after = await changed(admin, "webhooks.change")
    assert (target, before["url"], after["url"]) == ("webhook 1", "https://shop.example/a", "https://shop.example/b")
    for value in ("first-hush", "second-hush"):
        await admin.call("PUT", "/v1/projects/shop/secrets/NAME", {"value": value})
    target, before, after = await changed(admin, "secrets.set")
    assert (target, before.keys(), after["updated_by"]) == ("secret NAME", {"updated_at", "updated_by"}, "test")
    everything_told = repr([entry async for entry in admin.app.audit.every()])
    for secret in (made["token"].split("_")[2], hook["secret"], "hush"):
        assert secret not in everything_told


@on_sqlite
async def test_an_apply_is_told_task_by_task_to_the_admins_of_each_project(nobody: Visitor, admin: Visitor) -> None:
    tasks = [{"name": "a", "project": "shop", "kind": "noop"}, {"name": "b", "project": "bank", "kind": "noop"}]
    assert (await admin.post("/v1/tasks/apply", {"tasks": tasks})).status == 200
    assert [entry["target"] for entry in await entries(admin, "tasks.apply")] == ["task bank/b", "task shop/a"]
    banker = await nobody.with_role(Role.ADMIN, "bank")
    assert [entry["target"] for entry in (await banker.get("/v1/audit")).json["items"]] == ["task bank/b"]
    many = [{"name": f"t{number}", "project": "shop", "kind": "noop"} for number in range(501)]
    assert (await admin.post("/v1/tasks/apply", {"tasks": many})).status == 200
    assert await changed(admin, "tasks.apply") == ("project shop", None, {"create": 501})


async def test_what_is_refused_is_told_with_its_code(nobody: Visitor) -> None:
    [run] = await nobody.app.runs.submit([new_run(project="bank")])
    viewer, foreigner = await nobody.with_role(Role.VIEWER, "bank"), await nobody.with_role(Role.ADMIN, "shop")
    assert (await viewer.post(f"/v1/runs/{run.run_id}/cancel")).status == 403
    assert (await foreigner.get(f"/v1/runs/{run.run_id}")).status == 404
    assert (await foreigner.get("/v1/users")).status == 403
    assert (await foreigner.call("DELETE", "/v1/session")).status == 403
    assert (await nobody.get("/v1/runs")).status == 401  # nobody knows who that was
    told = [entry async for entry in nobody.app.audit.every()]
    assert [(each.action, each.project, each.target, each.data) for each in told] == [
        ("runs.cancel", "bank", f"run {run.run_id}", '{"refused":true,"code":"not_allowed"}'),
        ("runs.show", "bank", f"run {run.run_id}", '{"refused":true,"code":"not_found"}'),
        ("users.list", "", "", '{"refused":true,"code":"not_allowed"}'),
        ("session.end", "", "", '{"refused":true,"code":"not_allowed"}'),
    ]


async def test_what_was_refused_is_listed_alone_or_left_out(nobody: Visitor, admin: Visitor) -> None:
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    assert (await viewer.call("PUT", "/v1/projects/shop/secrets/A", {"value": "long enough"})).status == 403
    await admin.call("PUT", "/v1/projects/shop/secrets/B", {"value": '{"refused":true'})
    await admin.post("/v1/tasks/apply", {"tasks": [{"name": "refused", "project": "shop", "kind": "noop"}]})
    told = {
        wish: [entry["action"] for entry in (await admin.get(f"/v1/audit{wish}")).json["items"]]
        for wish in ("", "?refused=true", "?refused=false")
    }
    assert told == {
        "": ["tasks.apply", "secrets.set", "secrets.set"],
        "?refused=true": ["secrets.set"],
        "?refused=false": ["tasks.apply", "secrets.set"],
    }
    [refused] = (await admin.get("/v1/audit?refused=true")).json["items"]
    assert refused["data"]["refused"] is True
    assert (await admin.get("/v1/audit?refused=perhaps")).status == 422


@on_sqlite
async def test_a_page_that_does_not_know_the_token_of_its_session_is_told(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    person.csrf = ""
    assert (await person.call("DELETE", "/v1/session")).status == 403
    assert (await entries(nobody, "session.end"))[0]["data"] == {"refused": True, "code": "not_allowed"}
