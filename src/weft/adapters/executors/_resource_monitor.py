"""Watches what all processes of a run use together, and names the limit that it meets."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from weft.adapters.executors import _process_groups
from weft.adapters.executors._process_groups import CENSUS, PROC, tag_of
from weft.adapters.executors._spec import Limits

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
KIB = 1024
MANY_BYTES = 2**62
"""What a folder is said to hold whose size cannot be found out."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: ``started`` tells it from a later one with its id."""

    pid: int
    started: int
    cpu_seconds: float
    waited_seconds: float
    """Of its children that have ended, and theirs."""
    threads: int


def usage(pid: int) -> Usage | None:
    """What a process has used; None where it is gone, or only waits to be collected."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(2048).rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in b"ZX":
        return None
    user, system, waited_user, waited_system = map(int, fields[11:15])
    spent, waited = (user + system) * TICK_SECONDS, (waited_user + waited_system) * TICK_SECONDS
    return Usage(pid, int(fields[19]), spent, waited, int(fields[17]))


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in bytes: what is its own or in memory files, and the most that it ever had."""

    now: int
    peak: int


def memory(pid: int) -> Memory:
    """Files that are only mapped do not count: the kernel takes their pages back when it needs them."""
    found = _numbers(f"{PROC}/{pid}/status", (b"RssAnon", b"RssShmem", b"VmSwap", b"VmHWM", b"RssFile"))
    now = found[b"RssAnon"] + found[b"RssShmem"] + found[b"VmSwap"]
    return Memory(now, max(now, found[b"VmHWM"] - found[b"RssFile"]))


def proportional_memory(pid: int) -> int:
    """As ``memory``, with what processes share divided among them. Costs far more, so it is asked when it decides."""
    found = _numbers(f"{PROC}/{pid}/smaps_rollup", (b"Pss_Anon", b"Pss_Shmem", b"SwapPss"))
    return sum(found.values()) or memory(pid).now


def _numbers(path: str, names: Iterable[bytes]) -> dict[bytes, int]:
    """Lines of ``name: number kB``, in bytes; 0 for what is not there."""
    found = dict.fromkeys(names, 0)
    try:
        with open(path, "rb", buffering=0) as file:
            lines = file.read(16_384).split(b"\n")
    except OSError:
        return found
    for line in lines:
        name, _, rest = line.partition(b":")
        if name in found:
            found[name] = int(rest.split()[0]) * KIB
    return found


def folder_use(folder: str, most_files: int) -> tuple[int, int]:
    """What all files below take up on the disk, and how many files and folders there are; it stops counting after
    ``most_files``. Links are not followed, folders that were locked are opened again."""
    total, count, waiting = 0, 0, [folder]
    while waiting and count <= most_files:
        place = waiting.pop()
        try:
            with _opened(place) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    count += 1
                    if count > most_files:
                        break
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue  # It was deleted meanwhile.
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:
                return MANY_BYTES, count  # Nested so deep that something may hide there.
    return total, count


def _opened(folder: str) -> os._ScandirIterator[str]:
    try:
        return os.scandir(folder)
    except PermissionError:
        os.chmod(folder, 0o700, follow_symlinks=False)
        return os.scandir(folder)


LARGEST = 2**20
"""Bytes that are read of the statistics."""

IDLE = ("elapsed", "memusage/", "log_count/", "start_time", "finish_time", "periodic_log/")
"""Statistics that change by themselves; the rest changes when something happens."""


class Progress:
    """Compares each look with the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: object = None
        self._since = time.monotonic()

    def silent_seconds(self) -> float:
        """For how long nothing has changed."""
        now, found = time.monotonic(), (self._counted(), self._written())
        if found != self._last:
            self._last, self._since = found, now
        return now - self._since

    def _counted(self) -> Mapping[str, Any]:
        try:
            said = json.loads(_beginning(self._folder / "stats.json"))["stats"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return {}
        if not isinstance(said, dict):
            return {}
        return {name: value for name, value in said.items() if not name.startswith(IDLE)}

    def _written(self) -> list[tuple[str, int]]:
        """The segments of the spool: the worker takes away those that are full, which is a change too."""
        try:
            with os.scandir(self._folder / "items") as found:
                return sorted((each.name, each.stat(follow_symlinks=False).st_size) for each in found)
        except OSError:
            return []


def _beginning(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)


LOOK_SECONDS = 0.5
PEEKS = 5
"""Glances in between at one number of the whole machine, so that a burst of new processes is noticed sooner."""

WALK_SHARE = 20
"""After it was measured a folder is left alone for this many times as long: it may hold a million files."""

SWEPT_WITHIN_SECONDS = 5.0


class ResourceMonitor:
    """Of one run: ``folder`` is its folder and ``group`` the process group that it began with.

    Without a folder, of a zygote: ``carriers`` then finds its processes.
    """

    def __init__(
        self, folder: Path | None, group: int, limits: Limits, carriers: Callable[[], list[int]] | None = None
    ) -> None:
        self._folder, self._group, self._limits = folder, group, limits
        self._carriers = carriers or partial(CENSUS.carriers, 0 if folder is None else tag_of(folder))
        self._spent: dict[tuple[int, int], float] = {}
        self._lowered: set[int] = set()
        self._walk_again_at = 0.0
        self._progress = Progress(folder or Path())

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
        self._lower(found)
        return self._crowd(found) or self._memory(found) or self._cpu(found) or self._disk() or self._stalled()

    def _members(self) -> list[int]:
        return self._carriers() or _process_groups.members(self._group)

    def _lower(self, found: list[Usage]) -> None:
        """A process may have moved to a session of its own, as one in bubblewrap does; that has its own weight."""
        for process in found:
            if process.pid not in self._lowered and _process_groups.lower(process.pid):
                self._lowered.add(process.pid)

    def _crowd(self, found: list[Usage]) -> tuple[str, str] | None:
        threads = sum(process.threads for process in found)
        if len(found) > self._limits.processes:
            return "processes", f"it had {len(found)} processes, {self._limits.processes} are allowed"
        if threads > self._limits.threads:
            return "processes", f"it had {threads} threads, {self._limits.threads} are allowed"
        return None

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
        if self._folder is None or began < self._walk_again_at:
            return None
        used, files = folder_use(str(self._folder), self._limits.disk_files)
        ended = time.monotonic()
        self._walk_again_at = ended + WALK_SHARE * (ended - began)
        if files > self._limits.disk_files:
            return "disk_limit", f"it had more than {self._limits.disk_files:,} files in its folder"
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
    """The same, and blocks meanwhile."""
    return sweep(partial(CENSUS.carriers, tag_of(folder)))


def sweep(carriers: Callable[[], list[int]]) -> int:
    """Kill all processes that ``carriers`` finds, until it finds none; returns how many. Blocks meanwhile.

    First stop, then kill: a process that forks faster than it is looked for is held before it is ended.
    """
    held: set[tuple[int, int]] = set()
    until = time.monotonic() + SWEPT_WITHIN_SECONDS
    while (found := _alive(carriers)) and time.monotonic() < until:
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


def _alive(carriers: Callable[[], list[int]]) -> set[tuple[int, int]]:
    found = (usage(pid) for pid in carriers() if pid != os.getpid())
    return {(each.pid, each.started) for each in found if each is not None}


def _send(pid: int, started: int, number: int) -> None:
    """Signal this very process, and not one that has got its id meanwhile."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        now = _process_groups.stat(pid)
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
