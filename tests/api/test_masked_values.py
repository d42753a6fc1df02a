"""What looks secret in arguments, settings and parameters: masked for those who look, real for what runs."""

from __future__ import annotations

import re
from typing import Any

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from weft.access.model import Role
from weft.http.routes import operations
from weft.redaction import MASK

CANARY = "k4nary-of-the-test"
SPEC = {
    "argv": ["curl", f"https://user:{CANARY}@shop.test/?token={CANARY}"],
    "env": {"SHOP_PASSWORD": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY, "COUNTRY": "fr"},
}
OF_SPIDER = {
    "spider": "prices",
    "args": {"shop_password": CANARY, "country": "fr"},
    "settings": {"AWS_SECRET_ACCESS_KEY": CANARY, "MAX_PAGES": "3"},
}
TASK: dict[str, Any] = {
    "kind": "shell",
    "spec": {"argv": ["true"], "env": {"TOKEN": "{{token}}"}},
    "params": {"token": CANARY, "page": 1},
}


async def someone(nobody: Visitor, role: Role) -> Visitor:
    return await nobody.with_role(role, "shop")


async def started(developer: Visitor, **more: Any) -> dict[str, Any]:
    answer = await developer.post("/v1/runs", {"project": "shop", "kind": "shell", "spec": SPEC} | more)
    assert answer.status == 202, answer.data
    found: dict[str, Any] = answer.json
    return found


async def leased(nobody: Visitor) -> list[Any]:
    """What workers are given, oldest first."""
    leases = await (await Hand.join(nobody.app)).lease()
    return [lease.spec for lease in sorted(leases, key=lambda lease: lease.run_id)]


@on_sqlite
async def test_nothing_that_a_viewer_can_read_has_a_password_that_was_given(nobody: Visitor) -> None:
    developer, viewer = await someone(nobody, Role.DEVELOPER), await someone(nobody, Role.VIEWER)
    assert (await developer.call("PUT", "/v1/tasks/shop/nightly", TASK)).status == 200
    run_id = (await started(developer))["run_id"]
    await developer.post("/v1/tasks/shop/nightly/start", {"params": {"page": 2}})
    of_spider = await submit(nobody.app, spec=OF_SPIDER)
    values = {"run_id": str(run_id), "project": "shop", "name": "nightly", "spider": "prices", "task_id": "1"}
    read = 0
    for operation in operations():
        if operation.method != "GET" or operation.needs is None:
            continue
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: values.get(found[1], "1"), operation.path)
        query = "?spider=prices" if path.endswith("/history") else ""
        answer = await viewer.get(f"{path}{query}")
        read += answer.status == 200
        assert CANARY.encode() not in answer.data, path
    assert read > 20
    shown = (await viewer.get(f"/v1/runs/{of_spider}")).json["spec"]["spec"]
    assert shown["args"] == {"shop_password": MASK, "country": "fr"}
    assert shown["settings"] == {"AWS_SECRET_ACCESS_KEY": MASK, "MAX_PAGES": "3"}
    given = [spec.spec.get("env") or spec.spec["args"] for spec in await leased(nobody)]
    assert given == [SPEC["env"], {"TOKEN": CANARY}, OF_SPIDER["args"]]


@on_sqlite
async def test_whoever_gives_a_password_is_told_how_to_keep_it_encrypted(nobody: Visitor) -> None:
    developer = await someone(nobody, Role.DEVELOPER)
    told = [await started(developer, spec={"argv": ["true"], "env": {"shop_password": CANARY}})]
    told.append((await developer.call("PUT", "/v1/tasks/shop/nightly", TASK)).json)
    told.append((await developer.post("/v1/tasks/apply", {"tasks": [TASK | {"name": "n", "project": "shop"}]})).json)
    told.append((await developer.post("/v1/tasks/shop/nightly/start", {"params": {"token": CANARY}})).json)
    for each in told:
        assert "masked" in each["warning"]
        assert "{{secret:" in each["warning"]
        assert CANARY not in each["warning"]
    by_name = {"argv": ["true"], "env": {"password": "{{secret:SHOP}}", "country": "fr"}}
    assert (await started(developer, spec=by_name))["warning"] == ""
    specs = (
        by_name,
        {"argv": ["true"], "env": {"shop_password": CANARY}},
        by_name,
        {"argv": ["x"], "env": {"TOKEN": "k"}},
    )
    batch = {"runs": [{"project": "shop", "kind": "shell", "spec": each} for each in specs]}
    answer = await developer.post("/v1/runs/batch", batch)
    warnings = [each["warning"] for each in answer.json["items"]]
    assert [warning.partition(" looks secret")[0] for warning in warnings] == [
        "",
        "the value of shop_password",
        "",
        "the value of TOKEN",
    ]
    assert CANARY.encode() not in answer.data


