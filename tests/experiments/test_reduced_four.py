"""The reduced form of each experiment passes, and fails as soon as the protection that it is about is switched off."""

import os

import pytest

from experiments import link, r25
from experiments.report import Report

pytestmark = pytest.mark.timeout(600)

with_a_network_of_its_own = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="only root may make a network namespace"
)


def assert_passed(report: Report) -> None:
    assert report.passed, str(report)


@with_a_network_of_its_own
async def test_a_worker_whose_link_is_cut_20_times_loses_nothing() -> None:
    report = await link.experiment()
    assert_passed(report)
    assert report.total.kills == 20, str(report)


@with_a_network_of_its_own
@pytest.mark.red_control("link")
async def test_a_worker_that_tells_each_thing_once_is_found_to_lose_logs() -> None:
    report = await link.experiment(red=True)
    assert "runs are not whole" in report.verdict, str(report)


async def test_what_is_slow_or_silent_is_handled_like_what_is_down() -> None:
    report = await r25.experiment()
    assert_passed(report)
    assert report.total.kills == 7, str(report)


@pytest.mark.red_control("r25")
async def test_transactions_without_a_deadline_are_found_to_wait_for_ever() -> None:
    report = await r25.experiment(red=True)
    assert "calls have not ended" in report.verdict, str(report)
