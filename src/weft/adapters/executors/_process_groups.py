"""The processes of a run as the kernel sees them: their group, the tag that none of them can lose, their priority.

Also finds those that a killed worker left running.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.untrusted_files import create, read_at_most

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Stat:
    """The few fields of /proc/PID/stat that tell one process from another."""

    state: str
    parent: int
    group: int
    started: int
    """In clock ticks since boot: with the process id, unique until the machine restarts."""


def stat(pid: int) -> Stat | None:
    """What the kernel says of a process; None where it is gone or the system has no /proc."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything, brackets and spaces too.
    fields = text.rpartition(")")[2].split()
    return Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[19]))


def members(group: int) -> list[int]:
    """The processes of the group that still run; one that only waits to be collected does not."""
    return [pid for pid in _pids() if (found := stat(pid)) and found.group == group and found.state not in "ZX"]


def signal_all(group: int, number: int) -> bool:
    """Send a signal to each process of the group; False where there is none."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # Somebody is there, but belongs to another user.
    return True


async def emptied(group: int, within_seconds: float) -> bool:
    """Wait until no process of the group runs; False where some still do when the time is over."""
    pause = 0.005
    try:
        async with asyncio.timeout(within_seconds):
            while signal_all(group, 0) and members(group):
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.2)
    except TimeoutError:
        return False
    return True


def boot_id() -> str:
    """Which start of the machine this is; process ids and start times repeat after the next."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def carries(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with this variable in its environment."""
    try:
        return f"{name}={value}".encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _pids() -> Iterator[int]:
    try:
        names = os.listdir(PROC)
    except OSError:
        return iter(())
    return (int(name) for name in names if name.isdigit())


FIRST = 2**61
"""Marks are from here on: more than any real limit, and less than none."""

UNDECIDED_SECONDS = 10.0
"""A process may be marked this long after it was first seen: a spider is, once its Python has started."""

LINE = b"Max realtime timeout"
ZYGOTE_LINE = b"Max file locks"


def tag_of(folder: Path) -> int:
    """The mark of the run whose folder this is; another on the same machine has another folder."""
    digest = hashlib.blake2b(os.fsencode(folder.absolute()), digest_size=7).digest()
    return FIRST + int.from_bytes(digest, "big")


def new_zygote_mark() -> int:
    """A mark for a zygote: none of a run's, whose own its forks carry beside it."""
    return FIRST + 2**56 + secrets.randbits(56)


@dataclass(slots=True)
class TaggedProcess:
    """A process that was seen: by its id, and the number of its entry in /proc, which no later one has."""

    entry: int
    first_seen: float
    mark: int = 0
    zygote: int = 0
    """The mark of the zygote that it is, or comes from."""


class TaggedProcesses:
    """Which process carries which mark, for all runs of a worker: what was read once is not read again."""

    def __init__(self) -> None:
        self._known: dict[int, TaggedProcess] = {}
        self._guard = threading.Lock()

    def carriers(self, mark: int) -> list[int]:
        """The processes that carry this mark now."""
        return self._those(lambda known: mark in (known.mark, known.zygote))

    def learning(self, mark: int) -> list[int]:
        """Those that look at a project for the zygote of this mark, and what they have started."""
        return self._those(lambda known: known.mark == mark)

    def importing(self, mark: int) -> list[int]:
        """All of the zygote of this mark but its runs."""
        return self._those(lambda known: known.zygote == mark and known.mark in (0, mark))

    def _those(self, wanted: Callable[[TaggedProcess], bool]) -> list[int]:
        with self._guard:
            self._look()
            return [pid for pid, known in self._known.items() if wanted(known)]

    def _look(self) -> None:
        now = time.monotonic()
        seen: dict[int, TaggedProcess] = {}
        for pid, entry in _entries():
            known = self._known.get(pid)
            if known is None or known.entry != entry:
                known = TaggedProcess(entry, now)
            if not known.mark and now - known.first_seen < UNDECIDED_SECONDS:
                known.mark, known.zygote = _marks(pid)
            seen[pid] = known
        self._known = seen


def _entries() -> list[tuple[int, int]]:
    try:
        with os.scandir(PROC) as found:
            return [(int(each.name), each.inode()) for each in found if each.name.isdigit()]
    except OSError:
        return []


def _marks(pid: int) -> tuple[int, int]:
    """The mark of a process and that of its zygote, 0 where it has none or is gone."""
    try:
        with open(f"{PROC}/{pid}/limits", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0, 0
    return _mark(text, LINE), _mark(text, ZYGOTE_LINE)


def _mark(text: bytes, line: bytes) -> int:
    _, _, after = text.partition(line)
    soft = after.split(None, 1)[0] if after.strip() else b""
    return int(soft) if soft.isdigit() and int(soft) >= FIRST else 0


CENSUS = TaggedProcesses()
"""One for the whole process: a look for one run serves the next."""


SWEPT_WITHIN_SECONDS = 1.0


def remember(folder: Path, pid: int, key: str) -> None:
    """Note that the group ``pid`` belongs to the run of this folder."""
    found = stat(pid)
    with open(create(_record(folder)), "w") as file:
        file.write(f"{pid} {found.started if found else 0} {boot_id()} {key}\n")


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
    if group <= 1 or group == os.getpgrp() or boot != boot_id():
        return False
    leader = stat(group)
    if leader is not None and str(leader.started) != started:
        return False
    alive = members(group)
    if not alive or (leader is None and not any(carries(pid, "WEFT_IDEMPOTENCY_KEY", key) for pid in alive)):
        return False
    _kill_and_wait(group)
    return True


def _kill_and_wait(group: int) -> None:
    signal_all(group, signal.SIGKILL)
    until = time.monotonic() + SWEPT_WITHIN_SECONDS
    while members(group) and time.monotonic() < until:
        time.sleep(0.005)


NICE = 10
"""About a tenth of the weight of weft's own processes."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.002, 1.0


def lower_soon(pid: int, pause: float = FIRST_PAUSE_SECONDS, started: int | None = None) -> None:
    """Lower the session that ``pid`` leads, or is just about to lead.

    Of users other than root the kernel takes ten such changes a second in all, so some come later.
    """
    found = stat(pid)
    if found is None or found.state in "ZX" or (started is not None and found.started != started):
        return
    if not (_leads(pid) and lower(pid)) and pause <= LONGEST_PAUSE_SECONDS:
        asyncio.get_running_loop().call_later(pause, lower_soon, pid, 2 * pause, found.started)


def lower(pid: int) -> bool:
    """Lower the session and the process group of ``pid``; False where the kernel wants to be asked again later."""
    try:
        group = os.getpgid(pid)
        if os.getpriority(os.PRIO_PGRP, group) < NICE:
            os.setpriority(os.PRIO_PGRP, group, NICE)
    except OSError:
        pass  # it has ended, or belongs to another user by now
    return _lower_session(pid)


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def _lower_session(pid: int) -> bool:
    try:
        file = os.open(f"/proc/{pid}/autogroup", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True  # this system has none, or the process has ended
    try:
        if not os.read(file, 100).endswith(b" nice 0\n"):
            return True
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, str(NICE).encode())
    except BlockingIOError:
        return False
    except OSError:
        pass
    finally:
        os.close(file)
    return True
