"""How fast a crawl is said to be: by what runs, and has told of itself lately."""

from __future__ import annotations

from typing import Any

from tests.conftest import SetClock
from weft.clock import SECOND, Moment
from weft.crawls import crawls
from weft.crawls.model import CrawlPartition
from weft.items.model import TimelineSample

BEGAN: Moment = SetClock().now


def partition(run_id: int = 7, attempt: int = 1, state: str = "running", began: float = 0.0) -> CrawlPartition:
    nothing: dict[str, Any] = {"worker": "w1", "finished_at": None, "outcome": None, "reason": None}
    return CrawlPartition(run_id=run_id, attempt=attempt, state=state, started_at=at(began), **nothing)


def at(seconds: float) -> Moment:
    return BEGAN + round(seconds * SECOND)


def told(*samples: tuple[float, int]) -> list[TimelineSample]:
    return [TimelineSample(at(seconds), 0, requests, 0, 0) for seconds, requests in samples]


STEADY = told((0, 0), (10, 100), (20, 300))


def test_the_speed_is_that_of_the_last_seconds_of_all_who_run() -> None:
    partitions, courses = [partition(), partition(8)], {(7, 1): STEADY, (8, 1): told((0, 0), (10, 50))}
    assert crawls.current_throughput(partitions, courses, at(20)) == 20.0 + 5.0


def test_what_has_just_begun_is_as_fast_as_it_was_since_then() -> None:
    assert crawls.current_throughput([partition(began=1)], {(7, 1): told((5, 40))}, at(6)) == 10.0
    assert crawls.current_throughput([partition()], {}, at(6)) == 0.0


def test_an_attempt_that_is_gone_adds_nothing() -> None:
    courses = {(7, 1): STEADY, (7, 2): told((30, 0), (40, 50))}
    assert crawls.current_throughput([partition(attempt=2, began=30)], courses, at(41)) == 5.0


def test_a_run_that_waits_or_has_told_nothing_for_long_is_not_fast() -> None:
    assert crawls.current_throughput([partition(state="queued")], {(7, 1): STEADY}, at(21)) == 0.0
    assert crawls.current_throughput([partition()], {(7, 1): STEADY}, at(20) + crawls.SILENT_AFTER) == 20.0
    assert crawls.current_throughput([partition()], {(7, 1): STEADY}, at(20) + crawls.SILENT_AFTER + 1) == 0.0


def test_what_nobody_has_told_yet_is_no_standstill_on_the_chart_until_it_lasts() -> None:
    assert crawls.measured_until([STEADY, told((5, 1))], at(29)) == at(20)
    assert crawls.measured_until([STEADY], at(60)) == at(60)
    assert crawls.measured_until([], at(60)) == at(60)


def test_pages_between_two_samples_are_spread_evenly_over_their_time() -> None:
    beats = crawls.throughput_over_time([STEADY], at(0), at(40), points=4)
    assert [(beat.at - BEGAN, beat.pages_per_second) for beat in beats] == [
        (0, 10.0),
        (10 * SECOND, 20.0),
        (20 * SECOND, 0.0),
        (30 * SECOND, 0.0),
    ]
