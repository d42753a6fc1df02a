"""The folders of a Scrapyd: one that was really used, and ones made by hand for what no Scrapyd would leave."""

from __future__ import annotations

import base64
import http.client
import json
import os
import sqlite3
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.projects.making import zipped
from tests.scrapyd.real import PASSWORD, USER, scrapyd
from tests.servers.server import Server

PROJECT = "shop"
PATIENCE_SECONDS = 120.0
OLD = time.time() - 86_400
DONE = ("first", "second", "empty")
"""Jobs that have ended by themselves."""

LOG = """\
2026-03-01 10:00:00 [scrapy.utils.log] INFO: Scrapy 2.13.3 started (bot: shop)
2026-03-01 10:00:00 [scrapy.core.engine] INFO: Spider opened
2026-03-01 10:00:05 [scrapy.core.engine] INFO: Closing spider ({reason})
2026-03-01 10:00:05 [scrapy.statscollectors] INFO: Dumping Scrapy stats:
{{'elapsed_time_seconds': 5.25,
 'finish_reason': '{reason}',
 'finish_time': datetime.datetime(2026, 3, 1, 9, 0, 5, 250000, tzinfo=datetime.timezone.utc),
 'item_scraped_count': 2,
 'log_count/INFO': 7,
 'response_received_count': 3,
 'start_time': datetime.datetime(2026, 3, 1, 9, 0, tzinfo=datetime.timezone.utc)}}
2026-03-01 10:00:05 [scrapy.core.engine] INFO: Spider closed ({reason})
"""


def log_text(reason: str = "finished") -> str:
    """A log of Scrapy, as it ends for this reason."""
    return LOG.format(reason=reason)


SPIDERS = """
import asyncio
import pathlib

import scrapy


class Things(scrapy.Spider):
    name = "things"

    async def start(self):
        for number in range(int(self.count)):
            yield {"number": number, "name": f"thing {number}"}


class Waits(scrapy.Spider):
    name = "waits"

    async def start(self):
        yield {"number": 0}
        pathlib.Path(self.ready).touch()
        while True:
            await asyncio.sleep(0.1)
"""
SETTINGS = 'BOT_NAME = "shop"\nSPIDER_MODULES = ["shop.spiders"]\n'
ENTRY = "[scrapy]\nsettings = shop.settings\n"


def egg(*, spiders: str = SPIDERS, settings: str = SETTINGS, entry: str = ENTRY) -> bytes:
    """An egg as scrapyd-deploy makes it; without ``entry`` it names no settings."""
    files = {
        "EGG-INFO/PKG-INFO": "Metadata-Version: 1.0\nName: shop\nVersion: 1\n",
        "shop/__init__.py": "",
        "shop/settings.py": settings,
        "shop/spiders/__init__.py": spiders,
    }
    return zipped(files | ({"EGG-INFO/entry_points.txt": entry} if entry else {}))


@contextmanager
def used_scrapyd() -> Iterator[Server]:
    """A Scrapyd in the midst of its work: three versions, one of them broken; jobs that are done, run and wait."""
    storage = "scrapyd.jobstorage.SqliteJobStorage"
    with scrapyd(jobstorage=storage, max_proc="1", poll_interval="0.1", items_dir="items") as server:
        for version, data in (("1.9", egg()), ("1.10", egg(settings=OTHERWISE)), ("2.0", egg(spiders="1 / 0"))):
            fields = {"project": PROJECT, "version": version, "egg": data}
            ask(server, "addversion.json", urllib.parse.urlencode(fields).encode())
        schedule(server, "first", count="3")
        schedule(server, "second", count="1000")
        schedule(server, "empty", count="0")
        wait_for(lambda: {each["id"] for each in ask(server, "listjobs.json")["finished"]} == set(DONE))
        schedule(server, "running", spider="waits", ready=str(server.directory / "ready"))
        wait_for((server.directory / "ready").exists)
        schedule(server, "low", priority="-1.5", count="2")
        schedule(server, "high", priority="7", count="1", setting="DOWNLOAD_DELAY=0.5", _version="1.9")
        schedule(server, "first", count="5")
        yield server


OTHERWISE = SETTINGS + "DOWNLOAD_DELAY = 0.01\n"


def schedule(server: Server, job: str, spider: str = "things", **more: str) -> None:
    """Ask for a job of a version that works: the newest does not."""
    form = {"project": PROJECT, "spider": spider, "jobid": job, "_version": "1.10", **more}
    said = ask(server, "schedule.json", urllib.parse.urlencode(form).encode())
    assert said["status"] == "ok", said


def ask(server: Server, name: str, form: bytes | None = None) -> Any:
    """What Scrapyd answers."""
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/x-www-form-urlencoded"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET" if form is None else "POST", f"/{name}", form, headers)
        return json.load(connection.getresponse())
    finally:
        connection.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def add_egg(folder: Path, project: str, version: str, data: bytes) -> Path:
    return written(folder / "eggs" / project / f"{version}.egg", data)


def add_log(folder: Path, spider: str, job: str, text: str, *, project: str = PROJECT, at: float = OLD) -> Path:
    return written(folder / "logs" / project / spider / f"{job}.log", text.encode(), at)


def add_items(folder: Path, spider: str, job: str, lines: bytes, *, project: str = PROJECT, at: float = OLD) -> Path:
    return written(folder / "items" / project / spider / f"{job}.jl", lines, at)


def add_pending(folder: Path, project: str, *messages: Any, priority: Any = 0.0) -> None:
    """Rows of a queue: a message that is bytes is stored as it is."""
    with opened(folder, project) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS spider_queue (id integer PRIMARY KEY, priority real key, message blob)"
        )
        for each in messages:
            data = each if isinstance(each, bytes) else json.dumps(each).encode("ascii")
            database.execute("INSERT INTO spider_queue (priority, message) VALUES (?, ?)", (priority, data))


def add_finished(folder: Path, *rows: tuple[Any, ...]) -> None:
    """Rows of jobs that have ended: project, spider, job, begin and end."""
    with opened(folder, "jobs") as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS finished_jobs (id integer PRIMARY KEY, project text, spider text, job text, "
            "start_time datetime, end_time datetime)"
        )
        database.executemany(
            "INSERT INTO finished_jobs (project, spider, job, start_time, end_time) VALUES (?, ?, ?, ?, ?)", rows
        )


def finished_rows(folder: Path) -> list[tuple[str, str, str]]:
    """Job, begin and end of what Scrapyd remembers, in the order in which they ended."""
    with opened(folder, "jobs") as database:
        return list(database.execute("SELECT job, start_time, end_time FROM finished_jobs ORDER BY end_time"))


@contextmanager
def opened(folder: Path, name: str) -> Iterator[sqlite3.Connection]:
    (folder / "dbs").mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / "dbs" / f"{name}.db")
    try:
        yield database
        database.commit()
    finally:
        database.close()


def written(file: Path, data: bytes, at: float = OLD) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (at, at))
    return file


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything that lies in a folder, byte by byte, with when it was last written to."""
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return {str(each.relative_to(folder)): (each.read_bytes(), each.stat().st_mtime_ns) for each in files}
