"""The calendar of schedules over HTTP, what a schedule would do, and what never fired."""

from __future__ import annotations

import pytest

from tests.api.acting import Visitor
from tests.cases import for_each
from tests.conftest import SetClock
from tests.tasks.scene import NOON, keep, noop
from weft.clock import seconds

DAY = 86_400


@pytest.fixture
def noon(clock: SetClock) -> SetClock:
    clock.now = NOON
    return clock


async def test_a_preview_tells_words_and_times_with_the_change_of_the_clock(admin: Visitor, clock: SetClock) -> None:
    clock.now = NOON + seconds(140 * DAY)  # 2026-10-19, a week before clocks in Berlin go back
    told = (await admin.get("/v1/schedules/preview?when=30+2+*+*+*&zone=Europe/Berlin")).json
    assert told["words"] == "every day at 02:30 (Europe/Berlin)"
    changes = {each["local"]: each["clock_change_seconds"] for each in told["times"]}
    assert changes["2026-10-24T02:30:00+02:00"] == 0
    assert {local: change for local, change in changes.items() if change} == {"2026-10-26T02:30:00+01:00": -3600}
    assert len(told["times"]) == 10


@for_each(
    ("query", "field"),
    [
        ("when=61+*+*+*+*", "the minute field of the cron expression"),
        ("when=", "when"),
        ("when=@daily&zone=Europe/Nowhere", "zone"),
        ("when=@every+soon", "the interval"),
    ],
)
async def test_a_preview_of_what_is_no_schedule_names_what_is_wrong(admin: Visitor, query: str, field: str) -> None:
    answer = await admin.get(f"/v1/schedules/preview?{query}")
    assert (answer.status, answer.json["field"]) == (422, field)


async def test_the_calendar_has_what_came_of_ticks_and_what_lies_ahead(admin: Visitor, noon: SetClock) -> None:
    await keep(
        admin.app,
        noop("daily", "0 14 * * *", project="shop"),
        noop("often", "* * * * *", project="shop"),
        noop("paused", "@daily", project="shop", paused=True),
    )
    noon.now = NOON + seconds(3 * 3600)
    await admin.app.scheduler.tick()
    told = (await admin.get("/v1/schedules/calendar?since=2026-06-01&days=3")).json
    assert [day["date"] for day in told["days"]] == ["2026-06-01", "2026-06-02", "2026-06-03"]
    daily, often = told["lines"]
    assert (daily["task"], daily["days"], daily["words"]) == ("daily", [1, 1, 1], "every day at 14:00 (UTC)")
    assert [fire["outcome"] for fire in daily["fires"]] == ["queued", None, None]
    assert (daily["fires"][0]["state"], daily["fires"][0]["run_id"] > 0) == ("queued", True)
    assert (often["fires"], often["days"]) == (None, [719, 1440, 1440])


async def test_days_are_those_of_the_zone(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("late", "30 22 * * *", project="shop"))
    for zone, first in (("UTC", "2026-06-01"), ("Asia/Tokyo", "2026-06-02")):
        told = (await admin.get(f"/v1/schedules/calendar?days=2&since=2026-06-01&zone={zone}")).json
        fires = [(day["date"], number) for day, number in zip(told["days"], told["lines"][0]["days"], strict=True)]
        assert next(date for date, number in fires if number) == first
    today = (await admin.get("/v1/schedules/calendar?zone=Pacific/Kiritimati")).json
    assert today["days"][0]["date"] == "2026-06-02"


async def test_ticks_that_never_fired_are_told_until_they_are_back_filled(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("hourly", "@hourly", project="shop"))
    noon.now = NOON + seconds(5 * 3600 + 600)
    await admin.app.scheduler.tick()
    shown = (await admin.get("/v1/schedules/shop/hourly")).json
    gap = {"first_at": "2026-06-01T13:00:00.000Z", "last_at": "2026-06-01T16:00:00.000Z", "count": 4}
    assert (shown["gaps"], shown["missed"]) == ([gap], 4)
    window = {"from": "2026-06-01T12:30:00Z", "to": "2026-06-01T15:30:00Z"}
    await admin.post("/v1/tasks/shop/hourly/backfill", window)
    shown = (await admin.get("/v1/schedules/shop/hourly")).json
    assert [(gap["first_at"][11:16], gap["count"]) for gap in shown["gaps"]] == [("16:00", 1)]


async def test_the_calendar_marks_what_never_fired(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("daily", {"when": "0 13 * * *", "misfire": "skip"}, project="shop"))
    noon.now = NOON + seconds(2 * DAY)
    await admin.app.scheduler.tick()
    told = (await admin.get("/v1/schedules/calendar?since=2026-06-01&days=4")).json
    assert [fire["outcome"] for fire in told["lines"][0]["fires"]] == ["missed", "missed", None, None]


async def test_what_was_shown_of_a_schedule_can_be_sent_back(admin: Visitor, noon: SetClock) -> None:
    await keep(admin.app, noop("hourly", "@hourly", project="shop"))
    shown = (await admin.get("/v1/schedules/shop/hourly")).json
    assert (await admin.call("PUT", "/v1/schedules/shop/hourly", shown)).status == 200


@for_each("query", ["since=soon", "since=9999-01-01", "days=43", "days=0", "zone=Mars", "after=x"])
async def test_a_calendar_that_there_is_not_is_refused(admin: Visitor, query: str) -> None:
    assert (await admin.get(f"/v1/schedules/calendar?{query}")).status == 422
