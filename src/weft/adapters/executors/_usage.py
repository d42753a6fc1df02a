"""What processes and folders use, as the kernel tells it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from weft.adapters.executors._group import PROC

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
    return Usage(pid, int(fields[19]), spent, waited)


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


def folder_bytes(folder: str) -> int:
    """What all files below take up on the disk; links are not followed, folders that were locked are opened again."""
    total, waiting = 0, [folder]
    while waiting:
        place = waiting.pop()
        try:
            with _opened(place) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue  # It was deleted meanwhile.
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:
                return MANY_BYTES  # Nested so deep that something may hide there.
    return total


def _opened(folder: str) -> os._ScandirIterator[str]:
    try:
        return os.scandir(folder)
    except PermissionError:
        os.chmod(folder, 0o700, follow_symlinks=False)
        return os.scandir(folder)
