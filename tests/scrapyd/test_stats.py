"""Stats in the form of LogParser, as ScrapydWeb reads them."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.conftest import on_sqlite
from tests.scrapyd.calling import Client
from tests.scrapyd.conftest import a_version
from tests.scrapyd.environments import Environment
from tests.scrapyd.performing import AT, begin, perform, said
from weft.access.model import Role

SCRAPYDWEB = Environment("scrapydweb")
KEYS = [
    *("log_path", "json_path", "json_url", "size", "position", "status", "_head", "head", "tail", "first_log_time"),
    *("latest_log_time", "runtime", "first_log_timestamp", "latest_log_timestamp", "datas", "pages"),
    *("items", "latest_matches", "latest_crawl_timestamp", "latest_scrape_timestamp"),
    *("log_categories", "shutdown_reason", "finish_reason", "crawler_stats", "last_update_time"),
    *("last_update_timestamp", "logparser_version", "crawler_engine"),
]
BRIEF = [
    *("log_path", "json_path", "json_url", "size", "position", "status", "pages", "items", "first_log_time"),
    *("latest_log_time", "runtime", "shutdown_reason", "finish_reason", "last_update_time"),
]
MATCHES = [
    *("scrapy_version", "telnet_console", "telnet_username", "telnet_password", "resuming_crawl"),
    *("latest_offsite", "latest_duplicate", "latest_crawl", "latest_stat", "latest_scrape"),
    "latest_item",
]
CATEGORIES = ["critical_logs", "error_logs", "warning_logs", "redirect_logs", "retry_logs", "ignore_logs"]

STATS = {
    "response_received_count": 12,
    "item_scraped_count": 7,
    "log_count/ERROR": 40,
    "retry/count": 2,
    "downloader/response_status_count/200": 9,
    "downloader/response_status_count/301": 1,
    "downloader/response_status_count/302": 2,
    "finish_reason": "finished",
}


def at(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(AT // 1_000_000 + seconds))


def later(seconds: int, message: str, **fields: object) -> bytes:
    return said(message, at=AT + seconds * 1_000_000, **fields)


LOG = (
    later(0, "Scrapy 2.13.3 started (bot: shop)", logger="scrapy.utils.log")
    + later(0, "Telnet Password: 0123456789abcdef", logger="scrapy.extensions.telnet")
    + later(0, "Telnet console listening on 127.0.0.1:6023", logger="scrapy.extensions.telnet")
    + later(
        1, "Crawled 0 pages (at 0 pages/min), scraped 0 items (at 0 items/min)", logger="scrapy.extensions.logstats"
    )
    + later(2, "Redirecting (302) to <GET http://a/> from <GET http://b/>", level="DEBUG")
    + later(2, "Retrying <GET http://a/> (failed 1 times): 500", level="DEBUG")
    + later(2, "Gave up retrying <GET http://a/> (failed 3 times): 500", level="ERROR")
    + later(3, "Crawled (200) <GET http://a/1> (referer: None)", level="DEBUG")
    + later(4, "Crawled (200) <GET http://a/2> (referer: None)", level="DEBUG")
    + later(5, "Scraped from <200 http://a/2>\n{'n': 2}", level="DEBUG")
    + later(6, "Ignoring response <404 http://a/3>: HTTP status code is not handled or not allowed")
    + later(7, "price is missing", level="WARNING")
    + later(61, "Crawled 12 pages (at 12 pages/min), scraped 7 items (at 7 items/min)")
    + later(62, "Received SIGTERM, shutting down gracefully. Send again to force", logger="scrapy.crawler")
    + later(65, "Spider closed (finished)")
)


async def stats_of(client: Client, job: str = "one") -> dict[str, Any]:
    answer = await client.get(f"/logs/shop/things/{job}.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def test_a_job_has_every_field_of_logparser(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    await job.yields({"n": 1}, stats=STATS)
    await job.ends(LOG)
    found = await stats_of(scrapyd)
    assert list(found) == KEYS
    assert list(found["latest_matches"]) == MATCHES
    assert list(found["log_categories"]) == CATEGORIES
    assert (found["pages"], found["items"], found["finish_reason"]) == (12, 7, "finished")
    assert (found["first_log_time"], found["latest_log_time"], found["runtime"]) == (at(0), at(65), "0:01:05")
    assert found["latest_log_timestamp"] == AT // 1_000_000 + 65
    assert found["status"] == "ok"
    assert found["crawler_stats"].items() >= STATS.items()
    assert {"source", "last_update_time", "last_update_timestamp"} <= found["crawler_stats"].keys()


@on_sqlite
async def test_what_a_log_says_is_found_in_it(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", LOG)
    found = await stats_of(scrapyd)
    assert found["datas"] == [[at(1), 0, 0, 0, 0], [at(61), 12, 12, 7, 7]]
    assert found["shutdown_reason"] == "Received SIGTERM"
    matches = found["latest_matches"]
    assert (matches["scrapy_version"], matches["telnet_console"]) == ("2.13.3", "127.0.0.1:6023")
    assert matches["latest_crawl"] == f"{at(4)} [shop] DEBUG: Crawled (200) <GET http://a/2> (referer: None)"
    assert matches["latest_item"] == "{'n': 2}"
    assert found["latest_scrape_timestamp"] == AT // 1_000_000 + 5
    counts = {name: each["count"] for name, each in found["log_categories"].items()}
    assert counts == dict(zip(CATEGORIES, (0, 1, 1, 1, 1, 1), strict=True))
    assert found["log_categories"]["warning_logs"]["details"] == [f"{at(7)} [shop] WARNING: price is missing"]
    assert found["head"].splitlines()[0] == f"{at(0)} [scrapy.utils.log] INFO: Scrapy 2.13.3 started (bot: shop)"
    assert found["tail"].splitlines()[-1] == f"{at(65)} [shop] INFO: Spider closed (finished)"


@on_sqlite
async def test_logparser_itself_finds_the_same(scrapyd: Client) -> None:
    more = (
        later(66, "boom é", level="ERROR", exception="Traceback (most recent call last):\nKeyError: 'x'")
        + later(67, "Filtered duplicate request: <GET http://a>", level="DEBUG")
        + later(68, "Filtered offsite request to 'x.example'", level="DEBUG")
        + b"printed\n"
        + later(69, "no more room", level="CRITICAL")
    )
    await perform(scrapyd.app, "one", LOG + more)
    ours, text = await stats_of(scrapyd), (await scrapyd.get("/logs/shop/things/one.log")).data
    program = "import json, sys, logparser; print(json.dumps(logparser.parse(sys.stdin.read())))"
    command = [SCRAPYDWEB.program("python"), "-X", "utf8", "-c", program]
    theirs = json.loads(subprocess.run(command, input=text, capture_output=True, check=True).stdout)
    assert theirs["latest_matches"].pop("telnet_password") == "0123456789abcdef"
    assert ours["latest_matches"].pop("telnet_password") == ""
    updated = {"last_update_time", "last_update_timestamp"}
    known = {"pages", "items", "finish_reason"}
    assert {name: ours[name] for name in theirs.keys() - updated - known} == {
        name: theirs[name] for name in theirs.keys() - updated - known
    }


@on_sqlite
async def test_the_password_of_the_telnet_console_is_not_told_beside_the_log(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", LOG)
    matches = (await stats_of(scrapyd))["latest_matches"]
    assert (matches["telnet_username"], matches["telnet_password"]) == ("", "")


@on_sqlite
async def test_what_the_spider_has_counted_is_believed(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    await job.yields(stats=STATS)
    await job.ends(LOG)
    categories = (await stats_of(scrapyd))["log_categories"]
    assert {name: each["count"] for name, each in categories.items()} == dict(
        zip(CATEGORIES, (0, 40, 1, 3, 2, 1), strict=True)
    )


@on_sqlite
async def test_of_a_long_log_its_beginning_and_its_end_are_told(scrapyd: Client) -> None:
    middle = b"".join(later(10, f"line {number} " + "x" * 200, level="ERROR") for number in range(30_000))
    await perform(scrapyd.app, "one", LOG + middle + later(99, "the last line"))
    found = await stats_of(scrapyd)
    assert (found["first_log_time"], found["latest_log_time"]) == (at(0), at(99))
    assert found["latest_matches"]["scrapy_version"] == "2.13.3"
    assert len(found["head"].splitlines()) == 100
    assert found["_head"] == 100
    assert len(found["tail"].splitlines()) == 200
    assert len(found["log_categories"]["error_logs"]["details"]) == 10
    assert "line 29999" in found["log_categories"]["error_logs"]["details"][-1]


@on_sqlite
async def test_a_job_that_has_said_nothing_has_the_values_of_not_knowing(scrapyd: Client) -> None:
    await begin(scrapyd.app, "one")
    found = await stats_of(scrapyd)
    assert (found["pages"], found["items"], found["datas"], found["crawler_stats"]) == (None, None, [], {})
    assert (found["finish_reason"], found["shutdown_reason"]) == ("N/A", "N/A")
    assert set(found["latest_matches"].values()) == {""}
    assert {each["count"] for each in found["log_categories"].values()} == {0}


@on_sqlite
async def test_a_job_that_was_lost_says_so(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    await job.ends(LOG, outcome="oom")
    assert (await stats_of(scrapyd))["finish_reason"] == "oom"


async def test_all_jobs_that_have_begun_are_in_one_list(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "other")
    done = await begin(scrapyd.app, "one")
    await done.yields({"n": 1}, stats=STATS)
    await done.ends(LOG)
    await begin(scrapyd.app, "two")
    await perform(scrapyd.app, "three", project="other")
    found = (await scrapyd.get("/logs/stats.json")).json
    assert (found["status"], found["logparser_version"]) == ("ok", "0.8.4")
    jobs = found["datas"]["shop"]["things"]
    assert set(jobs) == {"one", "two"}
    assert list(jobs["one"]) == BRIEF
    assert (jobs["one"]["pages"], jobs["one"]["items"], jobs["two"]["pages"]) == (12, 7, None)
    assert jobs["one"]["json_url"] == f"{scrapyd.address}/logs/shop/things/one.json"
    guest = await scrapyd.with_role(Role.VIEWER, "other")
    assert list((await guest.get("/logs/stats.json")).json["datas"]) == ["other"]
