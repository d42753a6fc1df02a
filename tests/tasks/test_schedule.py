"""What people may write for a schedule, when it ticks, and how it is told."""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.clock import SECOND, moment
from weft.errors import Invalid
from weft.tasks.model import schedule_text
from weft.tasks.schedule import LAST_MOMENT, Schedule, fires_between, jittered, next_fire, next_fires, parse_when

NOON = moment(datetime.fromisoformat("2026-06-01T12:00Z"))


@for_each(
    ("text", "field", "value"),
    [
        ("@yearly", "cron", "0 0 1 1 *"),
        ("@annually", "cron", "0 0 1 1 *"),
        ("@monthly", "cron", "0 0 1 * *"),
        ("@weekly", "cron", "0 0 * * 0"),
        ("@daily", "cron", "0 0 * * *"),
        ("@midnight", "cron", "0 0 * * *"),
        ("@Hourly", "cron", "0 * * * *"),
        (" */5 8-17 * * mon-fri ", "cron", "*/5 8-17 * * mon-fri"),
        ("@every 90s", "every_seconds", 90),
        ("@every 5m", "every_seconds", 300),
        ("@every 1h30m", "every_seconds", 5400),
        ("@every 2d", "every_seconds", 172_800),
        ("@every 250ms", "every_seconds", 0.25),
        ("@every 1.5h", "every_seconds", 5400),
        ("2026-12-01T08:00Z", "once_at", 1_796_112_000 * SECOND),
        ("2026-12-01T08:00+02:00", "once_at", 1_796_104_800 * SECOND),
        ("2026-12-01 09:00", "once_at", 1_796_112_000 * SECOND),
        ("2026-12-01T09:00:00.000001", "once_at", 1_796_112_000 * SECOND + 1),
        ("2026-12-01", "once_at", 1_796_079_600 * SECOND),
    ],
)
def test_a_line_is_read_as_the_schedule_it_means(text: str, field: str, value: Any) -> None:
    assert parse_when(text, "Europe/Berlin") == Schedule(zone="Europe/Berlin", **{field: value})


REFUSED = [
    ("@reboot", "it must be one of @every 5m, @yearly"),
    ("@", "it must be one of @every"),
    ("@daily 5", "it must be one of @every"),
    ("@every", "the interval is ''; it must be a span such as 90s"),
    ("@every 5", "the interval is '5'; it must be a span"),
    ("@every 5 minutes", "it must be a span"),
    ("@every 5m1h", "the largest unit first"),
    ("@every -5m", "it must be a span"),
    ("@every ５m", "it must be a span"),
    ("@every 0s", "every_seconds of the schedule is 0.0; it must be a number from 0.001 to"),
    ("@every 0.5ms", "it must be a number from 0.001 to"),
    ("@every 999999999d", "it must be a number from 0.001 to"),
    ("2026-02-30", "the date is '2026-02-30'; it must be in ISO 8601"),
    ("2026-12-01 08:00 UTC", "it must be in ISO 8601"),
    ("2026-12-01T25:00", "it must be in ISO 8601"),
    ("1969-12-31", "it must be from 1970 to 9998"),
    ("9999-01-01", "it must be from 1970 to 9998"),
    ("tomorrow", "it must have five fields"),
    ("61 * * * *", "the minute field"),
]


