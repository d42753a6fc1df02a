"""The zygotes of a worker: processes that have a project's code imported and fork for each run.

A start costs milliseconds. Those that nobody needs are let go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.adapters.executors._zygote import READY_WITHIN_SECONDS, Unready, Zygote
from weft.ports import ReadyCode

MOST_IDLE = 8
IDLE_SECONDS = 900.0
"""How many zygotes without runs are kept, and how long."""
UNFIT_SECONDS = 300.0
"""How long code that cannot be forked is started cold, before that is tried again."""
LOW_MEMORY = 0.1
"""Below this share of free memory, zygotes without runs are let go."""

Key = tuple[str, str, str, int]
"""The digest of the code, the interpreter, the isolation, and what the walls are around."""


class Zygotes:
    """The zygotes of a worker: one for each version of code that it has been asked for lately."""

    def __init__(self) -> None:
        self._all: dict[Key, asyncio.Task[Zygote]] = {}
        self._unfit: dict[Key, tuple[float, str]] = {}

    async def get(self, code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> Zygote:
        """The zygote of this code, made where there is none. Raises ``Unready`` where the code cannot be forked."""
        key = (code.digest, str(code.python), str(order["isolation"]), _walled(code.folder, order))
        found_at, why = self._unfit.get(key, (float("-inf"), ""))
        if time.monotonic() - found_at < UNFIT_SECONDS:
            raise Unready(why)
        task = self._all.get(key)
        if task is None or not _is_of_use(task):
            task = self._all[key] = asyncio.create_task(_ready(code, order, env))
            self._let_go(key)
            asyncio.get_running_loop().call_later(IDLE_SECONDS + READY_WITHIN_SECONDS, self._let_go)
        try:
            return await asyncio.shield(task)
        except Unready as unready:
            self._unfit[key] = (time.monotonic(), str(unready))
            raise

    def release(self) -> None:
        """Close those without runs."""
        for key, task in list(self._all.items()):
            if not task.done():
                task.cancel()
            elif task.cancelled() or task.exception() is not None:
                del self._all[key]
            elif task.result().is_idle:
                self._all.pop(key).result().close()

    def _let_go(self, kept: Key | None = None) -> None:
        """Close zygotes without runs: the least recently used beyond a number, those that nobody has used for long,
        and all where memory is short."""
        ready = [(key, task.result()) for key, task in self._all.items() if task.done() and _is_of_use(task)]
        idle = sorted((z.used_at, key) for key, z in ready if z.is_idle and key != kept)
        most, long_ago = 0 if _memory_is_short() else MOST_IDLE, time.monotonic() - IDLE_SECONDS
        for place, (used_at, key) in enumerate(idle):
            if place < len(idle) - most or used_at < long_ago:
                self._all.pop(key).result().close()


def _walled(folder: Path, order: Mapping[str, Any]) -> int:
    """Differs for runs elsewhere, and for code that was dropped and fetched again: walls know folders, not names."""
    found = folder.stat()
    return hash((found.st_ino, found.st_mtime_ns, *order["write"]))


def _is_of_use(task: asyncio.Task[Zygote]) -> bool:
    """Whether a zygote is there, or on its way, in the loop that runs now."""
    if task.get_loop() is not asyncio.get_running_loop():
        return False
    return not task.done() or not (task.cancelled() or task.exception() is not None or task.result().is_gone)


async def _ready(code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> Zygote:
    zygote = Zygote(code, order, env)
    try:
        await zygote.ready()
    except BaseException:
        zygote.close()
        raise
    return zygote


def _memory_is_short() -> bool:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    known = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
    return known.get("MemAvailable", 1) < LOW_MEMORY * known.get("MemTotal", 1)
