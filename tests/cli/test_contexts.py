"""``weft login`` and ``weft context``: the same commands on a weft elsewhere."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, Answer, answers, environment, weft
from tests.conftest import sqlite_copy
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")

PASSWORD = "correct-horse-9"


class Laptop:
    """Somebody's machine, with commands and no database. Commands run in this process, unless they are real ones."""

    def __init__(self, folder: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.url, self._capsys = folder, url, capsys
        (folder / "password").write_text(f"{PASSWORD}\n")

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = self._capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    def real(self, *words: str) -> Answer:
        return weft(*words, cwd=self.folder, env={"XDG_CONFIG_HOME": str(self.folder / "config")})

    @property
    def login(self) -> tuple[str, ...]:
        return "login", self.url, "--password-file", "password", "--name", "far"


@pytest.fixture(scope="module")
def url(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A weft that all laptops log in to."""
    folder, port = tmp_path_factory.mktemp("far"), free_port()
    database = sqlite_copy(sqlite_template, folder)
    settings = {"WEFT_DATABASE": database, "WEFT_ADMIN_PASSWORD": PASSWORD, "WEFT_DATA_DIR": str(folder / "data")}
    command = [WEFT, "serve", "--port", str(port), "--process-roles", "gateway"]
    with (folder / "serve.log").open("wb") as out:
        process = subprocess.Popen(command, env=environment(**settings), stdout=out, stderr=out)
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def laptop(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Laptop:
    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return Laptop(tmp_path, url, capsys)


@pytest.fixture
def logged_in(laptop: Laptop) -> Laptop:
    answer = laptop(*laptop.login)
    assert answer.code == 0, answer
    return laptop


def test_commands_speak_to_the_weft_that_was_logged_in_to(laptop: Laptop) -> None:
    assert laptop.real(*laptop.login).code == 0
    submitted = laptop.real("runs", "submit", "--kind", "noop", "--spec", "{}", "--json")
    assert submitted.code == 0, submitted.err
    listed = laptop("runs", "list")
    assert "queued" in listed.out, listed.err
    assert laptop("runs", "cancel", str(submitted.document["run_id"])).code == 0
    missing = laptop("runs", "show", "77")
    assert (missing.code, missing.err) == (1, "there is no run 77\n")


def test_the_weft_of_this_machine_is_one_word_away(logged_in: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "far" in logged_in("context", "list").out
    elsewhere = logged_in("--context", "here", "runs", "list")
    assert elsewhere.code != 0
    assert "--data-dir" in elsewhere.err or "weft-data" in elsewhere.err, elsewhere.err
    assert logged_in("context", "use", "here").code == 0
    with monkeypatch.context() as told:
        told.setenv("WEFT_CONTEXT", "far")
        assert logged_in("runs", "list").code == 0
    assert logged_in("runs", "list").code != 0


def test_a_weft_elsewhere_is_watched_as_one_that_is_here(logged_in: Laptop) -> None:
    watched = logged_in("--context", "far", "top", "--once")
    assert (watched.code, watched.err) == (0, "")
    assert watched.out.startswith("ready ")
    document = logged_in("top", "--json").document
    assert list(document["live"]) == ["ready", "waiting", "paused", "running", "held"]
    crawls = logged_in("crawls", "list")
    assert (crawls.code, crawls.err) == (0, "")


def test_keys_are_for_their_owner_alone(logged_in: Laptop) -> None:
    file = logged_in.folder / "config" / "weft" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "weft_" in file.read_text()
    assert logged_in("context", "delete", "far").code == 0
    assert "weft_" not in file.read_text()


def test_a_wrong_password_and_an_unknown_context_are_told(laptop: Laptop) -> None:
    (laptop.folder / "password").write_text("not-the-password")
    refused = laptop.real(*laptop.login)
    assert refused.code == 1
    assert "Traceback" not in refused.err
    unknown = laptop("--context", "nowhere", "runs", "list")
    assert (unknown.code, "there is no context nowhere" in unknown.err) == (1, True)