@on_sqlite
async def test_a_repetition_has_the_real_values_and_never_the_mask(nobody: Visitor) -> None:
    developer = await someone(nobody, Role.DEVELOPER)
    run_id = (await started(developer))["run_id"]
    await nobody.app.runs.cancel(run_id)
    await developer.post(f"/v1/runs/{run_id}/again")
    shown = (await developer.get(f"/v1/runs/{run_id}")).json["spec"]["spec"]
    changed = shown | {"env": shown["env"] | {"COUNTRY": "de"}}
    await started(developer, spec=changed, masked_from=run_id)
    refused = await developer.post("/v1/runs", {"project": "shop", "kind": "shell", "spec": changed})
    assert refused.status == 422
    assert "in place of a secret" in refused.json["detail"]
    german = SPEC | {"env": {**SPEC["env"], "COUNTRY": "de"}}  # type: ignore[dict-item]
    assert [spec.spec for spec in await leased(nobody)] == [SPEC, german]


@on_sqlite
async def test_nobody_is_given_the_values_of_a_run_of_another_project_or_task(nobody: Visitor) -> None:
    developer, other = await someone(nobody, Role.DEVELOPER), await nobody.with_role(Role.DEVELOPER, "bank")
    run_id = (await started(developer))["run_id"]
    body = {"project": "bank", "kind": "shell", "spec": {"argv": ["true"], "env": {"SHOP_PASSWORD": MASK}}}
    assert (await other.post("/v1/runs", body | {"masked_from": run_id})).status == 404
    for name in ("nightly", "weekly"):
        await developer.call("PUT", f"/v1/tasks/shop/{name}", TASK)
    mine = (await developer.post("/v1/tasks/shop/nightly/start", {"params": {"token": "another-token"}})).json["run_id"]
    operator = await someone(nobody, Role.OPERATOR)
    like = {"params": {"token": MASK}, "masked_from": mine}
    assert (await operator.post("/v1/tasks/shop/weekly/start", like)).status == 422
    assert (await operator.post("/v1/tasks/shop/nightly/start", like)).status == 202
    assert [spec.params["token"] for spec in await leased(nobody) if spec.params] == ["another-token"] * 2


@on_sqlite
async def test_a_task_that_is_sent_back_as_it_was_shown_keeps_its_values(nobody: Visitor) -> None:
    developer, viewer = await someone(nobody, Role.DEVELOPER), await someone(nobody, Role.VIEWER)
    operator = await someone(nobody, Role.OPERATOR)
    await developer.call("PUT", "/v1/tasks/shop/nightly", TASK)
    shown = (await viewer.get("/v1/tasks/shop/nightly")).json
    assert shown["params"] == {"token": MASK, "page": 1}
    assert (await developer.get("/v1/tasks/shop/nightly")).json["params"]["token"] == CANARY
    changed = shown | {"params": {"token": MASK, "page": 2}}
    kept = (await developer.call("PUT", "/v1/tasks/shop/nightly", changed)).json["params"]
    assert kept == {"token": CANARY, "page": 2}
    exported = (await viewer.get("/v1/tasks/export?project=shop")).json
    assert (await developer.post("/v1/tasks/apply", exported)).json["changes"] == []
    assert (await developer.call("PUT", "/v1/tasks/shop/new", changed | {"name": "new"})).status == 422
    assert (await operator.post("/v1/tasks/shop/nightly/start", {"params": shown["params"]})).status == 202
    assert [spec.params["token"] for spec in await leased(nobody)] == [CANARY]
