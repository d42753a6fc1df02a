"""The reduced form of R07 passes, and fails as soon as a retry does not ask whether the run was cancelled."""

import pytest

from experiments import r07

pytestmark = pytest.mark.timeout(600)


async def test_what_is_cancelled_in_any_state_ends_and_never_begins_again() -> None:
    report = await r07.experiment()
    assert report.passed, str(report)
    assert report.total.attempted == r07.REDUCED.cancels, str(report)


@pytest.mark.red_control("r07")
async def test_runs_that_are_tried_again_after_their_cancel_are_found() -> None:
    report = await r07.experiment(red=True)
    assert "began again after their cancel" in report.verdict, str(report)
