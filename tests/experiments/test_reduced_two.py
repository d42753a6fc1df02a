"""The reduced form of each experiment passes, and fails as soon as the protection that it is about is switched off."""

import re
from datetime import UTC, datetime

import pytest

from experiments import almanac, r04, r05, r09, r15
from experiments.__main__ import names
from experiments.cluster import ROOT
from experiments.report import Report

pytestmark = pytest.mark.timeout(600)

NOON = round(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()) * almanac.SECOND


def assert_passed(report: Report) -> None:
    assert report.passed, str(report)


async def test_the_runs_of_a_dead_worker_start_again_in_time_and_only_they_do() -> None:
    report = await r04.experiment()
    assert_passed(report)
    assert report.total.kills >= 10, str(report)


@pytest.mark.red_control("r04")
async def test_workers_whose_heart_stands_still_are_found_to_lose_healthy_runs() -> None:
    report = await r04.experiment(red=True)
    assert report.total.duplicated > 0, str(report)
    assert not report.passed


async def test_a_worker_that_wakes_after_its_lease_changes_nothing() -> None:
    report = await r05.experiment()
    assert_passed(report)
    assert report.total.kills >= 10, str(report)


@pytest.mark.red_control("r05")
async def test_a_zombie_that_is_believed_is_found_to_write() -> None:
    report = await r05.experiment(red=True)
    assert "writes of attempts that had been taken away" in report.verdict, str(report)


@pytest.mark.quiet
async def test_a_poison_run_fails_after_its_attempts_and_blocks_nobody() -> None:
    assert_passed(await r09.experiment())


@pytest.mark.red_control("r09")
async def test_a_poison_run_without_a_limit_is_found_to_go_on() -> None:
    report = await r09.experiment(red=True)
    assert report.total.unknown > 0, str(report)
    assert not report.passed


@pytest.mark.quiet
async def test_a_schedule_ticks_exactly_once_whatever_happens_to_the_leader() -> None:
    assert_passed(await r15.experiment())


@pytest.mark.red_control("r15")
async def test_a_leader_that_is_trusted_is_found_to_double_ticks() -> None:
    report = await r15.experiment(red=True)
    assert report.total.duplicated > 0, str(report)
    assert not report.passed


@pytest.mark.parametrize(
    ("line", "zone", "minutes"),
    [
        ("*/20 * * * *", "UTC", [20, 40, 60]),
        ("0,30 12-13 * * *", "UTC", [30, 60]),
        ("0,30 13 * * *", "UTC", [60]),
        ("45 17 * * *", "Asia/Kolkata", [15]),
    ],
)
def test_the_almanac_knows_when_a_cron_line_ticks(line: str, zone: str, minutes: list[int]) -> None:
    ticks = almanac.cron(line, zone, NOON, NOON + 60 * almanac.MINUTE)
    assert [(tick - NOON) // almanac.MINUTE for tick in ticks] == minutes


def test_the_almanac_counts_an_interval_from_its_first_tick() -> None:
    ticks = almanac.interval(NOON - 10 * almanac.SECOND, 25, NOON, NOON + almanac.MINUTE)
    assert [(tick - NOON) // almanac.SECOND for tick in ticks] == [15, 40]


def test_the_promises_name_only_what_exists_and_every_experiment() -> None:
    page = (ROOT / "docs" / "reference" / "promises.md").read_text()
    files = re.findall(r"`(tests/[a-z_/]+\.py)`", page)
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert sorted(set(re.findall(r"experiment `(\w+)`", page))) == names()
