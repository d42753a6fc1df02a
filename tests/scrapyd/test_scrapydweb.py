"""ScrapydWeb, unmodified, with weft as its server: what a person reads on its pages and does there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapyd.scrapydweb import Page, ScrapydWeb, scrapydweb
from tests.scrapyd.weft_up import SLOTS, Weft, wait_for, weft_up
from tests.scrapyd.workplace import NAMES, workplace

SHOP = "shop"
"""A project that every test finds deployed."""
LATEST = "default: the latest version"
"""ScrapydWeb's words for a run without ``_version``."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scrapydweb")


@pytest.fixture(scope="module")
def weft() -> Iterator[Weft]:
    with weft_up() as running:
        yield running


@pytest.fixture(scope="module")
def egg(place: Path, weft: Weft) -> Path:
    return workplace(place / SHOP, weft.url).egg(place / "shop.egg")


@pytest.fixture(scope="module")
def web(weft: Weft, egg: Path) -> Iterator[ScrapydWeb]:
    with scrapydweb(weft.scrapyd_port, weft.port) as running:
        deploy(running, egg, SHOP, "r1")
        yield running


@pytest.fixture(scope="module")
def finished(web: ScrapydWeb) -> str:
    """A job that crawled three pages and has ended."""
    job = run_spider(web, "pages", "crawled")
    wait_for(lambda: job_on_page(web, job).get("finish"))
    return job


def deploy(web: ScrapydWeb, egg: Path, project: str, version: str) -> Page:
    return web.upload("deploy/upload", {"project": project, "version": version}, egg)


def run_spider(web: ScrapydWeb, spider: str, job: str, **more: str) -> str:
    """Fill in the page Run Spider, look at the command that it shows, and press the button."""
    form = {"project": SHOP, "_version": LATEST, "spider": spider, "jobid": job} | more
    checked = web.open("schedule/check", form).json
    assert f"-d spider={spider}" in checked["cmd"]
    shown = web.open("schedule/run", {"filename": checked["filename"]})
    assert shown.status == 200
    assert "Fail to schedule" not in shown.text
    return job


def job_on_page(web: ScrapydWeb, job: str) -> dict[str, str]:
    return web.open("jobs", style="database").record(project=SHOP, job=job)


def test_the_servers_page_shows_weft_and_what_it_has_to_do(web: ScrapydWeb, weft: Weft, finished: str) -> None:
    page = web.open("servers")
    assert "Monitor and control all of your Scrapyd servers" in page.text
    assert page.records[0]["SCRAPYD_SERVER"] == f"127.0.0.1:{weft.scrapyd_port}"
    status = web.open("api/daemonstatus").json
    assert (status["status"], status["node_name"]) == ("ok", weft.get("daemonstatus")["node_name"])
    assert status["finished"] >= 1


def test_the_jobs_page_tells_when_a_job_ran_and_leads_to_its_files(web: ScrapydWeb, weft: Weft, finished: str) -> None:
    job = job_on_page(web, finished)
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    assert job["spider"] == "pages"
    assert moment.fullmatch(job["start"])
    assert moment.fullmatch(job["finish"])
    assert re.fullmatch(r"\d:\d\d:\d\d", job["runtime"])
    assert job["url_source"] == f"{weft.url}logs/shop/pages/crawled.log"
    assert job["url_items"] == f"{weft.url}items/shop/pages/crawled.jl"


def test_the_jobs_page_shows_pages_and_items_without_a_logparser(web: ScrapydWeb, finished: str) -> None:
    shown = web.open("api/liststats").json
    assert shown["status"] == "ok", shown
    numbers = shown["datas"][SHOP]["pages"][finished]
    assert (numbers["pages"], numbers["items"]) == (3, 3)
    web.open("jobs", {})  # what its own timer does every few minutes: keep the numbers with the jobs
    job = job_on_page(web, finished)
    assert (job["pages"], job["items"]) == ("3", "3")


def test_both_ports_of_weft_answer_when_scrapydweb_starts(web: ScrapydWeb, weft: Weft) -> None:
    assert web.reached == [weft.scrapyd_port, weft.port]


def test_the_port_of_weft_itself_serves_as_well(web: ScrapydWeb, finished: str) -> None:
    job = web.node(2).open("jobs", style="database").record(job=finished)
    assert (job["spider"], job["action"]) == ("pages", "Start")
    assert web.node(2).open("logs/shop/pages").record(filename="crawled.log")
    assert "Spider closed (finished)" in web.node(2).open("log/utf8/shop/pages/crawled").text


