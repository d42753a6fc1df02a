"""A shell for each test of the command line, in a directory of its own and without settings from outside."""

import os
import shutil
from pathlib import Path

import pytest

from tests.checks import remembered_checks
from tests.cli.commanding import Shell
from tests.conftest import sqlite_copy

__all__ = ["newcomer", "remembered_checks", "shell"]


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_template: Path
) -> Shell:
    """On a weft that was started once."""
    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir(mode=0o700)
    sqlite_copy(sqlite_template, tmp_path / "data")
    return Shell(tmp_path / "data", capsys)


@pytest.fixture
def newcomer(shell: Shell) -> Shell:
    """The same where weft was never started."""
    shutil.rmtree(shell.folder)
    return shell
