"""Runs over HTTP: start, look, cancel and repeat, one or many."""

from __future__ import annotations

import json

from tests.api.acting import Visitor
from tests.conftest import SetClock
from tests.runs.acting import Hand, new_run, submit_many
from tests.tasks.scene import keep, noop
from tests.waiting import eventually
from weft.access.model import Role
from weft.cli.output import as_json
from weft.operations.runs import run_document
from weft.operations.tasks import task_document
from weft.runs.model import Retry

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_start_answers_where_the_run_is(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", project="shop", params={"country": "de"}))
    body = {"project": "shop", "task": "prices", "params": {"country": "fr"}, "priority": 7, "correlation_id": "c-1"}
    answer = await admin.post("/v1/runs", body, headers={"traceparent": TRACE})
    assert answer.status == 202
    assert answer.headers["Location"] == f"/v1/runs/{answer.json['run_id']}"
    run = (await admin.get(answer.headers["Location"])).json
    assert (run["state"], run["task"], run["priority"], run["correlation_id"]) == ("queued", "prices", 7, "c-1")
    assert run["spec"]["params"] == {"country": "fr"}
    assert run["traceparent"] == TRACE


async def test_a_trace_that_is_none_is_not_carried_on(admin: Visitor) -> None:
    await keep(admin.app, noop("prices"))
    for wrong in ("00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff" + TRACE[2:], "nonsense"):
        answer = await admin.post("/v1/runs", {"task": "prices"}, headers={"traceparent": wrong})
        run = (await admin.get(answer.headers["Location"])).json
        assert run["traceparent"] not in ("", wrong)


async def test_an_idempotency_key_makes_one_run_of_two_requests(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", params={"n": 1}))
    first, second = [
        (await admin.post("/v1/runs", {"task": "prices"}, headers={"Idempotency-Key": "once"})).json for _ in range(2)
    ]
    assert (first["fresh"], second["fresh"]) == (True, False)
    assert first["run_id"] == second["run_id"]
    other = {"task": "prices", "params": {"n": 2}}
    answer = await admin.post("/v1/runs", other, headers={"Idempotency-Key": "once"})
    assert (answer.status, answer.json["code"]) == (409, "conflict")


async def test_a_run_without_a_task_needs_a_developer(nobody: Visitor) -> None:
    body = {"project": "shop", "kind": "shell", "spec": {"argv": ["true"]}, "name": "probe"}
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    assert (await operator.post("/v1/runs", body)).status == 403
    developer = await nobody.with_role(Role.DEVELOPER, "shop")
    answer = await developer.post("/v1/runs", body)
    run = (await developer.get(answer.headers["Location"])).json
    assert (run["task"], run["task_id"], run["kind"]) == ("probe", None, "shell")


async def test_a_run_that_could_not_be_executed_is_refused(admin: Visitor) -> None:
    await keep(admin.app, noop("prices"))
    for wrong, field in (
        ({"kind": "shell", "spec": {"nothing": 1}}, "spec"),
        ({"kind": "no-such-kind"}, "kind"),
        ({"task": "prices", "kind": "noop"}, "the run"),
        ({}, "the run"),
        ({"task": "prices", "spec": {"a": 1}}, "spec"),
        ({"task": "prices", "params": {"colour": "red"}}, "parameter of default/prices"),
        ({"task": "prices", "priority": 10_000}, "priority"),
        ({"task": "prices", "not_before": "9999-12-31T00:00:00Z"}, "not_before"),
        ({"task": "prices", "correlation_id": "x" * 65}, "correlation_id"),
        ({"task": "prices", "colour": "red"}, "body"),
    ):
        answer = await admin.post("/v1/runs", wrong)
        assert (answer.status, answer.json["code"]) == (422, "invalid"), wrong
        assert field in answer.json["field"] or field == "spec", answer.json
    assert (await admin.post("/v1/runs", {"task": "no-such-task"})).status == 404


async def test_a_run_waits_until_its_time(admin: Visitor, clock: SetClock) -> None:
    await keep(admin.app, noop("prices"))
    answer = await admin.post("/v1/runs", {"task": "prices", "not_before": "2026-12-01T08:00:00+01:00"})
    run = (await admin.get(answer.headers["Location"])).json
    assert run["not_before"] == "2026-12-01T07:00:00.000Z"
    assert (await admin.get("/v1/runs/counts")).json["waiting"] == 1


async def test_a_batch_is_queued_whole_or_not_at_all(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", params={"n": 0}))
    runs = [{"task": "prices", "params": {"n": n}} for n in range(300)]
    answer = await admin.post("/v1/runs/batch", {"runs": runs}, headers={"Idempotency-Key": "all"})
    ids = [each["run_id"] for each in answer.json["items"]]
    assert answer.status == 202
    assert len(set(ids)) == 300
    again = await admin.post("/v1/runs/batch", {"runs": runs}, headers={"Idempotency-Key": "all"})
    assert [each["run_id"] for each in again.json["items"]] == ids
    broken = [*runs[:10], {"task": "no-such-task"}]
    assert (await admin.post("/v1/runs/batch", {"runs": broken})).status == 404
    assert (await admin.get("/v1/runs/counts")).json["ready"] == 300
    assert (await admin.post("/v1/runs/batch", {"runs": []})).status == 422


async def test_a_batch_may_not_reach_into_a_project_of_others(nobody: Visitor) -> None:
    await keep(nobody.app, noop("prices", project="shop"), noop("prices", project="bank"))
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    runs = [{"project": name, "task": "prices"} for name in ("shop", "bank")]
    answer = await operator.post("/v1/runs/batch", {"runs": runs})
    assert (answer.status, answer.json["detail"]) == (404, "there is no task bank/prices")
    assert (await operator.get("/v1/runs")).json["items"] == []


async def test_several_runs_are_cancelled_and_those_that_ended_stay(admin: Visitor) -> None:
    hand = await Hand.join(admin.app)
    first, *others = await submit_many(admin.app, 3)
    lease = await hand.lease_one()
    await hand.end(lease)
    answer = await admin.post("/v1/runs/cancel", {"ids": [first, *others, *others]})
    assert answer.status == 202
    assert {each["run_id"]: (each["done"], each["state"]) for each in answer.json["items"]} == {
        lease.run_id: (False, "succeeded"),
        **dict.fromkeys(others, (True, "cancelled")),
    }
    reasons = {run["id"]: run["reason"] for run in (await admin.get("/v1/runs")).json["items"]}
    assert reasons[others[0]] == "cancelled by test"


async def test_several_runs_are_repeated_and_those_that_go_on_are_left_out(admin: Visitor) -> None:
    hand = await Hand.join(admin.app)
    first, second = await submit_many(admin.app, 2)
    await hand.end(await hand.lease_one())
    answer = await admin.post("/v1/runs/again", {"ids": [first, second]})
    by_id = {each["run_id"]: each["new_run_id"] for each in answer.json["items"]}
    assert by_id[second] is None
    assert (await admin.get(f"/v1/runs/{by_id[first]}")).json["trigger"] == "retry"
    one = await admin.post(f"/v1/runs/{second}/again")
    assert (one.status, one.json["code"]) == (409, "conflict")


async def test_a_list_of_runs_with_one_of_another_project_changes_nothing(nobody: Visitor) -> None:
    mine, other = [(await nobody.app.runs.submit([new_run(project=project)]))[0].run_id for project in ("shop", "bank")]
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    for verb in ("cancel", "again"):
        answer = await operator.post(f"/v1/runs/{verb}", {"ids": [mine, other]})
        assert (answer.status, answer.json["detail"]) == (404, f"there is no run {other}")
    assert (await operator.get(f"/v1/runs/{mine}")).json["state"] == "queued"


async def test_a_log_and_the_attempts_of_a_run_are_told(admin: Visitor) -> None:
    hand = await Hand.join(admin.app)
    [run_id] = await submit_many(admin.app, 1)
    lease = await hand.lease_one()
    await admin.app.blobs.put("log", b"7 prices\n")
    await hand.end(lease, log_key="log", log_bytes=9)
    answer = await admin.get(f"/v1/runs/{run_id}/log")
    assert (answer.data, answer.headers["Content-Type"]) == (b"7 prices\n", "text/plain; charset=utf-8")
    assert (await admin.get(f"/v1/runs/{run_id}/log?attempt=2")).status == 422
    [attempt] = (await admin.get(f"/v1/runs/{run_id}/attempts")).json["items"]
    assert (attempt["attempt"], attempt["outcome"], attempt["worker"]) == (1, "succeeded", "hand")


async def test_runs_are_found_by_what_they_are(admin: Visitor) -> None:
    await admin.app.runs.submit([new_run(), new_run(task="stock"), new_run(project="bank", correlation_id="c-9")])
    for query, expected in (
        ("task=stock", 1),
        ("project=bank", 1),
        ("correlation_id=c-9", 1),
        ("state=queued", 3),
        ("state=failed", 0),
        ("outcome=lost", 0),
        ("trigger=manual&kind=noop", 3),
    ):
        assert len((await admin.get(f"/v1/runs?{query}")).json["items"]) == expected, query
    oldest = (await admin.get("/v1/runs?sort=id&limit=1")).json
    assert oldest["items"][0]["task"] == "prices"
    assert (await admin.get("/v1/runs?sort=spec")).status == 422


async def test_counts_tell_only_of_the_projects_of_the_caller(nobody: Visitor) -> None:
    await nobody.app.runs.submit([new_run(project="shop"), new_run(project="bank")])
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    assert (await viewer.get("/v1/runs/counts")).json == {
        "ready": 1,
        "held": 0,
        "waiting": 0,
        "paused": 0,
        "running": 0,
        "ended": {},
    }
    assert (await viewer.get("/v1/runs/counts?project=bank")).status == 403
    hand = await Hand.join(nobody.app)
    for lease in await hand.lease():
        await hand.end(lease)
    assert (await viewer.get("/v1/runs/counts")).json["ended"] == {"succeeded": 1}


async def test_the_command_line_and_the_api_give_one_document(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", "@daily", params={"n": 1}))
    run_id = (await admin.app.tasks.start("default", "prices")).run_id
    run, attempts = await admin.app.runs.get(run_id), await admin.app.runs.attempts(run_id)
    assert json.loads(as_json(run_document(run, attempts))) == (await admin.get(f"/v1/runs/{run_id}")).json
    [listed] = (await admin.get("/v1/tasks")).json["items"]
    assert json.loads(as_json(task_document(await admin.app.tasks.get("default", "prices")))) == listed


async def test_a_run_in_a_list_is_the_same_document_as_by_itself(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", "@daily", params={"n": 1}, retry=Retry(count=2), labels=("fast",)))
    run_id = (await admin.app.tasks.start("default", "prices")).run_id
    hand = await Hand.join(admin.app, labels=("fast",))
    for lease in await hand.lease():
        await hand.end(lease, result={"found": [1, {"ä": None}]})
    alone = (await admin.get(f"/v1/runs/{run_id}")).json
    del alone["attempts"]
    assert (await admin.get("/v1/runs")).json["items"] == [alone]


async def test_the_first_event_of_a_run_tells_who_started_it(admin: Visitor) -> None:
    await keep(admin.app, noop("prices"))
    await admin.post("/v1/runs", {"task": "prices"})
    await admin.post("/v1/runs/batch", {"runs": [{"kind": "noop"}]})
    await admin.post("/v1/tasks/default/prices/start", {})
    await admin.app.tasks.start("default", "prices")
    found = (await admin.get("/v1/events/history?kind=run_queued")).json["items"]
    assert [event["data"] for event in found] == [{}, *[{"by": "key:test"}] * 3]


async def test_a_full_queue_takes_runs_again_once_there_is_room(admin: Visitor) -> None:
    await admin.call("PUT", "/v1/projects/shop", {"max_queued": 1})
    run = {"project": "shop", "kind": "noop"}
    first = await admin.post("/v1/runs", run)
    refused = [await admin.post("/v1/runs", run) for _ in range(3)]
    assert {(each.status, each.json["code"], each.headers["Retry-After"]) for each in refused} == {
        (429, "queue_full", "5")
    }
    assert (await admin.post("/v1/runs", run | {"project": "news"})).status == 202
    await admin.post(f"/v1/runs/{first.json['run_id']}/cancel")
    await eventually(lambda: is_accepted(admin, run))


async def is_accepted(visitor: Visitor, run: dict[str, str]) -> bool:
    return (await visitor.post("/v1/runs", run)).status == 202
