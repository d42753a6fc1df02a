"""How fast hosts are asked by a spider that shares its frontier: as its project says, or politely."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from tests.cases import for_each
from weft.agent import run_settings
from weft.agent.run_folder import Order
from weft.agent.run_settings import SCHEDULER, NoFrontier, Sharing

POLITE, QUICK = (1.0, 1), (0.0, 8)
EIGHT_AT_ONCE: dict[str, Any] = {"CONCURRENT_REQUESTS_PER_DOMAIN": 8}


class Silent(Spider):
    name = "silent"


class Paced(Spider):
    name = "paced"
    custom_settings = EIGHT_AT_ONCE


class Slowed(Spider):
    name = "slowed"
    download_delay = 0.0


def settings_of(spider: type[Spider], project: dict[str, Any], **order: Any) -> Settings:
    settings = Settings(project)
    run_settings.apply(Order(spider.name, "shop.settings", "/code", "1", **order), settings, spider)
    return settings


@for_each(
    ("spider", "project", "run", "pace"),
    [
        (Silent, {}, {}, POLITE),
        (Silent, {"DOWNLOAD_DELAY": 0}, {}, QUICK),
        (Silent, {"AUTOTHROTTLE_ENABLED": True}, {}, QUICK),
        (Silent, {}, {"DOWNLOAD_DELAY": 0}, QUICK),
        (Paced, {}, {}, QUICK),
        (Slowed, {}, {}, QUICK),
    ],
)
def test_a_host_is_asked_once_a_second_where_nobody_says_how_often(
    spider: type[Spider], project: dict[str, Any], run: dict[str, Any], pace: tuple[float, int]
) -> None:
    settings = settings_of(spider, project, settings=run, frontier=True)
    assert settings["SCHEDULER"] == SCHEDULER
    assert (settings.getfloat("DOWNLOAD_DELAY"), settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")) == pace


def test_a_spider_that_shares_nothing_keeps_its_pace_and_its_scheduler() -> None:
    settings = settings_of(Silent, {})
    assert (settings.getfloat("DOWNLOAD_DELAY"), settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")) == QUICK
    assert settings["SCHEDULER"] != SCHEDULER


@pytest.mark.parametrize(("delay", "hosts"), [(0, 4), (0.5, 16)])
def test_a_run_holds_as_many_hosts_as_keep_it_busy(delay: float, hosts: int) -> None:
    settings = settings_of(Silent, {"DOWNLOAD_DELAY": delay}, frontier=True)
    assert Sharing.of(settings).hosts == hosts


def test_outside_of_a_run_of_weft_there_is_no_frontier() -> None:
    with pytest.raises(NoFrontier, match="in runs of weft only"):
        Sharing.of(Settings())