@for_each(("text", "said"), REFUSED)
def test_a_wrong_line_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_when(text)
    assert said in str(refusal.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "exactly one of cron, every_seconds, once_at"),
    ({"cron": "* * * * *", "every_seconds": 5}, "exactly one of cron, every_seconds, once_at"),
    ({"when": "@daily", "cron": "* * * * *"}, "exactly one of when, cron"),
    ({"when": 5}, "the time of the schedule is 5"),
    ({"when": None}, "the time of the schedule is None"),
    ({"when": "@daily", "zone": "Europe/Atlantis"}, "the time zone is 'Europe/Atlantis'; it must be an IANA time zone"),
    ({"when": "2026-01-01", "zone": ["UTC"]}, "the time zone is ['UTC']"),
    ({"when": "@daily", "zone": "../../etc/passwd"}, "the time zone"),
    ({"when": "@daily", "zone": "/etc/localtime"}, "the time zone"),
    ({"when": "@daily", "zone": "Europe"}, "the time zone"),
    ({"when": "@daily", "zone": "right/UTC"}, "the time zone"),
    ({"when": "@daily", "zone": "localtime"}, "the time zone"),
    ({"when": "@daily", "zone": ""}, "the time zone"),
    ({"when": "@daily", "misfire": "often"}, "misfire of the schedule is 'often'; it must be one of skip, once, all"),
    ({"when": "@daily", "overlap": []}, "it must be one of allow, skip, queue_one, replace"),
    ({"when": "@daily", "jitter_seconds": -1}, "it must be a number from 0 to 86400"),
    ({"when": "@daily", "jitter_seconds": "5"}, "it must be a number from 0 to 86400"),
    ({"when": "@daily", "catch_up_seconds": float("nan")}, "it must be a number from 0 to"),
    ({"when": "@daily", "catch_up_cap": 0}, "it must be a whole number from 1 to 10000"),
    ({"when": "@daily", "catch_up_cap": 2.5}, "it must be a whole number from 1 to 10000"),
    ({"when": "@daily", "catch_up_cap": True}, "it must be a whole number from 1 to 10000"),
    ({"every_seconds": float("inf")}, "it must be a number from 0.001 to"),
    ({"every_seconds": 5, "start_at": -1}, "it must be a date from 1970 to 9998"),
    ({"once_at": 2**63}, "it must be a date from 1970 to 9998"),
    ({"cron": ["* * * * *"]}, "the cron expression is ['* * * * *']"),
    ({"when": "@daily", "timezone": "UTC"}, "a setting of the schedule is 'timezone'; it must be one of when, cron"),
]


