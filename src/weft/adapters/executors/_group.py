"""Process groups, as the kernel sees them: who is in one, since when, and how all of it is signalled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
