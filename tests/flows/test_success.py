"""Spiders that end without an error although something went wrong, executed by a real worker."""

from __future__ import annotations

from pathlib import Path

from tests.flows.working import working
from tests.spiders import project
from tests.waiting import eventually
from weft.app import open_app
from weft.config import Config
from weft.projects.packing import pack
from weft.runs.model import ENDED, NewRun, RunSpec, RunState
from weft.runs.success_text import parse_conditions

SPIDERS = """
import scrapy
from scrapy.exceptions import CloseSpider


class Raises(scrapy.Spider):
    name = "raises"
    start_urls = ["data:,1", "data:,2"]
    custom_settings = {"LOG_LEVEL": "CRITICAL"}

    def parse(self, response):
        yield {"number": int(response.text)}
        raise ValueError("the page has changed")


class Login(scrapy.Spider):
    name = "login"
    start_urls = ["data:,1"]

    def parse(self, response):
        raise CloseSpider("login_failed")


class Silent(scrapy.Spider):
    name = "silent"
"""


async def test_what_went_wrong_in_a_spider_is_marked_and_fails_it_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    app = await open_app(Config(data_dir=str(tmp_path / "data"), port=0, heartbeat_seconds=0.1))
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS), file)
    await app.projects.deploy("shop", archive, "1")
    asked = {"raises": "errors <= 0", "login": "finish_reason = finished", "silent": "requests >= 1"}
    new = [
        NewRun(project="shop", task=name, kind="spider", spec=RunSpec(spec={"spider": name}, success_if=given))
        for name, line in asked.items()
        for given in (None, parse_conditions([line]))
    ]
    field = parse_conditions(["missing number <= 5 %"])
    new.append(
        NewRun(project="shop", task="empty", kind="spider", spec=RunSpec(spec={"spider": "silent"}, success_if=field))
    )
    async with working(app):
        ids = [each.run_id for each in await app.runs.submit(new)]

        async def all_ended() -> bool:
            return {run_id for run_id in ids if (await app.runs.get(run_id)).state in ENDED} == set(ids)

        await eventually(all_ended, timeout=60)
        *runs, undecided = [await app.runs.get(run_id) for run_id in ids]
    assert [(run.state, run.marks) for run in runs[::2]] == [
        (RunState.SUCCEEDED, ("errors",)),
        (RunState.SUCCEEDED, ("finish_reason", "no_items")),
        (RunState.SUCCEEDED, ("no_requests",)),
    ]
    assert [(run.items, run.pages, run.requests, run.errors, run.finish_reason) for run in runs[::2]] == [
        (2, 2, 2, 2, "finished"),
        (0, 1, 1, 0, "login_failed"),
        (0, 0, 0, 0, "finished"),
    ]
    assert [(run.outcome, run.reason) for run in runs[1::2]] == [
        ("condition", "2 errors were logged, at most 0 are allowed"),
        ("condition", "the spider was closed with login_failed, allowed is finished"),
        ("condition", "0 requests were made, at least 1 is required"),
    ]
    why = "missing number <= 5 % was not decided: there are no items, so no share of them is known"
    assert (undecided.state, undecided.marks, undecided.reason) == (
        RunState.SUCCEEDED,
        ("no_requests", "undecided"),
        why,
    )
