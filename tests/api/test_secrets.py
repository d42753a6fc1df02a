"""Secrets over HTTP: they go in, and nothing gives them back."""

from __future__ import annotations

import pytest

from tests.access.test_secrets import CANARY, dump
from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from weft.access.model import Role

ADDRESS = "/v1/projects/shop/secrets"


async def test_a_secret_is_set_listed_and_deleted_but_never_shown(admin: Visitor) -> None:
    made = await admin.call("PUT", f"{ADDRESS}/TOKEN", {"value": CANARY})
    listed, shown = await admin.get(ADDRESS), await admin.get(f"{ADDRESS}/TOKEN")
    assert (made.status, listed.json["items"], shown.json) == (200, [made.json], made.json)
    assert (made.json["name"], made.json["updated_by"]) == ("TOKEN", "test")
    for answer in (made, listed, shown, await admin.get("/v1/audit")):
        assert CANARY.encode() not in answer.data
    assert CANARY not in dump(admin.app)
    assert (await admin.call("DELETE", f"{ADDRESS}/TOKEN")).status == 204
    assert (await admin.get(f"{ADDRESS}/TOKEN")).status == 404
    assert (await admin.call("DELETE", f"{ADDRESS}/TOKEN")).status == 404


@on_sqlite
async def test_only_an_admin_of_the_project_keeps_its_secrets(nobody: Visitor) -> None:
    await nobody.app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    developer = await nobody.with_role(Role.DEVELOPER, "shop")
    stranger = await nobody.with_role(Role.ADMIN, "bank")
    for visitor, status in ((developer, 403), (stranger, 404), (nobody, 401)):
        assert (await visitor.get(f"{ADDRESS}/TOKEN")).status == status
        assert (await visitor.call("PUT", f"{ADDRESS}/TOKEN", {"value": "another"})).status == status
        assert (await visitor.call("DELETE", f"{ADDRESS}/TOKEN")).status == status
    assert (await stranger.get(ADDRESS)).status == 403
    owner = await nobody.with_role(Role.ADMIN, "shop")
    assert [each["name"] for each in (await owner.get(ADDRESS)).json["items"]] == ["TOKEN"]


@on_sqlite
@pytest.mark.parametrize("body", [{"value": "abc"}, {"value": 7}, {}, {"value": "a good one", "more": 1}])
async def test_a_wrong_value_is_refused(admin: Visitor, body: dict[str, object]) -> None:
    assert (await admin.call("PUT", f"{ADDRESS}/TOKEN", body)).status == 422
    assert (await admin.get(ADDRESS)).json["items"] == []


@on_sqlite
async def test_the_text_of_an_error_does_not_repeat_a_password(admin: Visitor) -> None:
    for path in ("/v1/runs/amqp:%2F%2Fu:hunter22@h", "/v1/projects/shop/secrets/password=hunter22"):
        answer = await admin.get(path)
        assert (answer.status, b"hunter22" in answer.data) == (404, False)
