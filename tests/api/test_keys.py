"""Keys over HTTP: made, seen and revoked by whom they belong to, and never worth more than their maker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.acting import Visitor
from tests.api.people import Person
from tests.cases import for_each
from tests.conftest import OpenApp, SetClock, on_sqlite
from weft.access.model import EVERYWHERE, Role
from weft.clock import iso
from weft.errors import Unknown


def key(**fields: Any) -> dict[str, Any]:
    return {"name": "k", "role": "viewer", "project": "shop"} | fields


def holder(door: Visitor, token: str) -> Visitor:
    return Visitor(door._session, door.app, door.address, token)


async def test_a_key_is_made_shown_once_used_and_revoked(admin: Visitor) -> None:
    made = await admin.post("/v1/keys", key(role="operator"))
    assert made.status == 201
    token, shown = made.json["token"], made.json["key"]
    assert shown["grants"] == {"shop": "operator"}
    assert shown["prefix"] == token.split("_")[1]
    visitor = holder(admin, token)
    assert (await visitor.get("/v1/runs?project=shop")).status == 200
    address = f"/v1/keys/{shown['id']}"
    assert token.split("_")[2] not in (await admin.get(address)).data.decode()
    assert (await admin.call("DELETE", address)).json["revoked_at"] is not None
    assert (await visitor.get("/v1/runs?project=shop")).status == 401
    assert (await admin.call("DELETE", address)).status == 200


async def test_a_revoked_key_is_refused_on_every_gateway(admin: Visitor, another_app: OpenApp) -> None:
    other = await another_app()
    made = (await admin.post("/v1/keys", key())).json
    await admin.call("DELETE", f"/v1/keys/{made['key']['id']}")
    with pytest.raises(Unknown):
        await other.keys.caller(made["token"])


async def test_several_grants_make_one_key(admin: Visitor) -> None:
    grants = {"shop": "operator", "news": "viewer"}
    made = await admin.post("/v1/keys", {"name": "both", "grants": grants})
    assert made.json["key"]["grants"] == grants
    visitor = holder(admin, made.json["token"])
    assert (await visitor.get("/v1/runs?project=news")).status == 200
    assert (await visitor.get("/v1/runs?project=other")).status == 403


async def test_an_expired_key_is_refused(admin: Visitor, clock: SetClock) -> None:
    made = (await admin.post("/v1/keys", key(expires_at=iso(clock() + 60_000_000)))).json
    visitor = holder(admin, made["token"])
    assert (await visitor.get("/v1/session")).status == 200
    clock.forward(61)
    assert (await visitor.get("/v1/session")).status == 401


@on_sqlite
@pytest.mark.parametrize(
    ("mine", "asked"),
    [
        ({"shop": Role.OPERATOR}, {"shop": "developer"}),
        ({"shop": Role.OPERATOR}, {"shop": "admin"}),
        ({"shop": Role.ADMIN}, {"*": "viewer"}),
        ({"shop": Role.ADMIN}, {"other": "viewer"}),
        ({"shop": Role.ADMIN}, {"shop": "viewer", "other": "viewer"}),
        ({EVERYWHERE: Role.DEVELOPER}, {"shop": "admin"}),
        ({}, {"shop": "viewer"}),
    ],
)
async def test_nobody_grants_more_than_they_have(nobody: Visitor, mine: dict[str, Role], asked: dict[str, str]) -> None:
    visitor, person = await nobody.granted(mine), await Person.new(nobody, "ada", mine)
    before = len(await nobody.app.keys.all())
    body = {"name": "more", "grants": asked}
    assert (await visitor.post("/v1/keys", body)).status == 403
    assert (await person.call("POST", "/v1/keys", body)).status == 403
    assert len(await nobody.app.keys.all()) == before


@on_sqlite
@pytest.mark.parametrize(
    ("mine", "asked"),
    [
        ({"shop": Role.OPERATOR}, {"shop": "operator"}),
        ({"shop": Role.OPERATOR}, {"shop": "viewer"}),
        ({EVERYWHERE: Role.DEVELOPER}, {"shop": "developer", "*": "viewer"}),
    ],
)
async def test_everybody_may_pass_on_what_they_have(
    nobody: Visitor, mine: dict[str, Role], asked: dict[str, str]
) -> None:
    person = await Person.new(nobody, "ada", mine)
    made = await person.call("POST", "/v1/keys", {"name": "mine", "grants": asked})
    assert (made.status, made.json["key"]["created_by"]) == (201, "ada")


async def test_a_key_made_with_a_key_does_not_outlive_it(nobody: Visitor, clock: SetClock) -> None:
    until = clock() + 3_600_000_000
    _, token = await nobody.app.keys.create("short", {"shop": Role.VIEWER}, by="ada", expires_at=until)
    visitor = holder(nobody, token)
    assert (await visitor.post("/v1/keys", key())).json["key"]["expires_at"] == iso(until)
    later = await visitor.post("/v1/keys", key(expires_at=iso(until + 1_000_000)))
    assert (later.status, later.json["field"]) == (422, "expires_at")


async def test_one_sees_and_revokes_ones_own_keys_and_those_of_projects_where_one_is_admin(nobody: Visitor) -> None:
    ada = await Person.new(nobody, "ada", {"shop": Role.OPERATOR})
    bob = await Person.new(nobody, "bob", {"shop": Role.ADMIN})
    root = await Person.new(nobody, "root", {EVERYWHERE: Role.ADMIN})
    adas = (await ada.call("POST", "/v1/keys", key(name="ada's"))).json["key"]["id"]
    bobs = (await bob.call("POST", "/v1/keys", key(name="bob's"))).json["key"]["id"]
    wide = (await root.call("POST", "/v1/keys", key(name="wide", project="*"))).json["key"]["id"]

    async def seen(person: Person) -> list[int]:
        return [each["id"] for each in (await person.get("/v1/keys")).json["items"]]

    assert (await seen(ada), await seen(bob), await seen(root)) == ([adas], [adas, bobs], [adas, bobs, wide])
    for other in (bobs, wide, 999):
        assert (await ada.get(f"/v1/keys/{other}")).status == 404
        answer = await ada.call("DELETE", f"/v1/keys/{other}")
        assert (answer.status, answer.json["detail"]) == (404, f"there is no key {other}")
    assert (await ada.call("DELETE", f"/v1/keys/{adas}")).status == 200
    assert (await root.call("DELETE", f"/v1/keys/{bobs}")).status == 200
    assert (await bob.call("DELETE", f"/v1/keys/{wide}")).status == 404


async def test_a_key_sees_itself_and_not_the_other_keys_of_its_maker(nobody: Visitor) -> None:
    ada = await Person.new(nobody, "ada", {"shop": Role.OPERATOR})
    first = (await ada.call("POST", "/v1/keys", key())).json
    await ada.call("POST", "/v1/keys", key())
    seen = (await holder(nobody, first["token"]).get("/v1/keys")).json["items"]
    assert [each["id"] for each in seen] == [first["key"]["id"]]


async def test_a_join_token_ends_with_the_user_behind_the_key_that_made_it(nobody: Visitor) -> None:
    root = await Person.new(nobody, "root", {"*": Role.ADMIN})
    made = (await root.call("POST", "/v1/keys", key(role="admin", project="*", name="ci"))).json
    token = (await holder(nobody, made["token"]).post("/v1/worker-tokens", {})).json["key"]
    assert token["created_by"] == "root"
    await Person.new(nobody, "other", {"*": Role.ADMIN})
    await nobody.app.users.deactivate("root")
    assert (await nobody.app.keys.get(token["id"])).revoked_at is not None


async def test_the_key_of_a_worker_belongs_to_no_user(nobody: Visitor) -> None:
    ada = await Person.new(nobody, "ada", {"shop": Role.OPERATOR})
    worker, _ = await nobody.app.keys.create("home-1", {}, by="ada", kind="worker")  # of a join token called ada
    assert (await ada.get(f"/v1/keys/{worker.id}")).status == 404
    assert (await ada.call("DELETE", f"/v1/keys/{worker.id}")).status == 404
    await nobody.app.users.deactivate("ada")
    assert (await nobody.app.keys.get(worker.id)).revoked_at is None


async def test_keys_come_in_pages(admin: Visitor) -> None:
    for number in range(4):
        await admin.post("/v1/keys", key(name=f"k{number}"))
    first = (await admin.get("/v1/keys?limit=3")).json
    second = (await admin.get(f"/v1/keys?limit=3&after={first['next']}")).json
    assert [each["name"] for each in first["items"] + second["items"]] == ["test", "k0", "k1", "k2", "k3"]


@on_sqlite
@for_each(
    "body",
    [
        {},
        {"name": "k"},
        {"name": "k", "role": "viewer"},
        {"name": "k", "project": "shop"},
        {"name": "k", "grants": {}},
        key(name=""),
        key(name="k" * 101),
        key(name="k\n"),
        key(role="owner"),
        key(role="VIEWER"),
        key(project=""),
        key(project="../shop"),
        key(grants={"shop": "viewer"}),
        key(expires_at="2000-01-01T00:00:00Z"),
        key(expires_at="2030-01-01T00:00:00"),
        key(expires_at="tomorrow"),
        key(expires_at=7),
        key(kind="worker"),
    ],
)
async def test_a_key_that_cannot_be_is_refused(admin: Visitor, body: object) -> None:
    assert (await admin.post("/v1/keys", body)).status == 422
    assert len(await admin.app.keys.all()) == 1


@on_sqlite
@for_each("key_id", ["0", "-1", "x", "1.0", "9" * 30, "%00"])
async def test_a_number_that_no_key_has_is_not_found(admin: Visitor, key_id: str) -> None:
    assert (await admin.get(f"/v1/keys/{key_id}")).status in (404, 422)
