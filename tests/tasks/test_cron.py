"""Which expressions are cron, what is said about the others, and that ticks match their fields."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.clock import SECOND, Moment
from weft.errors import Invalid
from weft.tasks import cron
from weft.tasks.model import schedule_text
from weft.tasks.schedule import Schedule, next_fires, ticks_of
from weft.tasks.timezones import periods_of_year, wall_clock

REFUSED = [
    ("", "five fields"),
    ("* * * *", "this has 4"),
    ("0 * * * * *", "this has 6"),
    ("60 * * * *", "the minute field of the cron expression is '60'; it takes numbers from 0 to 59"),
    ("* 24 * * *", "the hour field of the cron expression is '24'; it takes numbers from 0 to 23"),
    ("* * 0 * *", "the day of month field of the cron expression is '0'; it takes numbers from 1 to 31"),
    ("* * * 13 *", "the month field of the cron expression is '13'; it takes numbers from 1 to 12 or JAN to DEC"),
    ("* * * * 8", "the day of week field of the cron expression is '8'; it takes 0 to 7"),
    ("5-1 * * * *", "the minute field of the cron expression is '5-1'; a range goes from the lower to the higher"),
    ("* * * * FRI-SUN", "a range goes from the lower to the higher"),
    ("*/0 * * * *", "a step is a number from 1 to 59"),
    ("*/90 * * * *", "a step is a number from 1 to 59"),
    ("*/ * * * *", "a step is a number from 1 to 59"),
    ("*/-5 * * * *", "a step is a number from 1 to 59"),
    ("0 0 L/2 * *", "a step is a number from 1 to 31"),
    ("1,,2 * * * *", "the minute field"),
    ("1- * * * *", "the minute field"),
    ("R R * * *", "the minute field of the cron expression is 'R'"),
    ("? * * * *", "the minute field of the cron expression is '?'"),
    ("* * * MAI *", "the month field of the cron expression is 'MAI'"),
    ("* * * * MOON", "the day of week field of the cron expression is 'MOON'"),
    ("* * * * MON#6", "the day of week field of the cron expression is 'MON#6'"),
    ("５ * * * *", "plain ASCII"),
    ("* * * * *\n", "plain ASCII on one line"),
    ("0 0 30 2 *", "no month of it has such a day"),
    ("0 0 31 4,6,9,11 *", "no month of it has such a day"),
    ("0 0 30-31 FEB *", "no month of it has such a day"),
    ("1" * 1001, "at most 1000 characters"),
    ("9" * 900 + " * * * *", "the minute field"),
]


@for_each(("expression", "said"), REFUSED)
def test_a_wrong_expression_is_refused_with_its_field_and_what_is_allowed(expression: str, said: str) -> None:
    with pytest.raises(Invalid) as refusal:
        cron.parse(expression)
    assert said in str(refusal.value)


@pytest.mark.parametrize("nothing", [None, 5, ["* * * * *"], b"* * * * *"])
def test_what_is_not_text_is_refused(nothing: object) -> None:
    with pytest.raises(Invalid):
        cron.parse(nothing)  # type: ignore[arg-type]


@for_each(
    "expression",
    [
        "* * * * *",
        "*/5 * * * *",
        "5/10 * * * *",
        "0,15,30-40/2 8-17 1-15 jan-MAR mon-FRI",
        "0 0 L * *",
        "0 0 LW JUL *",
        "0 0 * JUL/2 *",
        "0 0 * * 5L",
        "0 0 * * MON#2",
        "0 0 29 2 *",
        "0 0 31 4 MON",
        "  0\t0  1 1 *  ",
        "0 0 * * 7",
    ],
)
def test_an_expression_that_can_tick_is_accepted_and_ticks(expression: str) -> None:
    assert len(next_fires(Schedule(cron=expression), 0, 3)) == 3


def test_a_day_must_match_both_day_fields_only_where_one_starts_with_a_star() -> None:
    either = next_fires(Schedule(cron="0 0 13 * FRI"), START, 3)
    both = next_fires(Schedule(cron="0 0 */13 * FRI"), START, 3)
    assert [day(at) for at in either] == ["2024-01-05", "2024-01-12", "2024-01-13"]
    assert [day(at) for at in both] == ["2024-03-01", "2024-06-14", "2024-09-27"]


START: Moment = 1_704_067_200 * SECOND
"""2024-01-01 00:00 UTC, a Monday."""


def day(at: Moment) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d")


def field(low: int, high: int, names: list[str], extras: list[str]) -> st.SearchStrategy[str]:
    """Texts of one cron field, most of them right."""
    value = st.integers(low, high)
    shown = value.map(str) | (st.sampled_from(names) if names else st.nothing())
    span = st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high)
    term = st.one_of(
        st.just("*"),
        shown,
        span,
        step.map(lambda size: f"*/{size}"),
        st.tuples(span, step).map(lambda pair: f"{pair[0]}/{pair[1]}"),
        *([st.sampled_from(extras)] if extras else []),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join)


MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
EXPRESSIONS = st.tuples(
    field(0, 59, [], []),
    field(0, 23, [], []),
    field(1, 31, [], ["L", "LW"]),
    field(1, 12, MONTHS, []),
    field(0, 7, DAYS, ["5L", "MON#2", "3#5"]),
).map(" ".join)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Atlantic/Azores", "America/Havana", "Pacific/Apia", "Africa/Cairo"]
)
MOMENTS = st.integers(1_262_304_000, 2_208_988_800).map(lambda second: second * SECOND)
"""From 2010 to 2040."""


def accepted(expression: str) -> bool:
    """True for each expression that the strategy makes, but for dates that no year has."""
    said = refusal_of(expression)
    assert said is None or "no month of it has such a day" in said
    return said is None


def refusal_of(expression: str) -> str | None:
    try:
        cron.parse(expression)
    except Invalid as refusal:
        return str(refusal)
    return None


@settings(deadline=None, max_examples=200)
@given(EXPRESSIONS, MOMENTS)
def test_in_utc_ticks_are_those_of_cronsim(expression: str, after: Moment) -> None:
    if accepted(expression):
        reference = CronSim(expression, datetime.fromtimestamp(after // SECOND, UTC))
        expected = [int(at.timestamp()) * SECOND for at in islice(reference, 5)]
        assert next_fires(Schedule(cron=expression), after, 5) == expected


@settings(deadline=None, max_examples=200)
@given(EXPRESSIONS, ZONES, MOMENTS)
def test_ticks_rise_and_each_matches_its_fields_or_ends_a_gap(expression: str, zone: str, after: Moment) -> None:
    if accepted(expression):
        fires = next_fires(Schedule(cron=expression, zone=zone), after, 20)
        assert all(sooner < later for sooner, later in pairwise([after, *fires]))
        assert all(matches(expression, zone, fire) or ends_gap(zone, fire) for fire in fires)


def matches(expression: str, zone: str, fire: Moment) -> bool:
    wall = wall_clock(zone, fire // SECOND)
    rule = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    on_day = wall.month in rule.months and rule.match_day(wall.date())
    return on_day and wall.hour in rule.hours and wall.minute in rule.minutes and wall.second == 0


def ends_gap(zone: str, fire: Moment) -> bool:
    year = datetime.fromtimestamp(fire // SECOND, UTC).year
    return any(
        stretch.start * SECOND == fire and stretch.before < stretch.offset for stretch in periods_of_year(zone, year)
    )


@settings(deadline=None, max_examples=200)
@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(0, 400 * 86_400))
def test_counting_is_the_same_as_walking(expression: str, zone: str, start: Moment, length: int) -> None:
    if accepted(expression):
        all_ticks = ticks_of(Schedule(cron=expression, zone=zone))
        walked = list(islice(all_ticks.onward(start), 200))
        end = min([start + length * SECOND, *walked[-1:]])
        expected = [tick for tick in walked if tick < end]
        assert all_ticks.count(start, end) == len(expected)
        assert list(islice(all_ticks.backward(end - 1), len(expected)))[::-1] == expected


@settings(deadline=None)
@given(EXPRESSIONS, ZONES)
def test_every_accepted_expression_has_a_sentence(expression: str, zone: str) -> None:
    if accepted(expression):
        assert schedule_text(Schedule(cron=expression, zone=zone)).endswith(f"({zone})")


@settings(max_examples=500)
@given(st.text(alphabet=st.sampled_from("0123456789*/-,#LW MONJAN@?\t５é")) | st.text())
def test_any_text_is_a_cron_expression_or_invalid(text: str) -> None:
    try:
        found = cron.parse(text)
    except Invalid:
        return
    assert found.first(0) is not None
