"""A newcomer's first hour: a fresh folder, default settings, a project with requirements, commands in its folder."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, Answer, answers, environment, weft
from tests.servers.server import free_port
from tests.waiting import eventually
from tests.workers.packages import Quiet, repacked, served, wheel

pytestmark = pytest.mark.timeout(900)

SPIDER = """
import scrapy, spindle

class Spools(scrapy.Spider):
    name = "spools"

    async def start(self):
        yield {"spindle": spindle.VERSION}
"""


def written(folder: Path, cfg: str = "", *, spider: str = SPIDER, requirements: str = "spindle==2.0\n") -> Path:
    """A project as `scrapy startproject` makes it, with one spider and one requirement."""
    files = {
        "scrapy.cfg": f"[settings]\ndefault = mill.settings\n\n[deploy]\n{cfg or '#url = http://localhost:6800/'}\n"
        "project = mill\n",
        "requirements.txt": requirements,
        "mill/__init__.py": "",
        "mill/settings.py": 'BOT_NAME = "mill"\nSPIDER_MODULES = ["mill.spiders"]\n',
        "mill/spiders/__init__.py": "",
        "mill/spiders/spools.py": spider,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index of packages with Scrapy, what it needs, and one package that is installed nowhere."""
    folder = tmp_path_factory.mktemp("index")
    repacked(folder, "scrapy")
    page = folder / "simple" / "spindle"
    page.mkdir()
    made = wheel(page, "spindle", "2.0")
    (page / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    with served(folder) as url:
        yield url


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory, index: str) -> dict[str, str]:
    """What is set where weft is started and where its commands are: no more than where packages come from."""
    return environment(PIP_INDEX_URL=index, XDG_STATE_HOME=str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def weft_up(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[Path]:
    """The folder in which `weft up` was started."""
    folder, port = tmp_path_factory.mktemp("fresh"), free_port()
    (folder / "port").write_text(str(port))
    (folder / "weft.toml").write_text('destinations_dir = "deliveries"\nspider_env = "MILL_*"\n')
    command = [WEFT, "up", "--port", str(port), "--workers", "1", "--no-examples"]
    with (folder / "output").open("wb") as output:
        up = subprocess.Popen(
            command, cwd=folder, env={**variables, "MILL_DB": "of the server"}, stdout=output, stderr=output
        )
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        yield folder
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.wait(60)


def test_a_project_with_requirements_runs_with_the_default_data_directory(
    weft_up: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    project = written(tmp_path / "project")

    def said(*words: str) -> Answer:
        done = weft(*words, cwd=weft_up, env=variables, seconds=300)
        assert done.code == 0, f"{done}{(weft_up / 'output').read_text()}"
        return done

    assert STEP.search(said("deploy", str(project)).err)
    assert said("deploy", str(project)).err == ""  # it is there already
    said("run", "spools", "--wait")
    assert [json.loads(line) for line in said("items", "spools", "--format", "jsonl").lines] == [{"spindle": "2.0"}]


def test_a_deploy_over_http_shows_how_far_the_installation_is(
    weft_up: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    key = weft("keys", "create", "--role", "developer", "--project", "mill", "--json", cwd=weft_up, env=variables)
    (tmp_path / "key").write_text(key.document["token"])
    far = {**variables, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    url = f"http://127.0.0.1:{(weft_up / 'port').read_text()}"
    logged_in = weft("login", url, "--key-file", "key", "--name", "far", cwd=tmp_path, env=far)
    assert logged_in.code == 0, logged_in
    project = written(tmp_path / "far", requirements="spindle==2.0  # for another environment\n")
    done = weft("--context", "far", "deploy", str(project), cwd=tmp_path, env=far, seconds=300)
    assert done.code == 0, done
    assert STEP.search(done.err), done


STEP = re.compile(
    r"^ *\d+ s  (making|looking|installing \d+ packages|(collecting|downloading) [\w.=<>~!,-]+)", re.MULTILINE
)
"""A line that says how long a deploy has taken, and what it is busy with."""
IN_ANOTHER_FOLDER = """
import scrapy

class Reels(scrapy.Spider):
    name = "reels"

    async def start(self):
        yield {"reel": 1}
"""


def test_commands_in_the_folder_of_a_project_reach_the_weft_that_runs(
    weft_up: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    project = written(tmp_path / "project", spider=IN_ANOTHER_FOLDER, requirements="")
    (project / "requirements.txt").unlink()

    def said(*words: str) -> Answer:
        done = weft(*words, cwd=project, env=variables)
        assert done.code == 0, f"{done}{(weft_up / 'output').read_text()}"
        return done

    assert str(weft_up / "weft-data") in said("context", "show").out
    said("deploy", "--project", "reels")
    said("run", "reels", "--project", "reels", "--wait")
    found = said("items", "reels", "--project", "reels", "--format", "jsonl")
    assert [json.loads(line) for line in found.lines] == [{"reel": 1}]
    assert sorted(each.name for each in project.iterdir()) == ["mill", "scrapy.cfg"]


TWO = """
import scrapy, spindle

class Spools(scrapy.Spider):
    name = "spools"

    async def start(self):
        yield {"spindle": spindle.VERSION, "colour": "red"}

class Broken(scrapy.Spider):
    name = "broken"

    async def start(self):
        yield scrapy.Request("data:,page")

    def parse(self, response):
        raise ValueError("no price on the page")
"""
TASKS = """
[[tasks]]
name = "often"
project = "mill"
kind = "spider"
schedule = "@every 1s"
spec = { spider = "spools" }
"""


def test_the_first_hour(weft_up: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    """Deploy, run, schedule, fail, find out why, export, deliver the items, and add a worker elsewhere."""
    project = written(tmp_path / "hour", spider=TWO)

    def asked(*words: str) -> Answer:
        return weft(*words, cwd=project, env=variables, seconds=300)

    def said(*words: str) -> Answer:
        done = asked(*words)
        assert done.code == 0, f"{done}{(weft_up / 'output').read_text()}"
        return done

    assert "2 spiders" in said("deploy").out
    said("run", "spools", "--wait")
    said("destinations", "add", "spools", "file:kept", "--project", "mill")

    (project / "tasks.toml").write_text(TASKS)
    said("tasks", "apply", "tasks.toml", "--yes")
    asyncio.run(
        eventually(lambda: ended_by_schedule(said("runs", "list", "--task", "mill/often", "--json").document), 60)
    )
    said("tasks", "pause", "mill/often")

    assert asked("run", "broken", "--success-if", "errors <= 0", "--wait").code == 1
    (failed,) = said("runs", "list", "--state", "failed", "--json").document
    assert "1 error" in failed["reason"]
    assert "no price on the page" in said("runs", "log", str(failed["id"]), "--errors").out

    rows = list(csv.DictReader(io.StringIO(said("items", "spools", "--format", "csv").out)))
    assert {"spindle": "2.0", "colour": "red"} in rows

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "token").write_text(said("workers", "token").out)
    with remote_worker(elsewhere, variables, (weft_up / "port").read_text()):
        said("run", "spools", "--worker-label", "far", "--wait")
    newest = said("runs", "list", "--task", "mill/spools", "--json").document[0]
    assert (newest["worker"], newest["state"]) == ("far-1", "succeeded")

    delivered = weft_up / "deliveries" / "kept"
    asyncio.run(
        eventually(lambda: any('"colour":"red"' in each.read_text() for each in delivered.rglob("*.jsonl")), 90)
    )


READS = """
import os
import scrapy

class Reads(scrapy.Spider):
    name = "reads"
    db = os.environ["MILL_DB"]

    async def start(self):
        yield {"mill": self.db, "far": os.environ.get("FAR_DB")}
"""


def test_variables_are_those_of_the_server_and_of_each_worker_not_of_the_shell_that_deploys(
    weft_up: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    project = written(tmp_path / "reads", spider=READS)
    (project / "requirements.txt").unlink()
    shell = {**variables, "FAR_DB": "of the shell"}

    def said(*words: str) -> Answer:
        done = weft(*words, "--project", "reads", cwd=project, env=shell, seconds=300)
        assert done.code == 0, f"{done}{(weft_up / 'output').read_text()}"
        return done

    def items() -> list[dict[str, str]]:
        return [json.loads(line) for line in said("items", "reads", "--format", "jsonl").lines]

    assert "1 spider" in said("deploy").out
    said("run", "reads", "--wait")
    here = {"mill": "of the server", "far": None}
    assert items() == [here]

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "token").write_text(weft("workers", "token", cwd=project, env=shell).out)
    own = {**variables, "WEFT_SPIDER_ENV": "MILL_DB,FAR_DB", "MILL_DB": "of the worker", "FAR_DB": "of the worker"}
    with remote_worker(elsewhere, own, (weft_up / "port").read_text()):
        said("run", "reads", "--worker-label", "far", "--wait")
    there = {"mill": "of the worker", "far": "of the worker"}
    assert sorted(items(), key=json.dumps) == sorted([here, there], key=json.dumps)


JUDGES = """
import importlib.util, scrapy, spindle

class Judges(scrapy.Spider):
    name = "judges"
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {"weft.agent.proxies.ProxyMiddleware": 740},
        "PROXY_PLAN": "ways",
        "ROBOTSTXT_OBEY": False,
    }

    async def start(self):
        yield scrapy.Request(self.page)

    def parse(self, response):
        has_own = importlib.util.find_spec("re2") is not None
        yield {"status": response.status, "verdict": [name for name in self.crawler.stats.get_stats()
               if name.startswith("weft/ways/")], "has_own": has_own}
"""
PLAN = """
sites = ["127.0.0.1:*"]

[[exits]]
name = "none"
url = "http://127.0.0.1:9"

[[rules]]
verdict = "soft_block"
body = "(a+)+$"

[[rules]]
verdict = "empty"
body = "a{64}!"
"""
"""Its first rule takes the engine of Python longer than anybody waits, on the page of ``Slow``."""


class Slow(Quiet):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a" * 64 + b"!")


def test_a_spider_with_packages_of_its_own_judges_pages_without_ever_hanging(
    weft_up: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    project = written(tmp_path / "judges", spider=JUDGES)
    (project / "ways.toml").write_text(PLAN)

    def said(*words: str) -> Answer:
        done = weft(*words, "--project", "judges", cwd=project, env=variables, seconds=300)
        assert done.code == 0, f"{done}{(weft_up / 'output').read_text()}"
        return done

    said("deploy")
    said("proxies", "set", "ways", "ways.toml")
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as site:
        serving = threading.Thread(target=site.serve_forever, args=(0.01,))
        serving.start()
        try:
            said("run", "judges", "-a", f"page=http://127.0.0.1:{site.server_port}/", "--wait")
        finally:
            site.shutdown()
            serving.join()
    (item,) = [json.loads(line) for line in said("items", "judges", "--format", "jsonl").lines]
    assert item == {"status": 200, "verdict": ["weft/ways/empty"], "has_own": False}


def ended_by_schedule(runs: list[dict[str, object]]) -> bool:
    return any(run["state"] == "succeeded" for run in runs)


@contextmanager
def remote_worker(folder: Path, variables: dict[str, str], port: str) -> Iterator[None]:
    """A worker that knows a URL and a token, in a folder of its own."""
    command = [WEFT, "worker", "--connect", f"http://127.0.0.1:{port}", "--token-file", "token"]
    with (folder / "output").open("wb") as output:
        worker = subprocess.Popen(
            [*command, "--name", "far-1", "--label", "far"], cwd=folder, env=variables, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
