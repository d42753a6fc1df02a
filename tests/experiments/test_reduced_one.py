"""The reduced form of each experiment passes, and fails as soon as the protection that it is about is switched off."""

import re

import pytest

from experiments import r01, r23, r24, r32
from experiments.report import Report

pytestmark = pytest.mark.timeout(600)


def assert_passed(report: Report) -> None:
    assert report.passed, str(report)


async def test_no_acknowledged_run_is_lost_by_kill_9_of_any_role() -> None:
    report = await r01.experiment()
    assert_passed(report)
    assert report.total.kills >= 50, str(report)


@pytest.mark.red_control("r01")
async def test_a_run_acknowledged_before_its_commit_is_found_to_be_lost() -> None:
    report = await r01.experiment(red=True)
    assert report.total.lost > 0, str(report)
    assert not report.passed


async def test_runs_are_accepted_and_dispatched_while_the_broker_is_away() -> None:
    assert_passed(await r23.experiment())


@pytest.mark.red_control("r23")
async def test_workers_that_never_poll_are_found_to_stand_still_without_the_broker() -> None:
    report = await r23.experiment(red=True)
    assert "ended while the broker was away" in report.verdict, str(report)


async def test_a_database_that_goes_away_harms_no_run_and_is_told_in_one_way() -> None:
    assert_passed(await r24.experiment())


@pytest.mark.red_control("r24")
async def test_errors_of_the_driver_that_reach_a_client_are_found() -> None:
    report = await r24.experiment(red=True)
    assert re.search(r"submits ended in an error: \['GatewayDown: .* \(this is a fault of weft;", report.verdict), str(
        report
    )
    assert "serve met an error that it did not know: psycopg." in report.verdict, str(report)


async def test_a_rolling_restart_loses_no_run_and_costs_none_a_try() -> None:
    assert_passed(await r32.experiment())


@pytest.mark.red_control("r32")
async def test_workers_that_keep_their_runs_are_found_to_harm_them() -> None:
    report = await r32.experiment(red=True)
    assert "paid for a restart" in report.verdict, str(report)
