"""Schedules over HTTP: what fires when, and what came of it; changed as their tasks are."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert

from tests.api.acting import Visitor
from tests.conftest import SetClock
from tests.tasks.scene import NOON, keep, noop
from weft.access.model import Role
from weft.clock import iso, seconds
from weft.db import schema
from weft.tasks import list_store

ADDRESS = "/v1/schedules/shop/prices"
DAILY = {"schedule": "30 2 * * *"}


@pytest.fixture
def noon(clock: SetClock) -> SetClock:
    clock.now = NOON
    return clock


async def listed(visitor: Visitor, query: str = "", limit: int = 2) -> list[str]:
    """The names of all pages, one after the other."""
    found, after = [], ""
    while True:
        answer = await visitor.get(f"/v1/schedules?limit={limit}&{query}{after}")
        assert answer.status == 200, answer.json
        assert len(answer.json["items"]) <= limit
        found += [f"{each['project']}/{each['task']}" for each in answer.json["items"]]
        if answer.json["next"] is None:
            return found
        after = f"&after={answer.json['next']}"


async def many(visitor: Visitor) -> None:
    await keep(
        visitor.app,
        noop("daily", "@daily", project="a"),
        noop("hourly", "@hourly", project="a"),
        noop("by-hand", project="a"),
        noop("paused", "@hourly", project="a", paused=True),
        noop("also-hourly", "@hourly", project="b"),
        noop("over", "2020-01-01 08:00", project="b"),
        noop("hourly", "@every 5m", project="b"),
        noop("follows", project="b", after=()),
        noop("also-paused", "@daily", project="b", paused=True),
    )


async def test_a_schedule_is_shown_with_what_lies_ahead_and_what_came_of_it(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("prices", {"when": "30 14 * * *", "zone": "Europe/Berlin"}, project="shop"))
    before = (await admin.get(ADDRESS)).json
    assert (before["last_tick"], before["ticks"]) == (None, [])
    noon.now = NOON + seconds(3600)
    await admin.app.scheduler.tick()
    shown = await admin.get(ADDRESS)
    told = shown.json
    assert shown.headers["ETag"] == '"1"'
    assert (told["project"], told["task"], told["schedule"]["zone"]) == ("shop", "prices", "Europe/Berlin")
    assert told["words"] == "every day at 14:30 (Europe/Berlin)"
    assert (told["next_fire_at"], len(told["next"])) == (told["next"][0], 10)
    assert told["next_fire_at"] == "2026-06-02T12:30:00.000Z"
    [run] = await admin.app.runs.find({"project": "shop"}, limit=2)
    assert (told["last_tick"]["run_id"], told["last_tick"]["outcome"]) == (run.id, "queued")
    assert told["last_tick"]["fire_at"] == before["next_fire_at"]
    assert told["ticks"] == [told["last_tick"]]
    alone = {"ticks", "times", "gaps"}
    listed = {name: value for name, value in told.items() if name not in alone}
    assert (await admin.get("/v1/schedules")).json["items"] == [listed]


@pytest.mark.parametrize("late", [0, 0.0004, 0.0012])
async def test_no_two_ticks_are_told_by_one_moment_where_an_interval_goes_on_after_the_clock_was_set_back(
    admin: Visitor, noon: SetClock, late: float
) -> None:
    schedule = {"when": "@every 5s", "overlap": "allow"}
    made = await admin.call("PUT", "/v1/tasks/shop/prices", {"kind": "noop", "schedule": schedule})
    assert made.status in (200, 201), made.json
    noon.forward(late)
    for step in (5, 5, 5, 1, -11, 5, 5, 5, 1, -11, 5, 5):
        noon.forward(step)
        await admin.app.scheduler.tick()
    told = [each["fire_at"] for each in (await admin.get(ADDRESS)).json["ticks"]]
    assert len(told) == len(set(told)) == 8, told
    runs = [each["fire_at"] for each in (await admin.get("/v1/runs?project=shop")).json["items"]]
    assert sorted(runs) == sorted(told)


async def test_the_last_tick_is_the_newest_of_its_own_task(admin: Visitor) -> None:
    await keep(admin.app, *(noop(name, "@hourly", project="shop") for name in ("one", "two", "three")))
    ids = {each.task.name: each.id for each in await admin.app.tasks.all()}
    rows = [
        {"task_id": ids[name], "fire_at": fire, "outcome": outcome, "run_id": None, "at": fire}
        for name, fire, outcome in (("one", 3, "queued"), ("one", 9, "skipped"), ("one", 6, "queued"), ("two", 7, "x"))
    ]
    await admin.app.db.transact(lambda tx: tx.execute(insert(schema.ticks), rows))
    found = {each["task"]: each["last_tick"] for each in (await admin.get("/v1/schedules")).json["items"]}
    assert {name: tick and tick["outcome"] for name, tick in found.items()} == {
        "one": "skipped",
        "two": "x",
        "three": None,
    }


async def test_a_schedule_is_given_to_a_task_and_taken_from_it(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("prices", project="shop", description="of all shops"))
    assert (await admin.get(ADDRESS)).status == 404
    assert (await admin.get("/v1/schedules")).json["items"] == []
    given = await admin.call("PUT", ADDRESS, DAILY, headers={"If-Match": '"1"'})
    assert (given.status, given.headers["ETag"]) == (200, '"2"')
    assert given.json["next_fire_at"] == "2026-06-02T02:30:00.000Z"
    task = (await admin.get("/v1/tasks/shop/prices")).json
    assert (task["revision"], task["schedule"]["cron"], task["description"]) == (2, "30 2 * * *", "of all shops")
    assert (await admin.call("DELETE", ADDRESS, headers={"If-Match": '"2"'})).status == 204
    assert [(await admin.get(ADDRESS)).status, (await admin.call("DELETE", ADDRESS)).status] == [404, 404]
    task = (await admin.get("/v1/tasks/shop/prices")).json
    assert (task["revision"], task["schedule"], task["next_fire_at"]) == (3, None, None)


async def test_what_was_read_can_be_sent_back_with_a_change(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", {"when": "@every 5m", "overlap": "allow"}, project="shop"))
    before = (await admin.get(ADDRESS)).json
    same = await admin.call("PUT", ADDRESS, before)
    assert (same.status, same.json) == (200, before)
    schedule = before["schedule"] | {"every_seconds": 60}
    changed = await admin.call("PUT", ADDRESS, before | {"schedule": schedule, "paused": True})
    assert (changed.json["words"], changed.json["schedule"]["overlap"]) == ("every minute", "allow")
    assert (changed.json["paused"], changed.json["revision"]) == (True, 2)
    assert (await admin.call("PUT", ADDRESS, DAILY)).json["paused"]


async def test_a_schedule_that_was_changed_meanwhile_is_not_overwritten(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", "@daily", project="shop"))
    seen = {"If-Match": (await admin.get(ADDRESS)).headers["ETag"]}
    bodies = [{"schedule": f"@every {each}m"} for each in range(1, 5)]
    answers = await asyncio.gather(*(admin.call("PUT", ADDRESS, body, headers=seen) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412]
    [won] = [answer for answer in answers if answer.status == 200]
    assert (await admin.call("DELETE", ADDRESS, headers=seen)).status == 412
    assert (await admin.get(ADDRESS)).json == won.json


async def test_a_schedule_is_paused_and_goes_on(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("prices", "@hourly", project="shop"), noop("by-hand", project="shop"))
    paused = await admin.post(f"{ADDRESS}/pause")
    assert (paused.status, paused.json["paused"], paused.json["next_fire_at"]) == (200, True, None)
    assert paused.json["next"] == []
    assert (await admin.get("/v1/tasks/shop/prices")).json["paused"]
    noon.now = NOON + seconds(7200)
    resumed = await admin.post(f"{ADDRESS}/resume")
    assert (resumed.json["paused"], resumed.json["next_fire_at"]) == (False, iso(NOON + seconds(10_800)))
    for verb in ("pause", "resume"):
        refused = await admin.post(f"/v1/schedules/shop/by-hand/{verb}")
        assert (refused.status, refused.json["detail"]) == (404, "there is no schedule of task shop/by-hand")


WRONG: list[object] = [
    {"schedule": "61 * * * *"},
    {"schedule": {"cron": "* * * * *", "every_seconds": 5}},
    {"schedule": {}},
    {"schedule": None},
    {"schedule": {"when": "@daily", "zone": "Mars/Olympus"}},
    DAILY | {"task": "other"},
    DAILY | {"project": "bank"},
    DAILY | {"colour": "red"},
    {},
    "@daily",
]


async def test_a_schedule_that_is_wrong_is_refused_with_the_reason(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", "@daily", project="shop"))
    for wrong in WRONG:
        answer = await admin.call("PUT", ADDRESS, wrong)
        assert (answer.status, answer.json["code"]) == (422, "invalid"), wrong
    assert (await admin.get(ADDRESS)).json["revision"] == 1


async def test_a_task_that_cannot_start_by_itself_gets_no_schedule(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", project="shop", params={"country": None}))
    refused = await admin.call("PUT", ADDRESS, DAILY)
    assert (refused.status, "needs a default" in refused.json["detail"]) == (422, True)
    missing = await admin.call("PUT", "/v1/schedules/shop/nothing", DAILY)
    assert (missing.status, missing.json["detail"]) == (404, "there is no task shop/nothing")


BY_NAME = ["a/daily", "a/hourly", "a/paused", "b/also-hourly", "b/also-paused", "b/hourly", "b/over"]
BY_TIME = ["b/hourly", "a/hourly", "b/also-hourly", "a/daily", "a/paused", "b/over", "b/also-paused"]


async def test_lists_have_each_schedule_once_and_in_order(
    admin: Visitor, noon: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(admin)
    for limit in (1, 2, 4, 500):
        assert await listed(admin, "", limit) == BY_NAME
        assert await listed(admin, "sort=-name", limit) == BY_NAME[::-1]
        for seen in (1, 2, 3):
            monkeypatch.setattr(list_store, "PAGE_ROWS", seen)
            monkeypatch.setattr(list_store, "MOST_PAGES", seen)
            assert await listed(admin, "sort=next_fire_at", limit) == BY_TIME, (limit, seen)
            assert await listed(admin, "sort=next_fire_at&task=daily", limit) == ["a/daily"], (limit, seen)


async def test_lists_have_only_what_was_asked_for(admin: Visitor, noon: SetClock) -> None:
    await many(admin)
    for sort, order in (("name", BY_NAME), ("next_fire_at", BY_TIME)):
        query = f"sort={sort}"
        assert await listed(admin, f"{query}&project=a") == [each for each in order if each.startswith("a/")]
        assert await listed(admin, f"{query}&task=hourly") == [each for each in order if each.endswith("/hourly")]
        assert await listed(admin, f"{query}&task=hourly&project=b") == ["b/hourly"]
        assert await listed(admin, f"{query}&task=by-hand") == []
        assert await listed(admin, f"{query}&paused=true") == [each for each in order if "paused" in each]
        assert await listed(admin, f"{query}&paused=false") == [each for each in order if "paused" not in each]


async def test_a_caller_sees_the_schedules_of_their_projects(admin: Visitor, noon: SetClock) -> None:
    await many(admin)
    viewer = await admin.with_role(Role.VIEWER, "b")
    for sort, order in (("name", BY_NAME), ("next_fire_at", BY_TIME)):
        assert await listed(viewer, f"sort={sort}") == [each for each in order if each.startswith("b/")]
    assert (await viewer.get("/v1/schedules?project=a")).status == 403
    assert (await viewer.get("/v1/schedules/a/daily")).status == 404


async def test_a_place_of_another_order_is_refused(admin: Visitor, noon: SetClock) -> None:
    await many(admin)
    by_name = (await admin.get("/v1/schedules?limit=1")).json["next"]
    by_time = (await admin.get("/v1/schedules?limit=1&sort=next_fire_at")).json["next"]
    for query in (f"sort=next_fire_at&after={by_name}", f"after={by_time}", "sort=next_fire_at&after=Wy0xLC0xXQ"):
        answer = await admin.get(f"/v1/schedules?{query}")
        assert (answer.status, answer.json["field"]) == (422, "after"), query
    assert (await admin.get("/v1/schedules?sort=missed")).status == 422


async def test_a_change_of_a_schedule_is_told_as_one_of_its_task(admin: Visitor) -> None:
    await keep(admin.app, noop("prices", project="shop"))
    await admin.call("PUT", ADDRESS, DAILY)
    [entry] = (await admin.get("/v1/audit?limit=1")).json["items"]
    assert (entry["action"], entry["target"]) == ("schedules.put", "task shop/prices")
    assert entry["data"]["after"] == {"schedule": {"cron": "30 2 * * *"}}
