"""The reduced form of R21 passes, and fails as soon as rules are read and not followed."""

import pytest

from experiments import r21

pytestmark = pytest.mark.timeout(300)


async def test_robots_txt_is_obeyed_when_it_is_hardest() -> None:
    report = await r21.experiment()
    assert report.passed, str(report)
    assert report.total.ok == len(r21.OBEYED) + len(r21.OPEN) + len(r21.CLOSED) + 1, str(report)


@pytest.mark.red_control("r21")
async def test_a_crawler_that_does_not_follow_the_rules_is_found_out() -> None:
    report = await r21.experiment(red=True)
    assert report.verdict.count("forbidden pages were fetched") == len(r21.OBEYED), str(report)
