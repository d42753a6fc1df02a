"""The quickstart, as a reader would follow it: a real weft, and every command of the page in its order."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, answers
from tests.servers.server import free_port
from tests.waiting import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
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
        yield tmp_path
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)
    assert up.returncode == 0


def test_every_command_of_the_quickstart_does_what_it_says(weft_in: Path) -> None:
    (weft_in / "tasks.toml").write_text(blocks("toml")[0], encoding="utf-8")
    said = {}
    for command in commands():
        done = subprocess.run(command, cwd=weft_in, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{command[1:]}: {done.stdout}{done.stderr}"
        said[" ".join(command[1:])] = done.stdout
    assert len(commands()) >= 10
    assert "hello reader" in said["tasks run examples/hello -p name=reader --follow"]
    assert "mine/report" in said["runs list"]
