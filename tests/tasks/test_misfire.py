"""What fires after an outage or a jump of the clock, to the exact tick."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.clock import SECOND, Moment
from weft.tasks.schedule import Schedule, fires_between, next_fire
from weft.tasks.scheduler import DueTicks, due_ticks

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
MIDNIGHT: Moment = 1_780_272_000 * SECOND
"""2026-06-01 00:00 UTC."""
TICK = MIDNIGHT + 12 * HOUR


def hourly(**settings: Any) -> Schedule:
    return Schedule(cron="0 * * * *", **settings)


def test_a_tick_on_time_fires_and_the_next_is_waited_for() -> None:
    assert due_ticks(hourly(), TICK, TICK) == DueTicks(fire=(TICK,), next=TICK + HOUR)


@pytest.mark.parametrize("policy", ["skip", "once", "all"])
def test_late_by_less_than_the_grace_is_not_a_misfire(policy: Any) -> None:
    assert due_ticks(hourly(misfire=policy), TICK, TICK + MINUTE - 1).fire == (TICK,)


def test_late_by_the_grace_is_a_misfire() -> None:
    missed = DueTicks(missed=1, missed_first=TICK, missed_last=TICK, next=TICK + HOUR)
    assert due_ticks(hourly(misfire="skip"), TICK, TICK + MINUTE) == missed


def test_nothing_is_due_before_its_time() -> None:
    assert due_ticks(hourly(), TICK, TICK - 1) == DueTicks(next=TICK)


@pytest.mark.parametrize("back", [SECOND, 3 * HOUR])
def test_a_clock_set_back_fires_nothing_again(back: Moment) -> None:
    first = due_ticks(hourly(), TICK, TICK + 5 * SECOND)
    assert first.next is not None
    set_back = due_ticks(hourly(), first.next, TICK + 5 * SECOND - back)
    assert set_back == DueTicks(next=first.next)
    assert due_ticks(hourly(), first.next, first.next).fire == (TICK + HOUR,)


def test_a_clock_set_on_by_a_second_fires_the_tick_once() -> None:
    assert due_ticks(hourly(), TICK, TICK + SECOND) == DueTicks(fire=(TICK,), next=TICK + HOUR)


JUMPS = [
    # policy, jump, how many fire, how many are missed
    ("skip", 3 * HOUR, 1, 3),
    ("once", 3 * HOUR, 1, 3),
    ("all", 3 * HOUR, 4, 0),
    ("skip", 3 * HOUR + 10 * MINUTE, 0, 4),
    ("once", 3 * HOUR + 10 * MINUTE, 1, 3),
    ("all", 3 * HOUR + 10 * MINUTE, 4, 0),
    ("skip", 40 * DAY + 10 * MINUTE, 0, 961),
    ("once", 40 * DAY + 10 * MINUTE, 1, 960),
    ("all", 40 * DAY + 10 * MINUTE, 24, 937),
]


@for_each(("policy", "jump", "fire", "missed"), JUMPS)
def test_a_clock_set_far_on_applies_the_policy(policy: Any, jump: Moment, fire: int, missed: int) -> None:
    now = TICK + jump
    latest = now - now % HOUR
    decision = due_ticks(hourly(misfire=policy), TICK, now)
    assert decision.fire == tuple(latest - number * HOUR for number in reversed(range(fire)))
    assert decision.missed == missed
    assert decision.missed_first == (TICK if missed else None)
    assert decision.missed_last == (latest - fire * HOUR if missed else None)
    assert decision.next == latest + HOUR


OUTAGES = [
    # every, policy, outage, how many fire, how many are missed
    (1, "skip", 10 * SECOND, 11, 0),
    (1, "once", 10 * SECOND, 11, 0),
    (1, "all", 10 * SECOND, 11, 0),
    (1, "skip", 10 * MINUTE, 60, 541),
    (1, "once", 10 * MINUTE, 60, 541),
    (1, "all", 10 * MINUTE, 100, 501),
    (1, "skip", 3 * DAY, 60, 259_141),
    (1, "all", 40 * DAY, 100, 3_455_901),
    (90, "skip", 3 * DAY + 75 * SECOND, 0, 2881),
    (90, "once", 3 * DAY + 75 * SECOND, 1, 2880),
    (90, "all", 3 * DAY + 75 * SECOND, 100, 2781),
]


@for_each(("every", "policy", "outage", "fire", "missed"), OUTAGES)
def test_after_an_outage_of_an_interval_the_counts_are_exact(
    every: int, policy: Any, outage: Moment, fire: int, missed: int
) -> None:
    decision = due_ticks(Schedule(every_seconds=every, misfire=policy), TICK, TICK + outage)
    assert (len(decision.fire), decision.missed) == (fire, missed)
    assert decision.fire == tuple(sorted(decision.fire))


def test_a_late_tick_outside_the_window_never_fires() -> None:
    weekly = Schedule(cron="0 12 * * MON", misfire="once", catch_up_seconds=3600)
    assert due_ticks(weekly, TICK, TICK + HOUR).fire == (TICK,)
    late = due_ticks(weekly, TICK, TICK + HOUR + 1)
    assert (late.fire, late.missed, late.next) == ((), 1, TICK + 7 * DAY)


def test_the_window_does_not_hold_back_ticks_on_time() -> None:
    assert due_ticks(hourly(misfire="all", catch_up_seconds=0), TICK, TICK + 30 * SECOND).fire == (TICK,)


def test_no_more_than_the_cap_fire_at_once_and_they_are_the_newest() -> None:
    decision = due_ticks(hourly(misfire="all", catch_up_cap=3), TICK, TICK + 6 * HOUR)
    assert decision.fire == (TICK + 4 * HOUR, TICK + 5 * HOUR, TICK + 6 * HOUR)
    assert (decision.missed, decision.missed_first, decision.missed_last) == (4, TICK, TICK + 3 * HOUR)


@pytest.mark.parametrize(("policy", "fire"), [("skip", ()), ("once", (TICK,)), ("all", (TICK,))])
def test_one_date_that_was_slept_through_follows_the_policy(policy: Any, fire: tuple[Moment, ...]) -> None:
    decision = due_ticks(Schedule(once_at=TICK, misfire=policy), TICK, TICK + 2 * HOUR)
    assert (decision.fire, decision.missed, decision.next) == (fire, 1 - len(fire), None)


@pytest.mark.parametrize("text", ["* * * * *", "*/7 1-20 * * MON-FRI"])
def test_a_long_outage_of_cron_costs_no_more_than_a_short_one(text: str) -> None:
    schedule = Schedule(cron=text, zone="Europe/Berlin", misfire="all")
    stored = next_fire(schedule, TICK)
    assert stored is not None
    due_ticks(schedule, stored, stored + 3000 * DAY)
    started = time.process_time()
    decision = due_ticks(schedule, stored, stored + 3000 * DAY)
    assert time.process_time() - started < 0.1  # walking the ticks of eight years takes several seconds
    assert decision.missed > 300_000


@settings(deadline=None)
@given(
    st.sampled_from(["0 * * * *", "*/10 * * * *", "30 2 * * *", "15 1-3 * * SUN", "5"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.sampled_from(["skip", "once", "all"]),
    st.integers(0, 60 * DAY),
    st.integers(-HOUR, 40 * DAY),
)
def test_every_tick_of_an_outage_fires_or_is_missed(
    text: str, zone: str, policy: Any, since: Moment, outage: Moment
) -> None:
    kind: dict[str, Any] = {"every_seconds": 700} if text == "5" else {"cron": text}
    schedule = Schedule(zone=zone, misfire=policy, **kind)
    stored = next_fire(schedule, MIDNIGHT + 130 * DAY + since)
    assert stored is not None
    now = stored + outage
    decision = due_ticks(schedule, stored, now)
    every_tick = fires_between(schedule, stored, now + 1, 100_000)
    missed = every_tick[: len(every_tick) - len(decision.fire)]
    assert [*missed, *decision.fire] == every_tick
    assert decision.missed == len(missed)
    assert decision.missed_first == (missed[0] if missed else None)
    assert decision.missed_last == (missed[-1] if missed else None)
    assert decision.next == (next_fire(schedule, now) if now >= stored else stored)
