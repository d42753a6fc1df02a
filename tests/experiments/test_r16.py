"""The reduced form of R16 passes, and fails as soon as nobody mends what waits when the clock is set back."""

import pytest

from experiments import r16

pytestmark = pytest.mark.timeout(300)


async def test_schedules_go_on_within_one_interval_after_any_step_of_the_clock() -> None:
    report = await r16.experiment()
    assert report.passed, str(report)
    assert report.total.ok > len(r16.STEPS), str(report)


@pytest.mark.red_control("r16")
async def test_schedules_that_nobody_mends_are_found_to_stand_still() -> None:
    report = await r16.experiment(red=True)
    assert f"interval did not fire after the clock was set by {-r16.YEARS} s" in report.verdict, str(report)
