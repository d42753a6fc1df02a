"""Prometheus looks at a real weft, set up as the how-to shows, and answers what the how-to asks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.answering import Answering, Said
from tests import servers
from tests.cli.commanding import WEFT, Answer, answers, environment, weft
from tests.conftest import running
from tests.servers.server import free_port
from tests.waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md").read_text()
SAYS = """echo '{"pages": 1250}' > "$WEFT_METRICS" """


def configuration(port: int) -> str:
    """What the how-to shows, for a weft on ``port`` that is asked every second."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    for there, here in {"127.0.0.1:6800": f"127.0.0.1:{port}", "scrape_interval: 15s": "scrape_interval: 1s"}.items():
        assert shown.count(there) == 1
        shown = shown.replace(there, here)
    return str(shown)


def queries() -> list[str]:
    return re.findall(r"^\| [^|]+ \| `(.+)` \|$", PAGE, re.MULTILINE)


class WeftUp:
    """A weft of one machine, which can start again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        variables = environment(
            WEFT_LABELS="gpu",
            WEFT_WORKER_NAME="w7",
            WEFT_DATA_DIR=str(self.folder),
            WEFT_ALLOWED_NETWORKS="127.0.0.0/8",
        )
        with (self.folder.parent / "said").open("ab") as said:
            command = [WEFT, "up", "--port", str(self.port), "--workers", "1", "--no-examples"]
            self._up = subprocess.Popen(command, env=variables, stdout=said, stderr=said)
        asyncio.run(eventually(lambda: answers(self.port)))

    def stop(self) -> None:
        assert self._up is not None
        os.kill(self._up.pid, signal.SIGTERM)
        self._up.wait(60)

    def run(self, *words: str) -> Answer:
        return weft("--data-dir", str(self.folder), *words)


@pytest.fixture
def weft_up(tmp_path: Path) -> Iterator[WeftUp]:
    up = WeftUp(tmp_path / "data", free_port())
    up.start()
    try:
        yield up
    finally:
        up.stop()


@pytest.fixture
def prometheus(weft_up: WeftUp) -> Iterator[servers.Server]:
    made = weft_up.run("keys", "create", "--role", "viewer", "--everywhere", "--json")
    yield from running(lambda: servers.prometheus(configuration(weft_up.port), made.document["token"]))


def asked(server: servers.Server, query: str) -> list[dict[str, Any]]:
    address = f"{server.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own server
        told = json.load(answer)
    assert told["status"] == "success"
    return list(told["data"]["result"])


def values(server: servers.Server, query: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(each["metric"][label] for label in labels): float(each["value"][1]) for each in asked(server, query)}


async def shell_runs(up: WeftUp, *scripts: str) -> None:
    for script in scripts:
        submit = ["--project", "shop", "runs", "submit", "--wait", "--kind", "shell", "--name", "prices"]
        await asyncio.to_thread(up.run, *submit, "--spec", json.dumps({"script": script}))


async def test_prometheus_knows_how_weft_stands_and_counters_go_on_when_it_starts_again(
    prometheus: servers.Server, weft_up: WeftUp
) -> None:
    await shell_runs(weft_up, "true", SAYS, "exit 3")
    async with Answering(lambda asked: Said(200, asked.path.encode()), ("127.0.0.1",)).serving() as site:
        crawl = [
            "--project",
            "shop",
            "crawl",
            site.url("/a"),
            site.url("/b"),
            "--name",
            "site",
            "--delay",
            "0",
            "--contact",
            "us@weft.example",
        ]
        crawled = await asyncio.to_thread(weft_up.run, *crawl)
    assert crawled.code == 0, crawled
    await eventually(lambda: values(prometheus, 'up{job="weft"}') == {(): 1.0}, 60)
    ended = {("succeeded",): 3.0, ("failed",): 1.0}
    await eventually(lambda: values(prometheus, "weft_runs_ended_total", "outcome") == ended, 60)
    assert values(prometheus, "weft_worker_labels", "worker", "label") == {("w7-1", "gpu"): 1}
    assert values(prometheus, "weft_worker_capacity", "worker") == {("w7-1",): 10}
    assert values(prometheus, "weft_worker_memory_bytes", "worker")[("w7-1",)] > 1e6
    assert values(prometheus, "weft_custom", "project", "task", "name") == {("shop", "prices", "pages"): 1250}
    assert len(queries()) >= 5
    for query in queries():
        asked(prometheus, query)
    assert values(prometheus, queries()[-1], "task", "name") == {("prices", "pages"): 1250}
    await asyncio.to_thread(weft_up.stop)
    await asyncio.to_thread(weft_up.start)
    await shell_runs(weft_up, "true")
    ended = {("succeeded",): 4.0, ("failed",): 1.0}
    await eventually(lambda: values(prometheus, "weft_runs_ended_total", "outcome") == ended, 60)
    for counted, count in {"weft_pages_total": 2, 'weft_urls_total{state="done"}': 2, "weft_items_total": 2}.items():
        assert values(prometheus, counted, "project", "name") == {("shop", "site"): count}
    assert values(prometheus, "crawler_processing_duration_seconds_count") == {(): 2}
    for counted in ("weft_pages_total", "weft_runs_ended_total", "weft_worker_pages_total"):
        assert values(prometheus, f"sum(resets({counted}[10m]))") == {(): 0}
