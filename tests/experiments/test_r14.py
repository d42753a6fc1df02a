"""The reduced form of R14 passes, and fails as soon as logs wait for the end of their run."""

import pytest

from experiments import r14
from experiments.printing import Printed

pytestmark = pytest.mark.timeout(600)


async def test_logs_lose_little_and_never_stall_a_spider() -> None:
    report = await r14.experiment()
    assert report.passed, str(report)
    assert report.total.kills == 1, str(report)


@pytest.mark.red_control("r14")
async def test_logs_that_wait_for_the_end_of_their_run_are_found_to_be_lost() -> None:
    report = await r14.experiment(red=True)
    assert "logs lack more than" in report.verdict, str(report)


def test_a_hole_in_a_log_and_what_it_says_of_itself_are_found() -> None:
    lines = [b"line %09d 1700000000%09d ....\n" % (number, number) for number in (1, 2, 4)]
    found = Printed.read(b"".join([b"another word\n", *lines, b"line 000000005 17", b"\n[weft] 12 bytes dropped: \n"]))
    assert (list(found.numbers), found.dropped) == ([1, 2, 4], 12)
    assert not found.is_whole(3)
    assert Printed.read(b"".join(lines[:2])).is_whole(2)
    assert found.last_at == pytest.approx(1700000000.000000004)
