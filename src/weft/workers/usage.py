"""What a worker takes of its machine."""

from __future__ import annotations

import os
from pathlib import Path

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def usage() -> dict[str, float]:
    """Processor time so far, with that of its commands that have ended, the load of its machine over the last minute,
    and memory now, where the system tells it."""
    times = os.times()
    spent = {"cpu_seconds": round(times.user + times.system + times.children_user + times.children_system, 2)}
    spent |= {"load": round(os.getloadavg()[0], 2), "cores": os.cpu_count() or 1}
    return spent | ({"memory_bytes": _resident_pages() * PAGE_BYTES} if STATM.exists() else {})


def _resident_pages() -> int:
    return int(STATM.read_text().split()[1])
