"""Watches what a run uses, all its processes together, and names the limit that it meets.

The kernel's own limits (``agent/rlimits.py``) hold for single processes and end them without a word; here a run ends
with a reason.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from weft.adapters.executors import _group
from weft.adapters.executors._limits import Limits
from weft.adapters.executors._marks import CENSUS, mark_of
from weft.adapters.executors._progress import Progress
from weft.adapters.executors._usage import MANY_BYTES, Usage, folder_bytes, memory, proportional_memory, usage

LOOK_SECONDS = 0.5
PEEKS = 5
"""Glances in between at one number of the whole machine, so that a burst of new processes is noticed sooner."""

WALK_SHARE = 20
"""After it was measured a folder is left alone for this many times as long: it may hold a million files."""

SWEPT_WITHIN_SECONDS = 5.0


class Overseer:
    """Of one run: ``folder`` is its folder and ``group`` the process group that it began with."""

    def __init__(self, folder: Path, group: int, limits: Limits) -> None:
        self._folder, self._group, self._limits = folder, group, limits
        self._mark = mark_of(folder)
        self._spent: dict[tuple[int, int], float] = {}
        self._walk_again_at = 0.0
        self._progress = Progress(folder)

    async def watch(self) -> tuple[str, str]:
        """Return the outcome and the reason once a limit is met; until then, wait."""
        while True:
            await _half_a_second_or_a_burst(self._limits.processes)
            met = await asyncio.to_thread(self.look)
            if met is not None:
                return met

    def look(self) -> tuple[str, str] | None:
        """The limit that is met now. Blocks for as long as the folder takes to be measured."""
        found = [each for pid in self._members() if (each := usage(pid)) is not None]
        return self._crowd(found) or self._memory(found) or self._cpu(found) or self._disk() or self._stalled()

    def _members(self) -> list[int]:
        return CENSUS.carriers(self._mark) or _group.members(self._group)

    def _crowd(self, found: list[Usage]) -> tuple[str, str] | None:
        if len(found) <= self._limits.processes:
            return None
        return "processes", f"it had {len(found)} processes, {self._limits.processes} are allowed"

    def _memory(self, found: list[Usage]) -> tuple[str, str] | None:
        each = [memory(process.pid) for process in found]
        together = sum(one.now for one in each)
        if together > self._limits.memory_bytes:
            together = sum(proportional_memory(process.pid) for process in found)
        used = max([together, *(one.peak for one in each)])
        if used <= self._limits.memory_bytes:
            return None
        return "oom", f"it used {_mib(used)} of memory, {_mib(self._limits.memory_bytes)} are allowed"

    def _cpu(self, found: list[Usage]) -> tuple[str, str] | None:
        """Processes that have ended count too: by what was seen of them, or by what those who waited for them say."""
        self._spent.update({(process.pid, process.started): process.cpu_seconds for process in found})
        spent = max(sum(self._spent.values()), sum(each.cpu_seconds + each.waited_seconds for each in found))
        if not self._limits.cpu_seconds or spent <= self._limits.cpu_seconds:
            return None
        return "cpu_limit", f"it used {spent:.1f} s of CPU time, {self._limits.cpu_seconds} s are allowed"

    def _disk(self) -> tuple[str, str] | None:
        began = time.monotonic()
        if began < self._walk_again_at:
            return None
        used = folder_bytes(str(self._folder))
        ended = time.monotonic()
        self._walk_again_at = ended + WALK_SHARE * (ended - began)
        if used <= self._limits.disk_bytes:
            return None
        if used == MANY_BYTES:
            return "disk_limit", "its folders lie too deep in each other to be measured"
        return "disk_limit", f"its files take up {_mib(used)}, {_mib(self._limits.disk_bytes)} are allowed"

    def _stalled(self) -> tuple[str, str] | None:
        patience = self._limits.stalled_seconds
        if not patience or self._progress.silent_seconds() <= patience:
            return None
        return "stalled", f"it made no request and no item for {patience} s"


async def sweep_run(folder: Path) -> int:
    """Kill all that the run of this folder has left behind, in whatever group or session; returns how many."""
    return await asyncio.to_thread(sweep_at_once, folder)


def sweep_at_once(folder: Path) -> int:
    """The same, and blocks meanwhile.

    First stop, then kill: a process that forks faster than it is looked for is held before it is ended.
    """
    mark = mark_of(folder)
    held: set[tuple[int, int]] = set()
    until = time.monotonic() + SWEPT_WITHIN_SECONDS
    while (found := _alive(mark)) and time.monotonic() < until:
        fresh = found - held
        number = signal.SIGSTOP if fresh else signal.SIGKILL
        for pid, started in fresh or found:
            _send(pid, started, number)
        held |= fresh
        if number == signal.SIGKILL:
            time.sleep(0.005)
    for pid, started in found:
        _send(pid, started, signal.SIGKILL)
    return len(held)


def _alive(mark: int) -> set[tuple[int, int]]:
    found = (usage(pid) for pid in CENSUS.carriers(mark) if pid != os.getpid())
    return {(each.pid, each.started) for each in found if each is not None}


def _send(pid: int, started: int, number: int) -> None:
    """Signal this very process, and not one that has got its id meanwhile."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        now = _group.stat(pid)
        if now is not None and now.started == started:
            signal.pidfd_send_signal(process, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(process)


async def _half_a_second_or_a_burst(processes: int) -> None:
    before = _tasks()
    for _ in range(PEEKS):
        await asyncio.sleep(LOOK_SECONDS / PEEKS)
        if _tasks() - before > processes:
            return


def _tasks() -> int:
    """All processes and threads of the machine."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[3].split(b"/")[1])
    except (OSError, ValueError, IndexError):
        return 0


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
