"""The reduced form of R11 passes, and fails as soon as a version is there before its code."""

import pytest

from experiments import r11

pytestmark = pytest.mark.timeout(600)


async def test_a_deploy_is_whole_or_was_never_there_wherever_it_is_cut_off() -> None:
    report = await r11.experiment()
    assert report.passed, str(report)
    assert report.total.kills == 8, str(report)
    assert report.total.recovered == 1, "the gateway that died after its commit has made a version: " + str(report)


@pytest.mark.red_control("r11")
async def test_a_version_that_comes_before_its_code_is_found_to_be_broken() -> None:
    report = await r11.experiment(red=True)
    assert "1.0 has no code" in report.verdict, str(report)
