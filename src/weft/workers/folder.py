"""The folder that a worker keeps its runs in: one process at a time has it, so that sweeping it harms nobody else."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def hold(folder: Path) -> int | None:
    """Have the folder until this process ends, however it ends, or the answer is closed; None while another has it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # No worker's name has a ~, so this is no worker's folder.
    lock = os.open(folder.with_name(f"{folder.name}~"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
