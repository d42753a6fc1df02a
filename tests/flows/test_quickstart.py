"""The quickstart, as a reader would follow it: a real weft, and every command of the page in its order."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, answers
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.cli.serve import EXAMPLE_FOLDER, EXAMPLE_SETTINGS, EXAMPLE_SITE
from weft.demo import PAGE_SIZE, site

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands(port: int = 6800) -> list[list[str]]:
    """As they are on the page, for a weft on another port where told."""
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    lines = [line.replace("127.0.0.1:6800", f"127.0.0.1:{port}") for line in lines]
    return [[WEFT, *shlex.split(line)[1:]] for line in lines if line.startswith(".venv/bin/weft ")]


@pytest.fixture
def weft_in(tmp_path: Path) -> Iterator[Path]:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    with (tmp_path / "output").open("wb") as output:
        up = subprocess.Popen(
            [WEFT, "up", "--port", str(port)], cwd=tmp_path, env=environment, stdout=output, stderr=output
        )
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        copy_example(tmp_path / "mine", f"http://127.0.0.1:{port}/demo/")
        (tmp_path / "port").write_text(str(port))
        yield tmp_path
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)
    assert up.returncode == 0


def copy_example(folder: Path, site: str) -> None:
    """What the page's ``cp`` does, for a demo site on the port of this test."""
    shutil.copytree(EXAMPLE_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    settings = folder / EXAMPLE_SETTINGS
    settings.write_text(settings.read_text().replace(EXAMPLE_SITE, f'"{site}"'))


def has_example(folder: Path) -> bool:
    asked = [WEFT, "spiders", "examples"]
    return subprocess.run(asked, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


def test_every_command_of_the_quickstart_does_what_it_says(weft_in: Path) -> None:
    (weft_in / "tasks.toml").write_text(blocks("toml")[0], encoding="utf-8")
    asyncio.run(eventually(lambda: has_example(weft_in), 60))
    said, port = {}, int((weft_in / "port").read_text())
    for command in commands(port):
        done = subprocess.run(command, cwd=weft_in, capture_output=True, text=True, timeout=90, check=False)
        expected = 3 if command[1] == "crawl" else 0  # the maze has a calendar without an end
        assert done.returncode == expected, f"{command[1:]}: {done.stdout}{done.stderr}"
        said[" ".join(command[1:])] = done.stdout
    assert len(commands()) >= 10
    assert "hello reader" in said["tasks run examples/hello -p name=reader --follow"]
    assert "mine/report" in said["runs list"]
    assert "calendar" in said["crawls skips 1"]
    assert said[f"crawls why 1 http://127.0.0.1:{port}/demo/maze/cellar/1/"] == "robots.txt does not allow it\n"
    assert "pages: str = ''" in said["spiders examples"]
    assert rows_of(said["items quotes --format csv"]) == sorted(q.text for q in site().quotes if "love" in q.tags)
    assert rows_of(said["items quotes --project mine --format csv"]) == sorted(
        q.text for q in site().quotes[:PAGE_SIZE]
    )


def rows_of(text: str) -> list[str]:
    return sorted(row["text"] for row in csv.DictReader(io.StringIO(text)))