def test_the_classic_view_has_the_job_among_the_finished(web: ScrapydWeb, finished: str) -> None:
    page = web.open("jobs", style="classic")
    assert re.search(r"Finished \([1-9]\d*\)", page.text)
    (row,) = [row for row in page.rows if row[:3] == [SHOP, "pages", finished]]
    assert "Start" in row
    assert "Log" in row


def test_the_log_of_a_job_is_shown_as_scrapy_wrote_it(web: ScrapydWeb, finished: str) -> None:
    text = web.open(f"log/utf8/shop/pages/{finished}").text
    assert "PROJECT (shop), SPIDER (pages)" in text
    assert re.search(r"\d\d:\d\d:\d\d \[pages\] WARNING: this is page 2", text)
    assert "Spider closed (finished)" in text


def test_the_stats_page_is_drawn_from_what_weft_counted(web: ScrapydWeb, finished: str) -> None:
    page = web.open(f"log/stats/shop/pages/{finished}")
    assert "LogParser v" in page.text
    assert "pip install" not in page.text
    shown = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert (shown["job"], shown["crawled_pages"], shown["scraped_items"]) == (finished, "3", "3")
    assert (shown["finish_reason"], shown["log_warning_count"]) == ("finished", "3")
    assert "this is page 1" in page.text
    assert "item_scraped_count" in page.text


def test_the_reports_of_jobs_tell_how_each_has_ended(web: ScrapydWeb, finished: str) -> None:
    assert "Get the reports of running and finished jobs" in web.open("nodereports").text
    report = web.open(f"log/report/shop/pages/{finished}").json
    assert (report["finish_reason"], report["pages"], report["items"]) == ("finished", 3, 3)
    assert report["log_categories"]["warning_logs"]["count"] == 3
    assert report["latest_matches"]["latest_item"] == "{'number': 2}"


def test_the_stats_that_weft_serves_agree_with_those_of_the_log(web: ScrapydWeb, finished: str) -> None:
    pages = [
        web.open(f"log/stats/shop/pages/{finished}"),
        web.open(f"log/stats/shop/pages/{finished}.log", with_ext="True"),
    ]
    kept = [{row[0]: row[1] for row in page.rows if len(row) == 2} for page in pages]
    names = ("first_log_time", "latest_log_time", "runtime", "shutdown_reason", "log_error_count", "log_retry_count")
    assert [kept[0][name] for name in names] == [kept[1][name] for name in names]


@pytest.mark.parametrize(("kind", "file"), [("logs", "crawled.log"), ("items", "crawled.jl")])
def test_folders_of_logs_and_items_can_be_walked_to_a_file(
    web: ScrapydWeb, weft: Weft, finished: str, kind: str, file: str
) -> None:
    assert {"filename": "shop/"}.items() <= web.open(kind).record(filename="shop/").items()
    assert web.open(f"{kind}/shop").record(filename="pages/")["href"] == "pages/"
    folder = web.open(f"{kind}/shop/pages")
    assert f"Directory listing for /{kind}/shop/pages/" in folder.text
    entry = folder.record(filename=file)
    assert re.fullmatch(r"\d+[BKM]", entry["size"])
    assert entry["href"] == f"{weft.url}{kind}/shop/pages/{file}"


def test_a_job_gets_the_settings_and_arguments_of_the_page(web: ScrapydWeb, weft: Weft) -> None:
    additional = "-d setting=USER_AGENT=ours\r\n-d colour=green"
    job = run_spider(web, "tells", "told", additional=additional)
    wait_for(lambda: job_on_page(web, job).get("finish"))
    item = weft.text(f"items/shop/tells/{job}.jl")
    assert '"colour": "green"' in item
    assert '"user_agent": "ours"' in item


@pytest.mark.parametrize("button", ["stop", "forcestop"])
def test_a_running_job_is_stopped_from_the_page(web: ScrapydWeb, button: str) -> None:
    job = run_spider(web, "endless", f"to-{button}")
    wait_for(lambda: job_on_page(web, job).get("start"))
    running = job_on_page(web, job)
    assert (running["action"], running["finish"]) == ("Stop", "")
    assert int(running["pid"]) > 0
    assert web.open(f"api/{button}/shop/{job}").json["status"] == "ok"
    wait_for(lambda: job_on_page(web, job).get("finish"))


