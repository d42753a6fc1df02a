"""The kernel's limits for one process, and the mark by which everything that a run has started is found again.

They are the second line: the worker's overseer watches the whole run and names what was too much. A limit here has
head-room, so that the overseer comes first; it holds where half a second is too long to wait.
"""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HEADROOM_BYTES = 256 * 2**20
"""Of private memory beyond the run's limit: stacks of threads and what the allocator holds are counted, not used."""

CPU_GRACE_SECONDS = 5

NO_CORE = 0

MARK_RESOURCE = getattr(resource, "RLIMIT_RTTIME", 15)
"""The limit that carries the mark. It means something to real-time scheduling alone, which no spider may use."""

ZYGOTE_MARK_RESOURCE = 10
"""The limit that carries the mark of a zygote, beside which each of its runs has a mark of its own: RLIMIT_LOCKS, which
Linux keeps and has not looked at since 2.4."""


def lower(limits: Mapping[str, Any]) -> None:
    """Lower what the run's limits name, never raise; what this system does not know is left out.

    ``soft`` among them leaves the hard limits as they are: runs that a zygote forks may be allowed more than it.
    """
    _at_most("RLIMIT_CORE", NO_CORE)
    soft = bool(limits.get("soft"))
    if memory := limits.get("memory_bytes"):
        _at_most("RLIMIT_DATA", int(memory) + HEADROOM_BYTES, soft)
    if files := limits.get("files"):
        _at_most("RLIMIT_NOFILE", int(files), soft)
    if largest := limits.get("file_bytes") or limits.get("disk_bytes"):
        _at_most("RLIMIT_FSIZE", int(largest), soft)
    if seconds := limits.get("cpu_seconds"):
        _at_most("RLIMIT_CPU", int(seconds) + CPU_GRACE_SECONDS, soft)
    if processes := limits.get("processes"):
        most = max(int(processes) * 8, int(limits.get("threads", 0)))
        _at_most("RLIMIT_NPROC", _tasks_of_the_machine() * 2 + most, soft)


def mark(number: int, carrier: int = MARK_RESOURCE) -> bool:
    """Put the run's mark on this process and on all that it will start; whether the system can.

    A limit stays through fork, exec, a new session and an emptied environment, and everybody may read it.
    """
    try:
        resource.setrlimit(carrier, (number, number))
    except (OSError, ValueError):
        return False
    return True


def _at_most(name: str, value: int, soft: bool = False) -> None:
    number = getattr(resource, name, None)
    if number is None:
        return
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(number, (value, hard if soft else value))
    except (OSError, ValueError):
        pass  # Some systems refuse what they list.


def _tasks_of_the_machine() -> int:
    """All processes and threads: the limit counts a user's, and one run must not be in the way of his others."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].split(b"/")[1])
    except (OSError, ValueError, IndexError):
        return 4096
