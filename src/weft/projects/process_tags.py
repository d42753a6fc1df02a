"""Ends a process and everything that it has started, by a tag that its processes inherit.

The agent puts a number on itself, as its limit of real-time CPU time, which nothing else uses. The kernel hands it on
through fork, exec, a new session and an emptied environment, and shows it to everybody.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
LIMIT_LINE = b"Max realtime timeout"
FIRST_TAG = 2**60
"""Marks are from here on: more than any real limit, and less than those of runs."""
LOOKS, PAUSE_SECONDS = 50, 0.02


def new_tag() -> int:
    return FIRST_TAG + secrets.randbits(56)


async def kill_tagged(process: Process, mark: int) -> None:
    """Kill the group of the process, and whoever has left it, until nobody is there."""
    for _ in range(LOOKS):
        _kill(process.pid, os.killpg)
        await process.wait()
        left = await asyncio.to_thread(tagged_pids, mark)
        if not left:
            return
        for pid in left:
            _kill(pid, os.kill)
        await asyncio.sleep(PAUSE_SECONDS)


def tagged_pids(mark: int) -> list[int]:
    """The processes that carry this mark and still run."""
    number = str(mark).encode()
    return [pid for pid in _pids() if _limit_of(pid) == number]


def _limit_of(pid: int) -> bytes:
    try:
        text = (PROC / str(pid) / "limits").read_bytes()
    except OSError:
        return b""
    line = next((line for line in text.splitlines() if line.startswith(LIMIT_LINE)), b"")
    return next(iter(line[len(LIMIT_LINE) :].split()), b"")


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def _kill(pid: int, kill: Callable[[int, int], None]) -> None:
    try:
        kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
