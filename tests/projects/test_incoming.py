"""The folders in which archives arrive: one that is in use is left alone, one of the dead is removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

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


def test_what_was_left_before_it_was_locked_is_removed_at_once(tmp_path: Path) -> None:
    early = tmp_path / "upload-x"
    early.mkdir()
    with UploadFolders(tmp_path).place("check") as place:
        assert names(tmp_path) == [place.name]


def test_nobody_looks_for_abandoned_folders_while_another_makes_one(tmp_path: Path) -> None:
    looking = threading.Thread(target=UploadFolders(tmp_path).take, args=["check"], daemon=True)
    making = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(making, fcntl.LOCK_EX)
    unlocked = tmp_path / "upload-x"
    unlocked.mkdir()
    looking.start()
    looking.join(0.2)
    assert unlocked.is_dir()
    lock = os.open(unlocked, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(making)
    looking.join()
    assert unlocked.is_dir()
    os.close(lock)
