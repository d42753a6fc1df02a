"""The log of a run: records that say which page they speak of, and what is merely printed."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.agent.starting import Run, Zygote
from weft.metrics import FETCH_BOUNDS


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><title>Hello</title></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing: the test looks at the spider's log."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a"
        server.shutdown()


def messages(run: Run, logger: str) -> list[dict[str, Any]]:
    return [record for record in run.records if record["logger"] == logger]


def test_records_of_a_page_have_its_address_and_status(warm: Zygote, site: str) -> None:
    run = warm.run("page", args={"url": site})
    (crawled,) = [each for each in messages(run, "scrapy.core.engine") if each["message"].startswith("Crawled")]
    (warning, _) = messages(run, "page")

    assert run.items == [{"title": "Hello"}]
    for record in (crawled, warning):
        assert (record["url"], record["status"]) == (site, 200)
        assert (record["spider"], record["run_id"]) == ("page", "r7")


def test_statistics_count_by_buckets_how_long_pages_took(warm: Zygote, site: str) -> None:
    stats = warm.run("page", args={"url": site}).stats["stats"]
    buckets = {f"weft/fetch_seconds/{bound}" for bound in (*map("{:g}".format, FETCH_BOUNDS), "+Inf")}

    counted = {name: count for name, count in stats.items() if name.startswith("weft/fetch_seconds/")}
    assert counted.keys() <= buckets
    assert sum(counted.values()) == stats["response_received_count"] == 1
    assert stats["weft/fetch_seconds"] > 0


def test_what_a_log_call_gives_as_extra_is_kept_in_its_record(warm: Zygote, site: str) -> None:
    run = warm.run("page", args={"url": site})
    (told,) = [each for each in messages(run, "page") if each["message"] == "told"]
    long = told["extra"].pop("long")

    assert told["extra"] == {"spider_name": "page", "job_id": "job-7", "sizes": [3], "odd": "<Unprintable>"}
    assert (told["url"], told["status"]) == ("https://shop.example/1", 410)
    assert long == f"{'x' * 8192}… (808 characters more)"
    assert [each["message"] for each in run.records if "extra" in each] == ["told"]


def test_an_error_in_a_callback_is_a_record_with_its_traceback(warm: Zygote, site: str) -> None:
    run = warm.run("page", args={"url": site})
    (error,) = [record for record in run.records if record["level"] == "ERROR"]

    assert error["url"] == site
    assert error["exception"].endswith("ValueError: this page is strange")


def test_records_without_a_page_have_no_address(warm: Zygote) -> None:
    assert all("url" not in record and "status" not in record for record in warm.run("few").records)


def test_what_a_spider_prints_stays_plain_text(warm: Zygote) -> None:
    run = warm.run("long", settings={"CLOSESPIDER_TIMEOUT": 1})

    assert run.printed == ["asleep"]


def test_the_level_of_the_log_is_the_settings(warm: Zygote) -> None:
    assert {record["level"] for record in warm.run("few").records} == {"DEBUG", "INFO"}
    assert warm.run("few", settings={"LOG_LEVEL": "WARNING"}).output == b""


def test_a_project_that_wants_no_log_has_none(warm: Zygote) -> None:
    run = warm.run("few", settings={"LOG_ENABLED": False})

    assert run.output == b""
    assert run.end["reason"] == "finished"


def test_a_log_file_is_written_in_the_runs_folder_beside_the_records(warm: Zygote) -> None:
    run = warm.run("few", settings={"LOG_FILE": "/var/log/spiders/few.log"})
    text = (run.folder / "files" / "few.log").read_text()

    assert "[scrapy.core.engine] INFO: Spider opened" in text
    assert "Spider opened" in [record["message"] for record in run.records]