@pytest.fixture
def taken(web: ScrapydWeb) -> Iterator[list[str]]:
    """Jobs that hold every slot until the test has ended."""
    jobs = [run_spider(web, "endless", f"takes-{number}") for number in range(SLOTS)]
    wait_for(lambda: all(job_on_page(web, job).get("start") for job in jobs))
    yield jobs
    for job in jobs:
        assert web.open(f"api/stop/shop/{job}").json["prevstate"] == "running"
    wait_for(lambda: all(job_on_page(web, job).get("finish") for job in jobs))


def test_a_job_that_waits_is_shown_as_pending_and_can_be_taken_back(web: ScrapydWeb, taken: list[str]) -> None:
    waiting = run_spider(web, "pages", "waits")
    assert (job_on_page(web, waiting)["start"], job_on_page(web, waiting)["action"]) == ("", "Cancel")
    page = web.open("jobs", style="classic")
    assert "Pending (1)" in page.text
    assert f"Running ({len(taken)})" in page.text
    assert web.open(f"api/stop/shop/{waiting}").json["prevstate"] == "pending"
    assert job_on_page(web, waiting) == {}


def test_a_timer_task_fires_and_its_job_appears(web: ScrapydWeb) -> None:
    form = {"project": SHOP, "_version": LATEST, "spider": "pages", "trigger": "cron", "action": "add_fire"}
    checked = web.open("schedule/check", form | {"name": "every hour", "hour": "*"}).json
    added = web.open("schedule/run", {"filename": checked["filename"], "checked_amount": "1", "1": "on"})
    assert "Add task #1 (every hour) successfully" in added.text
    wait_for(lambda: "FAIL" not in task_on_page(web).get("prev_run_result", "FAIL"))
    assert (task_on_page(web)["status"], task_on_page(web)["spider"]) == ("Running", "pages")
    result = web.open("tasks/1").records[0]
    assert result["status"] == "ok"
    wait_for(lambda: job_on_page(web, result["result"]).get("finish"))


def task_on_page(web: ScrapydWeb) -> dict[str, str]:
    task = web.open("tasks").record(name="every hour")
    return task if task.get("prev_run_result") != "N/A" else {}


def test_an_egg_that_is_uploaded_can_be_run_at_once(web: ScrapydWeb, egg: Path) -> None:
    page = deploy(web, egg, "uploaded", "r7")
    assert page.url.endswith("/1/schedule/uploaded/r7/")
    assert "Schedule a spider run" in page.text
    assert "uploaded" in web.open("projects").text.split()
    again = web.open(f"deploy/xhr/uploaded_r7_from_file_{egg.name}/uploaded/r8").json
    assert (again["status"], again["spiders"]) == ("ok", len(NAMES))
    assert web.open("api/listversions/uploaded").json["versions"] == ["r7", "r8"]


def test_a_broken_egg_is_refused_on_the_page_with_its_reason(web: ScrapydWeb, tmp_path: Path, weft: Weft) -> None:
    broken = workplace(tmp_path / "broken", weft.url, settings="import a_module_that_nobody_has\n")
    page = deploy(web, broken.egg(tmp_path / "broken.egg"), "broken", "r1")
    assert "Fail to deploy project, got status: error" in page.text
    assert "No module named 'a_module_that_nobody_has'" in page.text
    assert "broken" not in web.open("projects").text.split()


def test_versions_and_projects_are_listed_and_deleted(web: ScrapydWeb, egg: Path) -> None:
    for version in ("r1", "r2"):
        deploy(web, egg, "goes", version)
    assert [row[0] for row in web.open("projects/listversions/goes").rows if row[0] in ("r1", "r2")] == ["r1", "r2"]
    assert [f"Run Spider ({name})" in web.open("projects/listspiders/goes/r1").text for name in NAMES] == [True] * 3
    assert web.open("projects/delversion/goes/r1", {}).text == "version deleted"
    assert web.open("api/listversions/goes").json["versions"] == ["r2"]
    assert web.open("projects/delproject/goes", {}).text == "project deleted"
    assert "goes" not in web.open("api/listprojects").json["projects"]


def test_a_spider_that_does_not_exist_is_refused_on_the_page(web: ScrapydWeb) -> None:
    form = {"project": SHOP, "_version": LATEST, "spider": "nobody", "jobid": "never"}
    checked = web.open("schedule/check", form).json
    page = web.open("schedule/run", {"filename": checked["filename"]})
    assert "Fail to schedule, got status: error" in page.text
    assert "spider 'nobody' not found" in page.text
