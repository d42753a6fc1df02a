"""A data directory on a disk that is read-only, full, or takes two names for one: told in one sentence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import Answer, weft
from tests.conftest import sqlite_copy
from tests.spiders import project
from tests.workers.test_full_disk import fill, mounted
from weft.cli.processes import check_data_dir
from weft.config import Config


@pytest.fixture
def disk(tmp_path: Path, sqlite_template: Path) -> Iterator[Path]:
    """A small disk, where a weft has its data in ``old``."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder):
        for name in ("old", "empty"):
            (folder / name).mkdir(mode=0o700)
        sqlite_copy(sqlite_template, folder / "old")
        yield folder


def started(command: str, folder: Path) -> Answer:
    return weft(command, "--data-dir", str(folder), env={"WEFT_PORT": "0", "WEFT_WORKERS": "1"})


def test_a_read_only_disk_is_refused_in_one_sentence(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for command in ("up", "serve", "worker"):
        for folder, what in (("new", "made"), ("empty", "written")):
            answer = started(command, disk / folder)
            said = f"the data directory {disk / folder} cannot be {what} (Read-only file system); name another with"
            assert (answer.code, answer.out, answer.err) == (78, "", f"{said} --data-dir\n"), command
        answer = started(command, disk / "old")
        assert (answer.code, answer.err.count("\n")) == (78, 1), command
        assert answer.err.startswith(f"the database {disk}/old/weft.db cannot be written (Read-only file system)"), (
            command
        )


COMMANDS = (("runs", "list"), ("runs", "submit", "--kind", "noop", "--spec", "{}"), ("deploy", "project"))


def test_commands_tell_of_a_read_only_disk_and_of_a_full_one_in_one_sentence(disk: Path, tmp_path: Path) -> None:
    project(tmp_path / "project")

    def asked(*words: str) -> Answer:
        return weft(*words, "--data-dir", str(disk / "old"), cwd=tmp_path)

    fill(disk)
    full = {words[:2]: asked(*words) for words in COMMANDS}
    assert {words: (each.out, each.err.count("\n")) for words, each in full.items()} == dict.fromkeys(full, ("", 1))
    assert all(each.code == 1 and "is full" in each.err for each in full.values()), full
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    fixed = {words[:2]: asked(*words) for words in COMMANDS}
    assert {words: (each.out, each.err.count("\n")) for words, each in fixed.items()} == dict.fromkeys(fixed, ("", 1))
    assert all(each.code == 78 and "Read-only file system" in each.err for each in fixed.values()), fixed


def test_a_full_disk_is_told_in_one_sentence(disk: Path) -> None:
    fill(disk)
    for command in ("up", "serve"):
        for folder in ("new", "empty", "old"):
            answer = started(command, disk / folder)
            said = f"the disk of {disk / folder} is full (0 KiB are left): make room on it\n"
            assert (answer.code, answer.out, answer.err) == (1, "", said), command
    answer = weft("runs", "list", "--data-dir", str(disk / "old"))
    assert (answer.code, answer.err) == (1, f"the disk of {disk / 'old'} is full (0 KiB are left): make room on it\n")


def test_a_disk_that_takes_two_names_for_one_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_data_dir(Config(data_dir=str(tmp_path)))
    assert (caplog.messages, list(tmp_path.iterdir())) == ([], [])
    # What is seen on such a disk: what was made under one name is there under the other as well.
    (tmp_path / f".WEFT-PROBE-{os.getpid()}").touch()
    check_data_dir(Config(data_dir=str(tmp_path)))
    assert [each.startswith("the file system of the data directory takes names") for each in caplog.messages] == [True]
