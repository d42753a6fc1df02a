"""The folders in which archives arrive: one that is in use is left alone, one of the dead is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.projects.projects import UploadFolders

HOLDER = """
import sys
from pathlib import Path
from weft.projects.projects import UploadFolders

print(UploadFolders(Path(sys.argv[1])).take("upload").name, flush=True)
sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def test_a_folder_of_another_process_stays_until_that_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    held = holder.stdout.readline().strip()
    with UploadFolders(tmp_path).place("check"):
        assert held in names(tmp_path)
    holder.kill()
    holder.communicate()
    with UploadFolders(tmp_path).place("check") as place:
        assert names(tmp_path) == [place.name]


def test_a_folder_that_is_in_use_stays_where_the_same_process_takes_another(tmp_path: Path) -> None:
    incoming = UploadFolders(tmp_path)
    with incoming.place("upload") as first, incoming.place("check") as second:
        assert first.is_dir()
        assert second.is_dir()
    assert names(tmp_path) == []


@pytest.mark.parametrize(("age", "stays"), [(10, True), (100_000, False)])
def test_what_was_left_before_it_was_locked_is_removed_after_a_day(tmp_path: Path, age: int, stays: bool) -> None:
    early = tmp_path / ".upload-x"
    early.mkdir()
    at = early.stat().st_mtime - age
    os.utime(early, (at, at))
    with UploadFolders(tmp_path).place("check"):
        assert early.exists() is stays
