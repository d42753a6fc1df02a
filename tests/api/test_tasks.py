"""Tasks over HTTP: keep, change, start."""

from __future__ import annotations

import asyncio

from tests.api.acting import Visitor
from tests.conftest import SetClock
from tests.tasks.scene import keep, noop
from weft.access.model import Role

ADDRESS = "/v1/tasks/shop/prices"
BODY = {"kind": "noop", "schedule": "30 2 * * *"}


async def test_a_task_is_made_shown_and_deleted(admin: Visitor) -> None:
    made = await admin.call("PUT", ADDRESS, BODY)
    assert (made.status, made.headers["ETag"]) == (200, '"1"')
    shown = await admin.get(ADDRESS)
    assert shown.headers["ETag"] == '"1"'
    assert shown.json["starts"] == "every day at 02:30 (UTC)"
    assert len(shown.json["next"]) == 10
    assert shown.json["next_fire_at"] == shown.json["next"][0]
    assert (await admin.call("DELETE", ADDRESS)).status == 204
    assert (await admin.get(ADDRESS)).status == 404


async def test_what_was_read_can_be_sent_back_with_a_change(admin: Visitor) -> None:
    await keep(
        admin.app,
        noop("first", project="shop"),
        noop("prices", "@every 5m", project="shop", params={"n": 1}, after=(), description="of all shops"),
    )
    before = (await admin.get(ADDRESS)).json
    same = await admin.call("PUT", ADDRESS, before)
    assert (same.status, same.json) == (200, before)
    changed = await admin.call("PUT", ADDRESS, before | {"priority": 5, "after": ["first"]})
    assert (changed.json["revision"], changed.json["priority"]) == (2, 5)
    assert changed.json["after"] == [{"task": "first", "on": "success"}]


async def test_a_task_that_was_changed_meanwhile_is_not_overwritten(admin: Visitor) -> None:
    seen = (await admin.call("PUT", ADDRESS, BODY)).headers["ETag"]
    assert (await admin.call("PUT", ADDRESS, BODY | {"priority": 1}, headers={"If-Match": seen})).status == 200
    for method, body in (("PUT", BODY), ("DELETE", None)):
        late = await admin.call(method, ADDRESS, body, headers={"If-Match": seen})
        assert (late.status, late.json["code"]) == (412, "changed_meanwhile")
    assert (await admin.get(ADDRESS)).json["priority"] == 1
    assert (await admin.call("PUT", ADDRESS, BODY, headers={"If-Match": '"1", "2"'})).status == 200
    assert (await admin.call("PUT", ADDRESS, BODY, headers={"If-Match": 'W/"3"'})).status == 412
    assert (await admin.call("DELETE", ADDRESS, headers={"If-Match": "*"})).status == 204
    assert (await admin.call("PUT", ADDRESS, BODY, headers={"If-Match": "*"})).status == 412


async def test_a_task_that_is_to_be_new_replaces_none(admin: Visitor) -> None:
    new = {"If-None-Match": "*"}
    assert (await admin.call("PUT", ADDRESS, BODY, headers=new)).status == 200
    assert (await admin.call("PUT", ADDRESS, BODY | {"priority": 3}, headers=new)).status == 412
    assert (await admin.get(ADDRESS)).json["priority"] == 0


WRONG: list[object] = [
    {"kind": "shell", "spec": {"nothing": 1}},
    {"kind": "noop", "schedule": "61 * * * *"},
    {"kind": "noop", "schedule": {"cron": "* * * * *", "every_seconds": 5}},
    {"kind": "noop", "project": "bank"},
    {"kind": "noop", "name": "other"},
    {"kind": "noop", "after": ["no-such-task"]},
    {"kind": "noop", "after": ["prices"]},
    {"kind": "noop", "colour": "red"},
    {"kind": "noop", "priority": 10**30},
    {},
    [],
]


async def test_a_task_that_is_wrong_is_refused_with_the_reason(admin: Visitor) -> None:
    for wrong in WRONG:
        answer = await admin.call("PUT", ADDRESS, wrong)
        assert (answer.status, answer.json["code"]) == (422, "invalid"), wrong
    assert (await admin.get(ADDRESS)).status == 404


async def test_of_two_who_saw_the_same_revision_one_changes_the_task(admin: Visitor) -> None:
    seen = (await admin.call("PUT", ADDRESS, BODY)).headers["ETag"]
    answers = await asyncio.gather(
        *(admin.call("PUT", ADDRESS, BODY | {"priority": n}, headers={"If-Match": seen}) for n in range(1, 6))
    )
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412, 412]
    assert (await admin.get(ADDRESS)).headers["ETag"] == '"2"'


