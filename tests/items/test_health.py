"""How well a spider does, from what its newest runs came to."""

from __future__ import annotations

import pytest

from weft.spiders.baseline import HealthStatus, RunResult, failures_in_a_row, health_of, runs_without_items, worst

GOOD, EMPTY, BAD, OTHER = (
    RunResult("succeeded", 5),
    RunResult("succeeded", 0),
    RunResult("failed", 0),
    RunResult("cancelled", 0),
)
UNKNOWN = RunResult("succeeded", None)


@pytest.mark.parametrize(
    ("newest_first", "health"),
    [
        ([], HealthStatus.UNKNOWN),
        ([OTHER, RunResult("running", 3)], HealthStatus.UNKNOWN),
        ([GOOD], HealthStatus.HEALTHY),
        ([BAD], HealthStatus.FAILING),
        ([BAD] * 8, HealthStatus.FAILING),
        ([BAD] * 3 + [GOOD] * 17, HealthStatus.FAILING),
        ([GOOD, BAD, BAD, GOOD, BAD], HealthStatus.FAILING),
        ([BAD, GOOD, GOOD], HealthStatus.FLAKY),
        ([GOOD] * 20 + [BAD] * 20, HealthStatus.HEALTHY),
        ([EMPTY] * 15, HealthStatus.NO_ITEMS),
        ([EMPTY, EMPTY, GOOD], HealthStatus.HEALTHY),
        ([EMPTY, BAD, EMPTY, EMPTY, GOOD], HealthStatus.NO_ITEMS),
        ([UNKNOWN] * 15, HealthStatus.HEALTHY),
    ],
)
def test_health_is_told_by_the_newest_runs_that_ended(newest_first: list[RunResult], health: HealthStatus) -> None:
    assert health_of(newest_first) is health


def test_a_whole_is_as_well_as_its_worst_part() -> None:
    assert worst([HealthStatus.HEALTHY, HealthStatus.NO_ITEMS, HealthStatus.FLAKY]) is HealthStatus.NO_ITEMS
    assert worst([HealthStatus.UNKNOWN, HealthStatus.HEALTHY]) is HealthStatus.HEALTHY
    assert worst([]) is HealthStatus.UNKNOWN


def test_what_comes_in_a_row_is_counted_from_the_newest() -> None:
    assert failures_in_a_row([BAD, BAD, GOOD, BAD]) == 2
    assert runs_without_items([BAD, EMPTY, BAD, EMPTY, GOOD, EMPTY]) == 2
