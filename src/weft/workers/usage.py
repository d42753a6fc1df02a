"""What a worker takes of its machine."""

from __future__ import annotations

import os
from pathlib import Path

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def usage() -> dict[str, float]:
    """Processor time so far, with that of its commands that have ended, and memory now, where the system tells it."""
    times = os.times()
    spent = {"cpu_seconds": round(times.user + times.system + times.children_user + times.children_system, 2)}
    return spent | ({"memory_bytes": _resident_pages() * PAGE_BYTES} if STATM.exists() else {})


def _resident_pages() -> int:
    return int(STATM.read_text().split()[1])
