"""The reduced form of R13 passes, and fails as soon as items are struck off before they have arrived."""

import pytest

from experiments import r13

pytestmark = pytest.mark.timeout(600)


async def test_every_place_has_what_the_store_has() -> None:
    report = await r13.experiment()
    assert report.passed, str(report)
    assert len(report.scenes) == 3, str(report)


@pytest.mark.red_control("r13")
async def test_items_that_are_struck_off_too_early_are_missed() -> None:
    report = await r13.experiment(red=True)
    assert " lost" in report.verdict, str(report)
