"""The reduced form of R22 passes, and fails as soon as nobody looks for traps."""

import pytest

from experiments import r22

pytestmark = pytest.mark.timeout(300)


async def test_traps_end() -> None:
    report = await r22.experiment()
    assert report.passed, str(report)
    assert report.total.ok == len(r22.TRAPS), str(report)


@pytest.mark.red_control("r22")
async def test_a_crawler_that_looks_away_is_found_out() -> None:
    report = await r22.experiment(red=True)
    assert "the crawl did not end by itself" in report.verdict, str(report)
    assert report.verdict.count("asked more than") >= 4, str(report)
