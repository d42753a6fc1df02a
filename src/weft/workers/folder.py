"""The folder that a worker keeps its runs in: one process at a time has it, so that sweeping it harms nobody else."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from weft.projects.model import Code

OF_CODE = "code-"
"""How the folders begin that hold the runs of one version of a project's code."""


def hold(folder: Path) -> int | None:
    """Have the folder until this process ends, however it ends, or the answer is closed; None while another has it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def note_heartbeat(folder: Path) -> None:
    """Leave a sign for `weft worker health` that a heartbeat of this worker was answered."""
    lock = _lock_of(folder)
    if lock.exists():  # a worker in a test may hold none
        os.utime(lock)


def workers_alive(runs: Path) -> Iterator[tuple[str, float]]:
    """The workers whose process runs on this machine, and how many seconds ago a heartbeat was answered last."""
    for lock in sorted(runs.glob("*~")):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield lock.name.removesuffix("~"), max(time.time() - lock.stat().st_mtime, 0.0)


def _lock_of(folder: Path) -> Path:
    """No worker's name has a ~, so this is no worker's folder."""
    return folder.with_name(f"{folder.name}~")


def place_of_runs(folder: Path, code: Code | None) -> Path:
    """Where the folders of runs are. Those that execute a project's code have a place for each version of it: a process
    that has the code imported may write there, and so not into the runs of others."""
    return folder if code is None else folder / f"{OF_CODE}{code.digest[:16]}"


def run_folders(folder: Path) -> list[Path]:
    """The folders of all runs, in order."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    own = [each for each in found if not each.name.startswith(OF_CODE)]
    return own + [each for place in found if place.name.startswith(OF_CODE) for each in sorted(place.iterdir())]
