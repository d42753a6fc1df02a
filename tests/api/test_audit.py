"""What is changed over HTTP is told by the audit log; what is only looked at is not."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.runs.acting import new_run
from weft.access.model import Role


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
async def test_a_change_that_was_refused_is_not_told(admin: Visitor) -> None:
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
