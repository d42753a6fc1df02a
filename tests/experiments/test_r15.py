"""What R15 calls late: with a fault, without one, and where a fault meets a tick that waits."""

from __future__ import annotations

import pytest

from experiments.r15 import SPEED, START, _judge_delays
from experiments.report import Report
from weft.clock import Moment, seconds


def at(real_seconds: float) -> Moment:
    return START + seconds(real_seconds * SPEED)


FAULT = (at(10), at(14))


@pytest.mark.parametrize(
    ("due", "delay", "problem"),
    [
        (5.0, 1.9, ""),
        (5.0, 2.1, "ticks were late by 2.10 s (p99), 2 s are allowed"),
        (9.5, 3.0, ""),  # half a second late when the fault came
        (7.5, 3.0, "ticks were late by 2.50 s (p99), 2 s are allowed"),
        (9.5, 16.0, "a fault delayed a tick by 16.0 s, 15 s are allowed"),
        (11.0, 3.0, ""),
        (11.0, 16.0, "a fault delayed a tick by 16.0 s, 15 s are allowed"),
        (15.0, 2.1, "ticks were late by 2.10 s (p99), 2 s are allowed"),
    ],
)
def test_a_tick_is_late_by_what_it_waited_without_a_fault(due: float, delay: float, problem: str) -> None:
    report = Report("R15")
    _judge_delays(report, "SQLite", [(at(due), delay)] * 100, [FAULT])
    assert [each.removeprefix("SQLite: ") for each in report.problems] == ([problem] if problem else [])
