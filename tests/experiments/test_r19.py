"""The reduced form of R19 passes, and fails as soon as an address that was given out is never given again."""

import pytest

from experiments import r19

pytestmark = pytest.mark.timeout(600)


async def test_an_interrupted_crawl_ends_with_every_page_once() -> None:
    report = await r19.experiment()
    assert report.passed, str(report)
    assert (report.total.ok, report.total.kills) == (600, 4), str(report)


@pytest.mark.red_control("r19")
async def test_a_frontier_that_gives_an_address_once_is_found_to_lose_pages() -> None:
    report = await r19.experiment(red=True)
    assert report.total.lost > 0, str(report)
    assert not report.passed
