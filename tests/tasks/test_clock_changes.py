"""What clock changes do to schedules, against a calculator that knows nothing of how weft works it out.

The calculator walks every minute of UTC around a change, asks the time zone what a wall clock shows, and applies the
written policy word by word. Expressions are given to it as Python conditions, so it reads no cron either.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tests.cases import for_each
from weft.clock import SECOND, moment
from weft.tasks.schedule import Schedule, fires_between, next_fire, parse_when, ticks_of

MINUTE = timedelta(minutes=1)
AROUND = timedelta(days=2)

CHANGES = {
    "Europe/Berlin": ("2024-03-31 01:00", "2024-10-27 01:00"),
    "Europe/Dublin": ("2024-03-31 01:00", "2024-10-27 01:00"),  # winter is the daylight saving time here, negative
    "America/New_York": ("2024-03-10 07:00", "2024-11-03 06:00"),
    "America/St_Johns": ("2024-03-10 05:30", "2024-11-03 04:30"),
    "America/Havana": ("2024-03-10 05:00", "2024-11-03 05:00"),  # 00:00 to 01:00 is skipped, then repeated
    "Atlantic/Azores": ("2024-03-31 01:00", "2024-10-27 01:00"),  # the same
    "Africa/Casablanca": ("2024-04-14 02:00", "2024-03-10 02:00"),  # the end and the beginning of Ramadan
    "Africa/Cairo": ("2024-04-25 22:00", "2024-10-31 21:00"),  # 23:00 to 24:00 is repeated
    "Australia/Lord_Howe": ("2024-10-05 15:30", "2024-04-06 15:00"),  # half an hour
    "Pacific/Chatham": ("2024-09-28 14:00", "2024-04-06 14:00"),  # at 02:45
    "Antarctica/Troll": ("2024-03-31 01:00", "2024-10-27 01:00"),  # two hours
    "Pacific/Apia": ("2011-12-30 10:00", "2012-03-31 14:00"),  # all of 30 December 2011 is skipped
}
BOTH = [(zone, change) for zone, changes in CHANGES.items() for change in changes]

Condition = Callable[[datetime], bool]

FIXED: dict[str, Condition] = {
    "30 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 30),
    "0 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 0),
    "15 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 15),
    "45 1 * * *": lambda wall: (wall.hour, wall.minute) == (1, 45),
    "0,30 2 * * *": lambda wall: wall.hour == 2 and wall.minute in (0, 30),
    "0 3 * * *": lambda wall: (wall.hour, wall.minute) == (3, 0),
    "10-40/5 1-3 * * *": lambda wall: wall.hour in (1, 2, 3) and wall.minute in (10, 15, 20, 25, 30, 35, 40),
    "50 23 * * *": lambda wall: (wall.hour, wall.minute) == (23, 50),
    "30 1,2 * * SUN": lambda wall: wall.hour in (1, 2) and wall.minute == 30 and wall.weekday() == 6,
    "20 0-23 * * *": lambda wall: wall.minute == 20,
    "30 12 30 DEC *": lambda wall: (wall.month, wall.day, wall.hour, wall.minute) == (12, 30, 12, 30),
}
WILDCARD: dict[str, Condition] = {
    "* * * * *": lambda wall: True,
    "*/15 * * * *": lambda wall: wall.minute % 15 == 0,
    "30 * * * *": lambda wall: wall.minute == 30,
    "*/20 2 * * *": lambda wall: wall.hour == 2 and wall.minute % 20 == 0,
    "*/15 3 * * *": lambda wall: wall.hour == 3 and wall.minute % 15 == 0,
    "10 */2 * * *": lambda wall: wall.hour % 2 == 0 and wall.minute == 10,
    "*/10 0-1 * * SUN": lambda wall: wall.hour < 2 and wall.minute % 10 == 0 and wall.weekday() == 6,
}
EXPRESSIONS = (*FIXED, *WILDCARD)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@cache
def minutes_around(zone: str, change: str) -> list[tuple[datetime, datetime]]:
    """Each minute of UTC around the change, and what a wall clock shows then."""
    start, tz = utc(change) - AROUND, ZoneInfo(zone)
    moments = [start + number * MINUTE for number in range(2 * AROUND // MINUTE)]
    return [(at, at.astimezone(tz).replace(tzinfo=None, fold=0)) for at in moments]


@cache
def calculated(zone: str, change: str, expression: str) -> list[datetime]:
    shown = minutes_around(zone, change)
    if condition := WILDCARD.get(expression):
        return [at for at, wall in shown if condition(wall)]
    first_shown = {wall: at for at, wall in reversed(shown)}
    skipped_until = {wall: at for at, wall in after_gaps(shown)}
    walls = [wall for wall in walls_between(shown) if FIXED[expression](wall)]
    return sorted({first_shown.get(wall) or skipped_until[wall] for wall in walls})


def walls_between(shown: list[tuple[datetime, datetime]]) -> list[datetime]:
    """Every minute that a wall clock would show if it were never changed, from the first shown to the last."""
    first, last = shown[0][1], shown[-1][1]
    return [first + number * MINUTE for number in range((last - first) // MINUTE + 1)]


def after_gaps(shown: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Each wall minute that no clock shows, with the moment at which the clock goes on after it."""
    gaps = [(at, before + MINUTE, wall) for (_, before), (at, wall) in pairwise(shown) if wall > before + MINUTE]
    return [(at, gap + number * MINUTE) for at, gap, wall in gaps for number in range((wall - gap) // MINUTE)]


def of_weft(zone: str, change: str, expression: str) -> list[datetime]:
    start, end = moment(utc(change) - AROUND), moment(utc(change) + AROUND)
    fires = fires_between(Schedule(cron=expression, zone=zone), start, end, 10_000)
    return [datetime.fromtimestamp(fire // SECOND, UTC) for fire in fires]


@for_each(("zone", "change"), BOTH)
def test_the_clock_changes_where_the_table_says(zone: str, change: str) -> None:
    before, after = (utc(change) + shift for shift in (-MINUTE, timedelta()))
    assert before.astimezone(ZoneInfo(zone)).utcoffset() != after.astimezone(ZoneInfo(zone)).utcoffset()


@for_each(("zone", "change"), BOTH)
def test_ticks_around_a_clock_change_are_those_of_the_calculator(zone: str, change: str) -> None:
    for expression in EXPRESSIONS:
        assert of_weft(zone, change, expression) == calculated(zone, change, expression), expression


@for_each(("zone", "change"), BOTH)
def test_walking_back_and_counting_agree_with_walking_on(zone: str, change: str) -> None:
    for expression in EXPRESSIONS:
        walk_and_count(zone, change, expression)


def walk_and_count(zone: str, change: str, expression: str) -> None:
    all_ticks = ticks_of(Schedule(cron=expression, zone=zone))
    start, end = moment(utc(change) - AROUND), moment(utc(change) + AROUND)
    expected = [moment(at) for at in calculated(zone, change, expression)]
    backward = []
    for tick in all_ticks.backward(end - 1):
        if tick < start:
            break
        backward.append(tick)
    assert backward[::-1] == expected, expression
    assert all_ticks.count(start, end) == len(expected), expression
    middle = moment(utc(change))
    for cut in (middle - 1, middle, middle + 1, middle + 1800 * SECOND, middle - 1800 * SECOND):
        assert all_ticks.count(start, cut) == sum(tick < cut for tick in expected), expression


@for_each(("zone", "change"), BOTH)
def test_asking_at_any_minute_gives_the_first_tick_after_it(zone: str, change: str) -> None:
    for expression in EXPRESSIONS:
        ask_at_many_minutes(zone, change, expression)


def ask_at_many_minutes(zone: str, change: str, expression: str) -> None:
    expected = [moment(at) for at in calculated(zone, change, expression)]
    schedule = Schedule(cron=expression, zone=zone)
    for number in range(-40, 40):
        after = moment(utc(change) + number * timedelta(minutes=7))
        following = [tick for tick in expected if tick > after]
        if following:
            assert next_fire(schedule, after) == following[0], expression


BY_HAND = [
    ("Europe/Berlin", "30 2 * * *", "2024-03-30T12:00Z", ["2024-03-31T03:00+02:00", "2024-04-01T02:30+02:00"]),
    ("Europe/Berlin", "30 2 * * *", "2024-10-26T12:00Z", ["2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"]),
    ("Europe/Berlin", "0,30 2 * * *", "2024-03-30T12:00Z", ["2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"]),
    ("Europe/Berlin", "0 2,3 * * *", "2024-03-30T12:00Z", ["2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"]),
    ("Europe/Berlin", "30 * * * *", "2024-03-31T00:00Z", ["2024-03-31T01:30+01:00", "2024-03-31T03:30+02:00"]),
    ("Europe/Berlin", "30 * * * *", "2024-10-27T00:00Z", ["2024-10-27T02:30+02:00", "2024-10-27T02:30+01:00"]),
    ("Europe/Berlin", "*/30 2 * * *", "2024-03-30T12:00Z", ["2024-04-01T02:00+02:00", "2024-04-01T02:30+02:00"]),
    ("Europe/Berlin", "30 2 * * *", "2024-10-27T01:10Z", ["2024-10-28T02:30+01:00", "2024-10-29T02:30+01:00"]),
    ("America/New_York", "30 1 * * *", "2024-11-03T00:00Z", ["2024-11-03T01:30-04:00", "2024-11-04T01:30-05:00"]),
    ("Atlantic/Azores", "0 0 * * *", "2024-03-30T12:00Z", ["2024-03-31T01:00+00:00", "2024-04-01T00:00+00:00"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05T12:00Z", ["2024-10-06T02:30+11:00", "2024-10-07T02:15+11:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2024-04-06T12:00Z", ["2024-04-07T01:45+11:00", "2024-04-08T01:45+10:30"]),
    ("Australia/Lord_Howe", "*/15 3 * * *", "2024-10-05T12:00Z", ["2024-10-06T03:00+11:00", "2024-10-06T03:15+11:00"]),
    ("Pacific/Apia", "30 12 * * *", "2011-12-29T00:00Z", ["2011-12-29T12:30-10:00", "2011-12-31T00:00+14:00"]),
    ("Pacific/Apia", "@hourly", "2011-12-30T08:30Z", ["2011-12-29T23:00-10:00", "2011-12-31T00:00+14:00"]),
    ("Europe/Dublin", "30 1 * * *", "2024-03-30T12:00Z", ["2024-03-31T02:00+01:00", "2024-04-01T01:30+01:00"]),
    ("Africa/Casablanca", "30 2 * * *", "2024-03-09T12:00Z", ["2024-03-10T02:30+01:00", "2024-03-11T02:30+00:00"]),
    ("UTC", "0 0 29 2 *", "2024-03-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
    ("UTC", "0 0 29 2 *", "2096-03-01T00:00Z", ["2104-02-29T00:00Z", "2108-02-29T00:00Z"]),
    ("UTC", "0 0 L * *", "2024-02-01T00:00Z", ["2024-02-29T00:00Z", "2024-03-31T00:00Z"]),
]


@for_each(("zone", "text", "after", "expected"), BY_HAND)
def test_ticks_are_those_worked_out_by_hand(zone: str, text: str, after: str, expected: list[str]) -> None:
    schedule = parse_when(text, zone)
    first = next_fire(schedule, moment(datetime.fromisoformat(after)))
    assert first is not None
    assert [first, next_fire(schedule, first)] == [moment(datetime.fromisoformat(text)) for text in expected]


@for_each(("zone", "change"), BOTH)
def test_an_interval_follows_elapsed_time_through_a_clock_change(zone: str, change: str) -> None:
    start, end = moment(utc(change) - AROUND), moment(utc(change) + AROUND)
    fires = fires_between(Schedule(every_seconds=5400, zone=zone), start, end, 1000)
    assert {later - sooner for sooner, later in pairwise(fires)} == {5400 * SECOND}
    assert len(fires) == 64


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31T01:00Z"),
        ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27T00:30Z"),
        ("Australia/Lord_Howe", "2024-10-06T02:10", "2024-10-05T15:30Z"),
        ("Pacific/Apia", "2011-12-30 18:00", "2011-12-30T10:00Z"),
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00Z"),
    ],
)
def test_a_skipped_date_is_the_end_of_the_gap_and_a_repeated_one_the_first(zone: str, text: str, expected: str) -> None:
    assert parse_when(text, zone).once_at == moment(datetime.fromisoformat(expected))
