"""Who may make and delete saved views."""

from __future__ import annotations

from tests.api.acting import Visitor
from weft.access.model import EVERYWHERE, Role


async def test_operators_make_and_delete_their_own_and_admins_delete_all(nobody: Visitor) -> None:
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    _, token = await nobody.app.keys.create("other", {"news": Role.OPERATOR}, by="somebody else")
    other = {"headers": {"Authorization": f"Bearer {token}"}}
    body = {"name": "Failed", "query": "state=failed"}
    assert (await viewer.call("POST", "/v1/views", body)).status == 403
    made = await operator.call("POST", "/v1/views", body)
    assert (made.status, made.json["page"]) == (201, "runs")
    assert [each["name"] for each in (await viewer.get("/v1/views")).json["items"]] == ["Failed"]
    assert (await nobody.call("POST", "/v1/views", body, **other)).status == 409
    address = f"/v1/views/{made.json['id']}"
    assert (await nobody.call("DELETE", address, **other)).status == 403
    assert (await operator.call("DELETE", address)).status == 204
    again = await operator.call("POST", "/v1/views", body)
    admin = await nobody.with_role(Role.ADMIN, EVERYWHERE)
    assert (await admin.call("DELETE", f"/v1/views/{again.json['id']}")).status == 204
    assert (await admin.call("DELETE", f"/v1/views/{again.json['id']}")).status == 404
