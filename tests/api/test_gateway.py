"""The way that every request takes: host, address, caller, body, answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.api.acting import Answer, Visitor, visiting
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import new_run
from tests.waiting import eventually
from tests.workers.test_full_disk import fill, mounted
from weft.access.model import Role
from weft.config import load
from weft.db import sqlite


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


@on_sqlite
@pytest.mark.parametrize("least_free", [sqlite.LEAST_FREE_BYTES, 0], ids=["room is counted", "a write is tried"])
async def test_a_gateway_is_not_ready_while_its_disk_is_full(
    another_app: OpenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_free: int
) -> None:
    monkeypatch.setattr(sqlite, "LEAST_FREE_BYTES", least_free)
    folder = tmp_path / "small"
    folder.mkdir()
    with mounted(folder):
        app = await another_app(data_dir=str(folder), database="")
        async with visiting(app) as nobody:
            admin = await nobody.with_role(Role.ADMIN)
            submit = partial(admin.post, "/v1/runs", {"project": "shop", "kind": "noop"})
            assert ((await submit()).status, (await nobody.get("/readyz")).status) == (202, 200)
            ballast = fill(folder)
            assert (await eventually(partial(answered, submit, 503))).json["code"] == "database_down"
            answer = await eventually(partial(answered, partial(nobody.get, "/readyz"), 503))
            assert (answer.json["status"], "full" in answer.json["checks"]["database"]) == ("not ready", True)
            assert (await nobody.get("/healthz")).status == 200
            ballast.unlink()
            assert ((await submit()).status, (await nobody.get("/readyz")).status) == (202, 200)
        await app.close()


async def answered(ask: Callable[[], Awaitable[Answer]], status: int) -> Answer | None:
    answer = await ask()
    return answer if answer.status == status else None


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


@on_sqlite
@pytest.mark.parametrize("host", ["scrapyd1", "10.1.2.3"])
async def test_the_refusal_of_a_host_says_how_to_allow_it(another_app: OpenApp, tmp_path: Path, host: str) -> None:
    async with visiting(await another_app()) as visitor:
        answer = await visitor.get("/healthz", headers={"Host": f"{host}:6800"})
        assert answer.status == 421
        told = answer.json["detail"]
    [in_environment] = re.findall(r"WEFT_ALLOWED_HOSTS=(\S+)", told)
    [in_file] = re.findall(r'allowed_hosts = "\S+"', told)
    file = tmp_path / "weft.toml"
    file.write_text(f"{in_file}\n")
    assert load(file=file, environment={}).config.allowed_hosts == host
    assert load(environment={"WEFT_ALLOWED_HOSTS": in_environment}, search=False).config.allowed_hosts == host
    async with visiting(await another_app(allowed_hosts=in_environment)) as visitor:
        assert (await visitor.get("/healthz", headers={"Host": f"{host}:6800"})).status == 200


async def test_a_host_that_is_no_name_is_not_told_back_as_a_setting(admin: Visitor) -> None:
    told = (await admin.get("/healthz", headers={"Host": 'a" b'})).json["detail"]
    assert "WEFT_ALLOWED_HOSTS=NAME in" in told


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
