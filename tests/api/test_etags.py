"""What was read is changed only while it is still so: settings of projects, webhooks and users."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor

Body = dict[str, Any]

PROJECT = ("PUT", "/v1/projects/shop", {"max_running": 3}, {"max_running": 4})
WEBHOOK = ("PATCH", "/v1/webhooks/{id}", {"active": False}, {"kinds": ["run_queued"]})
USER = ("PATCH", "/v1/users/ada", {"grants": {"shop": "viewer"}}, {"grants": {"shop": "admin"}})


async def address(admin: Visitor, path: str) -> str:
    """The address of a thing that was made for it."""
    if "users" in path:
        await admin.post("/v1/users", {"name": "ada", "password": PASSWORD, "grants": {"b": "viewer", "a": "admin"}})
    if "webhooks" in path:
        made = await admin.post("/v1/webhooks", {"url": "http://127.0.0.1:9/told", "project": "shop"})
        path = path.format(id=made.json["webhook"]["id"])
    return path


@pytest.mark.parametrize(("method", "path", "first", "second"), [PROJECT, WEBHOOK, USER])
async def test_what_was_changed_meanwhile_is_not_overwritten(
    admin: Visitor, method: str, path: str, first: Body, second: Body
) -> None:
    place = await address(admin, path)
    seen = (await admin.get(place)).headers["ETag"]
    assert (await admin.get(place)).headers["ETag"] == seen
    changed = await admin.call(method, place, first, headers={"If-Match": seen})
    assert (changed.status, changed.headers["ETag"] == seen) == (200, False)
    for stale in (seen, f"W/{changed.headers['ETag']}", changed.headers["ETag"].strip('"'), '"1"', ""):
        late = await admin.call(method, place, second, headers={"If-Match": stale})
        assert (late.status, late.json["code"]) == (412, "changed_meanwhile"), stale
        assert "so it was changed meanwhile; read it again and repeat your change" in late.json["detail"]
    shown = await admin.get(place)
    assert (shown.json, shown.headers["ETag"]) == (changed.json, changed.headers["ETag"])
    either = f"{seen}, {changed.headers['ETag']}"
    assert (await admin.call(method, place, second, headers={"If-Match": either})).status == 200
    assert (await admin.call(method, place, first, headers={"If-Match": "*"})).status == 200


@pytest.mark.parametrize(("method", "path", "first", "second"), [PROJECT, WEBHOOK, USER])
async def test_of_many_who_have_seen_the_same_one_changes_it(
    admin: Visitor, method: str, path: str, first: Body, second: Body
) -> None:
    place = await address(admin, path)
    seen = {"If-Match": (await admin.get(place)).headers["ETag"]}
    answers = await asyncio.gather(*(admin.call(method, place, body, headers=seen) for body in [first, second] * 3))
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412, 412, 412]
    [won] = [answer for answer in answers if answer.status == 200]
    assert (await admin.get(place)).json == won.json


async def test_a_webhook_that_was_changed_meanwhile_is_not_deleted(admin: Visitor) -> None:
    place = await address(admin, "/v1/webhooks/{id}")
    seen = {"If-Match": (await admin.get(place)).headers["ETag"]}
    await admin.call("PATCH", place, {"active": False})
    assert (await admin.call("DELETE", place, headers=seen)).status == 412
    assert (await admin.call("DELETE", place, headers={"If-Match": "*"})).status == 204
    assert (await admin.call("PATCH", place, {"active": True}, headers={"If-Match": "*"})).status == 404


async def test_two_records_that_say_the_same_have_etags_of_their_own(admin: Visitor) -> None:
    tags = {(await admin.get(f"/v1/projects/{name}")).headers["ETag"] for name in ("a", "b")}
    assert len(tags) == 2


async def test_the_document_tells_which_answers_have_an_etag(admin: Visitor) -> None:
    paths = (await admin.get("/openapi.json")).json["paths"]
    for path in ("/v1/projects/{project}", "/v1/webhooks/{webhook_id}", "/v1/users/{name}"):
        change = paths[path]["put" if "put" in paths[path] else "patch"]
        assert "If-Match" in [each["name"] for each in change["parameters"]]
        assert all("ETag" in each["responses"]["200"]["headers"] for each in (change, paths[path]["get"]))
