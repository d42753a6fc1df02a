"""The reduced form of R06 passes, and fails as soon as nobody ends what a dead worker had started."""

import pytest

from experiments import r06

pytestmark = pytest.mark.timeout(600)


async def test_the_runs_of_a_killed_worker_go_on_and_nothing_of_it_runs() -> None:
    report = await r06.experiment()
    assert report.passed, str(report)
    assert report.total.kills == 5, str(report)


@pytest.mark.red_control("r06")
async def test_spiders_that_outlive_their_worker_are_found() -> None:
    report = await r06.experiment(red=True)
    assert "attempts ran that nobody held" in report.verdict, str(report)
    assert "processes of a dead worker ran for" in report.verdict, str(report)