async def test_tasks_come_in_pages_of_the_projects_of_the_caller(nobody: Visitor) -> None:
    await keep(nobody.app, *(noop(name, project=project) for project in ("a", "b", "c") for name in ("x", "y", "z")))
    viewer = await nobody.granted({"a": Role.VIEWER, "c": Role.OPERATOR})
    found, after = [], ""
    while True:
        page = (await viewer.get(f"/v1/tasks?limit=2{after}")).json
        found += [f"{task['project']}/{task['name']}" for task in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == ["a/x", "a/y", "a/z", "c/x", "c/y", "c/z"]
    assert (await viewer.get("/v1/tasks?project=b")).status == 403
    for wrong in ("after=NQ", "after=WyJhIl0", "after=%00", "after=!!"):
        assert (await viewer.get(f"/v1/tasks?{wrong}")).status == 422, wrong


async def test_an_operator_pauses_starts_and_back_fills_but_changes_no_task(nobody: Visitor, clock: SetClock) -> None:
    await keep(nobody.app, noop("prices", "0 * * * *", project="shop"))
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    paused = await operator.post(f"{ADDRESS}/pause")
    assert (paused.json["paused"], paused.json["next"]) == (True, [])
    assert (await operator.post(f"{ADDRESS}/resume")).json["paused"] is False
    started = await operator.post(f"{ADDRESS}/start", {"priority": 3}, headers={"Idempotency-Key": "k"})
    assert (started.status, started.headers["Location"]) == (202, f"/v1/runs/{started.json['run_id']}")
    window = {"from": "2026-05-01T00:00:00Z", "to": "2026-05-01T03:00:00Z"}
    filled = await operator.post(f"{ADDRESS}/backfill", window)
    assert (filled.status, len(filled.json["run_ids"])) == (202, 3)
    assert (await operator.post(f"{ADDRESS}/backfill", window)).json == {"run_ids": []}
    first = (await operator.get(f"{ADDRESS}/ticks?limit=2")).json
    rest = (await operator.get(f"{ADDRESS}/ticks?after={first['next']}")).json
    ticks = [tick["fire_at"] for tick in first["items"] + rest["items"]]
    assert ticks == [f"2026-05-01T0{hour}:00:00.000Z" for hour in (2, 1, 0)]
    assert (await operator.call("PUT", ADDRESS, BODY)).status == 403
    assert (await operator.call("DELETE", ADDRESS)).status == 403


async def test_a_file_is_applied_whole_or_not_at_all(admin: Visitor) -> None:
    tasks = [{"name": name, "project": "shop", "kind": "noop"} for name in ("first", "second")]
    body = {"tasks": tasks, "projects": {"shop": {"max_queued": 9}}}
    rehearsed = (await admin.post("/v1/tasks/apply?dry_run=true", body)).json
    assert (rehearsed["applied"], len(rehearsed["changes"])) == (False, 3)
    assert (await admin.get("/v1/tasks")).json["items"] == []
    assert (await admin.post("/v1/tasks/apply", {"tasks": [*tasks, {"kind": "noop", "name": "§"}]})).status == 422
    assert (await admin.get("/v1/tasks")).json["items"] == []
    assert (await admin.post("/v1/tasks/apply", body)).json["applied"] is True
    pruned = (await admin.post("/v1/tasks/apply?prune=true", {"tasks": tasks[:1]})).json
    assert [(each["what"], each["task"]) for each in pruned["changes"]] == [("delete", "second")]


async def test_a_file_is_refused_where_one_of_its_projects_is_foreign(nobody: Visitor) -> None:
    await keep(nobody.app, noop("nightly", project="bank"))
    developer = await nobody.with_role(Role.DEVELOPER, "shop")
    mine = {"name": "prices", "project": "shop", "kind": "noop"}
    for tasks in ([mine, {"name": "x", "project": "bank", "kind": "noop"}], [mine | {"after": ["bank/nightly"]}]):
        assert (await developer.post("/v1/tasks/apply", {"tasks": tasks})).status in (403, 404)
    settings = {"tasks": [mine], "projects": {"shop": {"weight": 5}}}
    for query in ("", "?dry_run=true"):
        assert (await developer.post(f"/v1/tasks/apply{query}", settings)).status == 403
    assert (await developer.get("/v1/tasks")).json["items"] == []
    unchanged = {"tasks": [mine], "projects": {"shop": {}}}
    assert (await developer.post("/v1/tasks/apply", unchanged)).status == 200
