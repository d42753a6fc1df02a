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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.cli.commanding import WEFT, environment, weft
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


@contextmanager
def weft_up(folder: Path, port: int) -> Iterator[None]:
    variables = environment(WEFT_LABELS="gpu", WEFT_WORKER_NAME="w7", WEFT_DATA_DIR=str(folder))
    with (folder.parent / "said").open("wb") as said:
        command = [WEFT, "up", "--port", str(port), "--workers", "1", "--no-examples"]
        up = subprocess.Popen(command, env=variables, stdout=said, stderr=said)
    try:
        yield
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.wait(60)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[servers.Server]:
    port, folder = free_port(), tmp_path / "data"
    with weft_up(folder, port):
        made = weft("--data-dir", str(folder), "keys", "create", "--role", "viewer", "--everywhere", "--json")
        yield from running(lambda: servers.prometheus(configuration(port), made.document["token"]))


def asked(server: servers.Server, query: str) -> list[dict[str, Any]]:
    address = f"{server.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own server
        told = json.load(answer)
    assert told["status"] == "success"
    return list(told["data"]["result"])


def values(server: servers.Server, query: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(each["metric"][label] for label in labels): float(each["value"][1]) for each in asked(server, query)}


async def test_prometheus_knows_how_weft_stands(prometheus: servers.Server, tmp_path: Path) -> None:
    for script in ("true", SAYS, "exit 3"):
        spec = json.dumps({"script": script})
        submit = ["--data-dir", str(tmp_path / "data"), "--project", "shop", "runs", "submit", "--wait"]
        await asyncio.to_thread(weft, *submit, "--kind", "shell", "--name", "prices", "--spec", spec)
    await eventually(lambda: values(prometheus, 'up{job="weft"}') == {(): 1.0}, 60)
    ended = {("succeeded",): 2.0, ("failed",): 1.0}
    await eventually(lambda: values(prometheus, "weft_runs_ended_total", "outcome") == ended, 60)
    assert values(prometheus, "weft_worker_labels", "worker", "label") == {("w7-1", "gpu"): 1}
    assert values(prometheus, "weft_worker_capacity", "worker") == {("w7-1",): 10}
    assert values(prometheus, "weft_worker_memory_bytes", "worker")[("w7-1",)] > 1e6
    assert values(prometheus, "weft_custom", "project", "task", "name") == {("shop", "prices", "pages"): 1250}
    assert len(queries()) >= 5
    for query in queries():
        asked(prometheus, query)
    assert values(prometheus, queries()[-1], "task", "name") == {("prices", "pages"): 1250}
