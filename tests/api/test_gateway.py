"""The way that every request takes: host, address, caller, body, answer."""

from __future__ import annotations

import asyncio

from tests.api.acting import Visitor, visiting
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import new_run
from weft.access.model import Role


async def test_health_needs_no_key(nobody: Visitor) -> None:
    assert (await nobody.get("/healthz")).json["status"] == "ok"
    answer = (await nobody.get("/readyz")).json
    assert answer == {"status": "ready", "checks": {"database": "ok", "broker": "ok", "blobs": "ok"}}
    assert await nobody.app.blobs.keys("readyz") == []


@on_sqlite
async def test_a_gateway_without_its_broker_is_ready_and_tells_why_it_is_slower(another_app: OpenApp) -> None:
    app = await another_app(broker="redis://:hunter22@127.0.0.1:1/0")
    async with visiting(app) as nobody:
        answer = await nobody.get("/readyz")
    assert (answer.status, answer.json["status"], answer.json["checks"]["database"]) == (200, "ready", "ok")
    assert "the redis broker does not answer" in answer.json["checks"]["broker"]
    assert "hunter22" not in answer.data.decode()


@on_sqlite
async def test_a_gateway_that_cannot_keep_logs_is_ready_and_tells_why(another_app: OpenApp) -> None:
    app = await another_app(blobs="file:/proc/blobs")  # where nobody can make a folder
    async with visiting(app) as nobody:
        answers = await asyncio.gather(*(nobody.get("/readyz") for _ in range(10)))
    assert {(each.status, each.json["status"], each.json["checks"]["blobs"]) for each in answers} == {
        (200, "ready", "No such file or directory")
    }


async def test_a_call_without_a_key_is_told_how_to_send_one(nobody: Visitor) -> None:
    answer = await nobody.get("/v1/runs")
    assert answer.status == 401
    assert answer.json["code"] == "unknown_caller"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_revoked_key_is_refused(admin: Visitor) -> None:
    [key] = await admin.app.keys.all()
    await admin.app.keys.revoke(key.id)
    assert (await admin.get("/v1/runs")).status == 401


async def test_another_host_is_not_served(admin: Visitor) -> None:
    answer = await admin.get("/v1/runs", headers={"Host": "evil.test"})
    assert (answer.status, answer.json["code"]) == (421, "wrong_host")


async def test_every_answer_has_a_request_id_and_the_security_headers(admin: Visitor) -> None:
    for path in ("/v1/runs", "/nowhere", "/healthz"):
        answer = await admin.get(path, headers={"X-Request-Id": "mine-1"})
        assert answer.headers["X-Request-Id"] == "mine-1"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "server" not in answer.headers


async def test_an_unknown_address_and_an_unknown_method_are_told_apart(admin: Visitor) -> None:
    assert (await admin.get("/v1/nothing")).json["code"] == "not_found"
    answer = await admin.call("DELETE", "/v1/runs")
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")


async def test_runs_come_in_pages(admin: Visitor) -> None:
    ids = [run.run_id for run in await admin.app.runs.submit([new_run()] * 5)]
    first = (await admin.get("/v1/runs?limit=3")).json
    second = (await admin.get(f"/v1/runs?limit=3&after={first['next']}")).json
    assert [run["id"] for run in first["items"] + second["items"]] == ids[::-1]
    assert second["next"] is None


async def test_a_viewer_of_another_project_sees_nothing_of_this_one(nobody: Visitor) -> None:
    [run] = await nobody.app.runs.submit([new_run(project="shop")])
    address = f"/v1/runs/{run.run_id}"
    stranger = await nobody.with_role(Role.ADMIN, "other")
    assert (await stranger.get("/v1/runs")).json["items"] == []
    assert (await stranger.get("/v1/runs?project=shop")).status == 403
    answer = await stranger.get(address)
    assert (answer.status, answer.json["detail"]) == (404, f"there is no run {run.run_id}")
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    assert (await viewer.get(address)).json["project"] == "shop"
    assert (await viewer.post(f"{address}/cancel")).status == 403
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    assert (await operator.post(f"{address}/cancel")).json["state"] == "cancelled"


async def test_a_wrong_parameter_is_named(admin: Visitor) -> None:
    answer = await admin.get("/v1/runs?limit=0")
    assert (answer.status, answer.json["field"]) == (422, "limit")
    assert (await admin.get("/v1/runs?colour=red")).json["field"] == "query parameter"
    assert (await admin.get("/v1/runs?after=!!")).json["field"] == "after"
