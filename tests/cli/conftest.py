"""A shell for each test of the command line, in a directory of its own and without settings from outside."""

import os
from pathlib import Path

import pytest

from tests.checks import remembered_checks
from tests.cli.commanding import Shell

__all__ = ["remembered_checks", "shell"]


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in os.environ:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path / "data", capsys)
