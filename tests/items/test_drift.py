"""What is said to be unusual about a run, and what is not."""

from __future__ import annotations

from typing import Any

from weft.spiders.baseline import RunProfile, detect_drift


def profile(**changes: Any) -> RunProfile:
    usual: dict[str, Any] = {"items": 100, "seconds": 10.0, "errors": 0, "fields": {"name": 1.0, "price": 0.9}}
    return RunProfile(**usual | {"statuses": {"200": 1.0}} | changes)


USUAL = [profile(items=count) for count in (100, 95, 104, 98)]


def marks(now: RunProfile, before: list[RunProfile] = USUAL) -> dict[str, str]:
    return {mark.what: mark.text for mark in detect_drift(now, before)}


def test_a_run_like_the_others_is_not_marked() -> None:
    assert marks(profile(items=97, seconds=11.0)) == {}


def test_a_run_with_far_fewer_items_is_marked_with_what_was_usual() -> None:
    assert marks(profile(items=12)) == {"items": "12 items; the last 4 runs had 95 to 104"}


def test_a_run_without_items_is_marked_by_its_items_and_not_by_its_fields() -> None:
    assert list(marks(profile(items=0, fields={}))) == ["items"]


def test_a_run_that_is_a_little_outside_is_not_marked() -> None:
    assert marks(profile(items=110)) == {}


def test_a_spider_whose_counts_vary_is_not_marked_within_its_range() -> None:
    assert marks(profile(items=30), [profile(items=count) for count in (10, 200, 90)]) == {}


def test_a_field_that_is_suddenly_empty_is_marked_by_name() -> None:
    found = marks(profile(fields={"name": 1.0, "price": 0.1}))
    assert found == {"field:price": "10% of the items have price; before it was 90%"}


def test_a_field_that_is_gone_and_one_that_is_new_are_both_marked() -> None:
    assert list(marks(profile(fields={"name": 1.0, "cost": 0.9}))) == ["field:cost", "field:price"]


def test_a_run_that_took_three_times_as_long_is_marked() -> None:
    assert "duration" in marks(profile(seconds=30.0))


def test_a_fraction_of_a_second_is_no_drift() -> None:
    assert marks(profile(seconds=0.9), [profile(seconds=0.1) for _ in range(5)]) == {}


def test_answers_with_another_status_are_marked() -> None:
    assert list(marks(profile(statuses={"200": 0.4, "403": 0.6}))) == ["status:200", "status:403"]


def test_many_more_errors_are_marked_and_a_few_are_not() -> None:
    assert marks(profile(errors=3)) == {}
    assert list(marks(profile(errors=40))) == ["errors"]


def test_nothing_is_said_where_too_few_runs_are_known() -> None:
    assert marks(profile(items=0), USUAL[:2]) == {}
