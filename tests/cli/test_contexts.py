"""``weft login`` and ``weft context``: the same commands on a weft elsewhere."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, environment
from tests.conftest import sqlite_copy
from tests.servers.server import free_port
from tests.waiting import eventually

PASSWORD = "correct-horse-9"


class Laptop:
    """Somebody's machine, with commands and no database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "password").write_text(f"{PASSWORD}\n")

    def __call__(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        told = environment(XDG_CONFIG_HOME=str(self.folder / "config"), **settings)
        return subprocess.run([WEFT, *words], env=told, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def login(self) -> subprocess.CompletedProcess[str]:
        return self("login", self.url, "--password-file", "password", "--name", "far")


@pytest.fixture
def url(sqlite_template: Path, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    database = sqlite_copy(sqlite_template, tmp_path)
    settings = {"WEFT_DATABASE": database, "WEFT_ADMIN_PASSWORD": PASSWORD, "WEFT_DATA_DIR": str(tmp_path / "data")}
    command = [WEFT, "serve", "--port", str(port), "--roles", "gateway"]
    with (tmp_path / "serve.log").open("wb") as out:
        process = subprocess.Popen(command, env=environment(**settings), stdout=out, stderr=out)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
async def laptop(url: str, tmp_path: Path) -> Laptop:
    folder = tmp_path / "laptop"
    folder.mkdir()
    here = Laptop(folder, url)

    await eventually(lambda: here.login().returncode == 0, 30)
    return here


async def test_commands_speak_to_the_weft_that_was_logged_in_to(laptop: Laptop) -> None:
    submitted = laptop("runs", "submit", "--kind", "noop", "--spec", "{}", "--json")
    assert submitted.returncode == 0, submitted.stderr
    listed = laptop("runs", "list")
    assert "queued" in listed.stdout, listed.stderr
    assert laptop("runs", "cancel", "1").returncode == 0
    missing = laptop("runs", "show", "77")
    assert (missing.returncode, missing.stderr) == (1, "there is no run 77\n")


async def test_the_weft_of_this_machine_is_one_word_away(laptop: Laptop) -> None:
    assert "far" in laptop("context", "list").stdout
    elsewhere = laptop("--context", "here", "runs", "list")
    assert elsewhere.returncode != 0
    assert "--data-dir" in elsewhere.stderr or "weft-data" in elsewhere.stderr, elsewhere.stderr
    assert laptop("context", "use", "here").returncode == 0
    assert laptop("runs", "list", WEFT_CONTEXT="far").returncode == 0
    assert laptop("runs", "list").returncode != 0


async def test_keys_are_for_their_owner_alone(laptop: Laptop) -> None:
    file = laptop.folder / "config" / "weft" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "weft_" in file.read_text()
    assert laptop("context", "delete", "far").returncode == 0
    assert "weft_" not in file.read_text()


async def test_a_wrong_password_and_an_unknown_context_are_told(laptop: Laptop) -> None:
    (laptop.folder / "password").write_text("not-the-password")
    refused = laptop.login()
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    unknown = laptop("--context", "nowhere", "runs", "list")
    assert (unknown.returncode, "there is no context nowhere" in unknown.stderr) == (1, True)
