"""The reduced form of R31 passes, and fails as soon as nobody watches what runs use."""

import pytest

from experiments import r31
from experiments.misbehaving import ROGUES
from weft.runs.model import LIMITS

pytestmark = pytest.mark.timeout(600)


async def test_a_bad_spider_harms_only_itself() -> None:
    report = await r31.experiment()
    assert report.passed, str(report)
    assert report.total.ok >= len(ROGUES), str(report)


@pytest.mark.red_control("r31")
async def test_runs_that_nobody_watches_are_found_to_go_on_and_to_leave_processes_behind() -> None:
    report = await r31.experiment(red=True)
    assert report.total.unknown > 0, str(report)
    assert "left behind are" in report.verdict, str(report)


def test_every_limit_of_a_run_has_a_spider_that_meets_it() -> None:
    assert {rogue.outcome for rogue in ROGUES} >= set(LIMITS)
