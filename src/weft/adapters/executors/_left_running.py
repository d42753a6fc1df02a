"""What runs started, remembered in their folders: so that what a killed worker left running can be found and ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from weft.adapters.executors import _group
from weft.foreign_files import create, read_at_most

SWEPT_WITHIN_SECONDS = 1.0


def remember(folder: Path, pid: int, key: str) -> None:
    """Note that the group ``pid`` belongs to the run of this folder."""
    found = _group.stat(pid)
    with open(create(_record(folder)), "w") as file:
        file.write(f"{pid} {found.started if found else 0} {_group.boot_id()} {key}\n")


def forget(folder: Path) -> None:
    """Nothing of the run is left."""
    _record(folder).unlink(missing_ok=True)


def _record(folder: Path) -> Path:
    return folder / "process"


def sweep(folder: Path) -> bool:
    """Kill what a dead worker's run left behind in ``folder``; False where nothing of it runs.

    A process id alone proves nothing, it may be another's by now: the start time must match too, or, where only
    descendants are left, the run's key in their environment.
    """
    try:
        pid, started, boot, key = (read_at_most(_record(folder), 1000) or b"").decode().split()
        group = int(pid)
    except (OSError, ValueError):
        return False
    if group <= 1 or group == os.getpgrp() or boot != _group.boot_id():
        return False
    leader = _group.stat(group)
    if leader is not None and str(leader.started) != started:
        return False
    alive = _group.members(group)
    if not alive or (leader is None and not any(_group.carries(pid, "WEFT_IDEMPOTENCY_KEY", key) for pid in alive)):
        return False
    _kill_and_wait(group)
    return True


def _kill_and_wait(group: int) -> None:
    _group.signal_all(group, signal.SIGKILL)
    until = time.monotonic() + SWEPT_WITHIN_SECONDS
    while _group.members(group) and time.monotonic() < until:
        time.sleep(0.005)
