"""The reduced form of each experiment passes, and fails as soon as the protection that it is about is switched off."""

import pytest

from experiments import r30
from experiments.report import Report

pytestmark = pytest.mark.timeout(300)


def assert_passed(report: Report) -> None:
    assert report.passed, str(report)


@pytest.mark.alone
async def test_ten_times_too_much_from_one_tenant_is_refused_and_the_others_hardly_notice() -> None:
    assert_passed(await r30.experiment())


@pytest.mark.red_control("r30")
async def test_a_gateway_without_limits_is_found_to_take_more_than_it_may() -> None:
    report = await r30.experiment(red=True)
    assert "runs of greedy waited at once" in report.verdict, str(report)
    assert "nothing was refused" in report.verdict, str(report)
