"""Users over HTTP: only for admins of weft as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor
from tests.api.people import Person, basic
from tests.cases import for_each
from tests.conftest import on_sqlite
from weft.access.model import EVERYWHERE, Role

CALLS = [
    ("GET", "/v1/users", None),
    ("POST", "/v1/users", {"name": "eve", "password": PASSWORD}),
    ("GET", "/v1/users/ada", None),
    ("PATCH", "/v1/users/ada", {"grants": {"*": "admin"}}),
    ("PUT", "/v1/users/ada/password", {"password": "another password"}),
]


async def test_an_admin_makes_shows_and_lists_users(admin: Visitor) -> None:
    made = await admin.post("/v1/users", {"name": "Ada", "password": PASSWORD, "grants": {"shop": "operator"}})
    assert (made.status, made.json["password"]) == (201, None)
    shown = (await admin.get("/v1/users/ada")).json
    assert shown == made.json["user"]
    assert (shown["name"], shown["active"], shown["grants"]) == ("ada", True, {"shop": "operator"})
    assert (await admin.get("/v1/users")).json == {"items": [shown], "next": None}
    assert (await admin.get("/v1/session", headers=basic("ada", PASSWORD))).json["grants"] == {"shop": "operator"}


async def test_a_password_that_was_not_given_is_made_up_and_told_once(admin: Visitor) -> None:
    password = (await admin.post("/v1/users", {"name": "ada"})).json["password"]
    assert (await admin.get("/v1/session", headers=basic("ada", password))).status == 200
    assert password not in (await admin.get("/v1/users/ada")).data.decode()


async def test_users_come_in_pages(admin: Visitor) -> None:
    for name in ("c", "a", "b"):
        await admin.post("/v1/users", {"name": name, "password": PASSWORD})
    first = (await admin.get("/v1/users?limit=2")).json
    second = (await admin.get(f"/v1/users?limit=2&after={first['next']}")).json
    assert [user["name"] for user in first["items"] + second["items"]] == ["c", "a", "b"]
    assert second["next"] is None


@on_sqlite
@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_nobody_but_an_admin_of_all_may_call_it(nobody: Visitor, method: str, path: str, body: object) -> None:
    await Person.new(nobody, "ada", {"shop": Role.VIEWER})
    for grants in ({EVERYWHERE: Role.DEVELOPER}, {"shop": Role.ADMIN}, {}):
        visitor = await nobody.granted(grants)
        assert (await visitor.call(method, path, body)).status == 403
    assert (await nobody.call(method, path, body)).status == 401
    assert [user.grants for user in await nobody.app.users.all()] == [{"shop": Role.VIEWER}]


async def test_a_name_that_is_taken_is_a_conflict(admin: Visitor) -> None:
    body = {"name": "ada", "password": PASSWORD}
    assert (await admin.post("/v1/users", body)).status == 201
    assert (await admin.post("/v1/users", body | {"name": "ADA"})).json["code"] == "conflict"


async def test_who_is_shut_out_is_out_at_once(admin: Visitor) -> None:
    person = await Person.new(admin, "ada", {EVERYWHERE: Role.VIEWER})
    token = (await person.call("POST", "/v1/keys", {"name": "k", "role": "viewer", "project": "*"})).json["token"]
    key = Visitor(admin._session, admin.app, admin.address, token)
    made = (await key.post("/v1/keys", {"name": "k2", "role": "viewer", "project": "*"})).json["token"]
    assert (await admin.call("PATCH", "/v1/users/ada", {"active": False})).json["active"] is False
    assert (await person.get("/v1/session")).status == 401
    assert (await person.log_in()).status == 401
    keys = {each.name: each for each in await admin.app.keys.all()}
    assert keys["k"].revoked_at is not None
    assert keys["k2"].revoked_at is not None, "made with a key of the user"
    assert made.startswith("weft_")


async def test_other_grants_and_another_password_end_the_sessions(admin: Visitor) -> None:
    person = await Person.new(admin)
    answer = await admin.call("PATCH", "/v1/users/ada", {"grants": {"shop": "viewer"}})
    assert answer.json["grants"] == {"shop": "viewer"}
    assert (await person.get("/v1/session")).status == 401
    await person.log_in()
    assert (await admin.call("PUT", "/v1/users/ada/password", {"password": "another password"})).status == 204
    assert (await person.get("/v1/session")).status == 401
    assert (await person.log_in("another password")).status == 201


async def test_the_last_admin_stays_one(admin: Visitor) -> None:
    await Person.new(admin, "ada", {EVERYWHERE: Role.ADMIN})
    changes: list[dict[str, Any]] = [{"active": False}, {"grants": {}}]
    for change in changes:
        assert (await admin.call("PATCH", "/v1/users/ada", change)).status == 409


@on_sqlite
@for_each(
    "body",
    [
        {"name": "-"},
        {"name": "a b"},
        {"name": "a", "password": "short"},
        {"name": "a", "password": "p" * 1001},
        {"name": "a", "grants": {"shop": "owner"}},
        {"name": "a", "grants": {"a b": "viewer"}},
        {"name": "a", "grants": ["shop"]},
        {"name": "a", "active": True},
        {"name": "a", "grants": {f"p{number}": "viewer" for number in range(201)}},
    ],
)
async def test_a_user_that_cannot_be_is_refused(admin: Visitor, body: object) -> None:
    assert (await admin.post("/v1/users", body)).status == 422
    assert await admin.app.users.all() == []


@on_sqlite
async def test_a_change_of_nothing_and_of_nobody_is_refused(admin: Visitor) -> None:
    await Person.new(admin)
    assert (await admin.call("PATCH", "/v1/users/ada", {})).status == 422
    for name in ("bob", "a%20b", "%C3%A9"):
        assert (await admin.call("PATCH", f"/v1/users/{name}", {"active": True})).status == 404
        assert (await admin.get(f"/v1/users/{name}")).status == 404
        assert (await admin.call("PUT", f"/v1/users/{name}/password", {"password": PASSWORD})).status == 404