@for_each(("table", "said"), WRONG)
def test_a_wrong_table_is_refused_with_what_is_allowed(table: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Schedule.parse(table)
    assert said in str(refusal.value)


@pytest.mark.parametrize("nothing", [None, 5, [], b"@daily"])
def test_what_is_neither_text_nor_table_is_no_schedule(nothing: object) -> None:
    with pytest.raises(Invalid, match="the schedule is"):
        Schedule.parse(nothing)


def test_a_table_may_say_when_and_every_setting() -> None:
    table = {"when": "30 2 * * *", "zone": "Europe/Berlin", "misfire": "all", "catch_up_cap": 5, "overlap": "replace"}
    assert Schedule.parse(table) == Schedule(
        cron="30 2 * * *", zone="Europe/Berlin", misfire="all", catch_up_cap=5, overlap="replace"
    )


def test_an_unquoted_date_of_yaml_or_toml_is_that_date() -> None:
    assert Schedule.parse({"when": date(2026, 12, 1)}) == parse_when("2026-12-01")
    assert Schedule.parse({"when": datetime.fromisoformat("2026-12-01T08:00Z")}) == parse_when("2026-12-01T08:00Z")


@pytest.mark.parametrize("text", ["@every 90s", "30 2 * * MON", "2026-12-01T08:00Z"])
def test_a_schedule_survives_being_stored(text: str) -> None:
    schedule = parse_when(text, "Europe/Berlin", start_at=5)
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_a_wrong_schedule_cannot_be_read_back() -> None:
    with pytest.raises(Invalid):
        msgspec.json.decode(b'{"cron": "0 0 30 2 *"}', type=Schedule)


@settings(max_examples=500)
@given(
    st.text(alphabet=st.sampled_from("@every 0123456789smhd.:-+TZ*/,")) | st.text() | st.datetimes().map(str),
    st.sampled_from(["UTC", "Pacific/Apia"]) | st.text(),
)
def test_any_line_is_a_schedule_with_a_sentence_or_invalid(text: str, zone: str) -> None:
    try:
        schedule = parse_when(text, zone)
    except Invalid:
        return
    assert schedule_text(schedule)
    assert all(sooner < later for sooner, later in pairwise(next_fires(schedule, 0)))


def test_an_interval_ticks_at_its_start_and_each_period_after() -> None:
    schedule = Schedule(every_seconds=90, start_at=NOON)
    assert next_fires(schedule, 0, 3) == [NOON, NOON + 90 * SECOND, NOON + 180 * SECOND]
    assert next_fire(schedule, NOON) == NOON + 90 * SECOND
    assert next_fire(schedule, NOON - 1) == NOON
    assert next_fire(schedule, NOON + 1) == NOON + 90 * SECOND


def test_an_interval_does_not_drift_however_long_it_runs() -> None:
    schedule = Schedule(every_seconds=0.1, start_at=NOON)
    year_later = NOON + 365 * 86_400 * SECOND
    assert next_fire(schedule, year_later - 1) == year_later


def test_one_date_ticks_once() -> None:
    schedule = Schedule(once_at=NOON)
    assert next_fires(schedule, 0) == [NOON]
    assert next_fire(schedule, NOON - 1) == NOON
    assert next_fire(schedule, NOON) is None


def test_a_window_holds_its_start_and_not_its_end() -> None:
    hourly = parse_when("@hourly")
    assert fires_between(hourly, NOON, NOON + 3600 * SECOND, 10) == [NOON]
    assert fires_between(hourly, NOON + 1, NOON + 3600 * SECOND, 10) == []
    assert len(fires_between(hourly, NOON, NOON + 86_400 * SECOND, 10)) == 10


def test_ten_ticks_are_told_unless_asked_otherwise() -> None:
    assert len(next_fires(parse_when("@yearly"), NOON)) == 10


def test_a_time_that_its_zone_never_shows_never_ticks() -> None:
    assert next_fire(Schedule(cron="*/5 2 * 3 0L", zone="Europe/Berlin"), NOON) is None


@pytest.mark.parametrize("text", ["* * * * *", "@every 1s", "0 0 29 2 *"])
def test_nothing_ticks_after_the_year_9998(text: str) -> None:
    assert next_fire(parse_when(text), LAST_MOMENT) is None
    assert next_fire(parse_when(text, "Pacific/Apia"), LAST_MOMENT + 400 * 86_400 * SECOND) is None


@given(st.text(), st.integers(0, LAST_MOMENT), st.floats(0, 86_400))
def test_jitter_delays_by_less_than_it_says_and_always_by_the_same(key: str, fire: int, jitter: float) -> None:
    delayed = jittered(key, fire, jitter)
    assert delayed == jittered(key, fire, jitter)
    assert 0 <= delayed - fire < max(1, jitter * SECOND + 1)


def test_jitter_spreads_schedules_that_tick_together() -> None:
    delays = [(jittered(f"task {number}", NOON, 60) - NOON) // SECOND for number in range(6000)]
    per_ten_seconds = [sum(delay // 10 == tenth for delay in delays) for tenth in range(6)]
    assert all(900 < many < 1100 for many in per_ten_seconds)


@for_each(
    ("text", "zone", "told"),
    [
        ("30 2 * * *", "Europe/Berlin", "every day at 02:30 (Europe/Berlin)"),
        ("30 2,14 * JAN *", "UTC", "every day in January at 02:30 and 14:30 (UTC)"),
        ("* * * * *", "UTC", "every minute (UTC)"),
        ("@hourly", "UTC", "at the start of every hour (UTC)"),
        ("0 9 * * mon-fri", "Asia/Tokyo", "at 09:00 on Monday through Friday (Asia/Tokyo)"),
        ("0 0 L * *", "UTC", "at 00:00 on the last day of every month (UTC)"),
        ("@every 90s", "UTC", "every 90 seconds"),
        ("@every 1s", "UTC", "every second"),
        ("@every 1m", "UTC", "every minute"),
        ("@every 5m", "UTC", "every 5 minutes"),
        ("@every 90m", "UTC", "every 90 minutes"),
        ("@every 1h", "UTC", "every hour"),
        ("@every 24h", "UTC", "every 24 hours"),
        ("@every 7d", "UTC", "every 7 days"),
        ("@every 1h0.5s", "UTC", "every 3600.5 seconds"),
        ("@every 250ms", "UTC", "every 0.25 seconds"),
        ("@every 1234567s", "UTC", "every 1234567 seconds"),
        ("2026-12-01 08:00", "UTC", "once at 2026-12-01 08:00 UTC"),
        ("2026-12-01 08:00:30", "Asia/Tokyo", "once at 2026-12-01 08:00:30 (Asia/Tokyo)"),
    ],
)
def test_a_schedule_is_told_in_words(text: str, zone: str, told: str) -> None:
    assert schedule_text(parse_when(text, zone)) == told
