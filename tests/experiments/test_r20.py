"""The reduced form of R20 passes, and fails where a limiter opens or two of them grant."""

import pytest

from experiments import r20
from experiments.limited import Arrival
from weft.ports import Rate

pytestmark = pytest.mark.timeout(600)


async def test_no_host_gets_more_than_its_limit_whatever_becomes_of_redis() -> None:
    report = await r20.experiment()
    assert report.passed, str(report)


@pytest.mark.red_control("r20")
async def test_a_limiter_that_opens_and_two_that_grant_are_found() -> None:
    report = await r20.experiment(red=True)
    assert "a limiter that opens: " in report.verdict, str(report)
    assert "two limiters: " in report.verdict, str(report)
    assert "requests over the limit of their host" in report.verdict, str(report)


def test_requests_over_a_limit_and_beside_others_are_counted() -> None:
    together = [Arrival(100.0, 100.5), Arrival(100.2, 100.3), Arrival(101.0, 101.1)]
    assert r20.excess(together, Rate(1.0, 1.0)) == 1
    assert r20.excess(together, Rate(1.0, 2.0)) == 0
    assert r20.excess([*together, Arrival(101.1)], Rate(1.0, 2.0)) == 1
    assert r20.crowding(together, Rate(1.0, 1.0, at_once=1)) == 1
    assert r20.too_early([Arrival(102.0), Arrival(104.0)], Rate(1.0), 100.0) == 1
