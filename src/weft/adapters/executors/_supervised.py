"""A process that works in a run's folder, seen to its end: its limits, what it prints, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from weft.adapters.executors import _process_groups
from weft.adapters.executors._process import Process
from weft.adapters.executors._resource_monitor import ResourceMonitor, sweep_run
from weft.adapters.executors._spec import Limits
from weft.adapters.executors._zygote import Fork
from weft.ports import Ended, Work
from weft.untrusted_files import read_at_most

SPENT = {signal.SIGXCPU: ("cpu_limit", "CPU time"), signal.SIGXFSZ: ("disk_limit", "size of a file")}
"""Signals by which the kernel says that a limit was met."""

LARGEST = 4 << 20
"""Bytes that are read of what a process says of itself."""

Met = tuple[str, str]
"""A limit that was met, as an outcome and its reason."""


class Printed:
    """What a run prints, on its way to the log; counted, so that a flood can be ended."""

    def __init__(self, work: Work, most: int) -> None:
        self._log, self._left = work.log, most
        self._most, self.overflow = most, asyncio.Event()

    def take(self, data: bytes) -> None:
        self._log.write(data)
        self._left -= len(data)
        if self._left < 0:
            self.overflow.set()

    async def flood(self) -> Met:
        """Return once more was printed than is allowed."""
        await self.overflow.wait()
        return "log_limit", f"it printed more than {self._most} bytes"


async def supervise(process: Process | Fork, work: Work, limits: Limits, printed: Printed) -> tuple[Met | None, int]:
    """Watch the process to its end; the limit that it met, if it did, and its exit code."""
    met: Met | None = None
    overseer = ResourceMonitor(work.folder, process.id, limits)
    watching = [asyncio.ensure_future(overseer.watch()), asyncio.ensure_future(printed.flood())]
    exited = asyncio.ensure_future(process.exited())
    try:
        _process_groups.remember(work.folder, process.id, work.idempotency_key)
        await asyncio.wait({exited, *watching}, return_when=asyncio.FIRST_COMPLETED)
        met = next((task.result() for task in watching if task.done() and not exited.done()), None)
    except asyncio.CancelledError:
        await process.stop(work.grace_seconds)
        raise
    finally:
        for task in (exited, *watching):
            task.cancel()
        code = await _to_the_end(_cleared(process, work.folder))
    return met, code


async def _cleared(process: Process | Fork, folder: Path) -> int:
    """Leave nothing of the run running; the exit code of its process."""
    code = await process.end()
    await sweep_run(folder)
    _process_groups.forget(folder)
    return code


async def _to_the_end(work: Coroutine[Any, Any, int]) -> int:
    """Do all of it, also where whoever waits is cancelled meanwhile: then that is told afterwards."""
    working, cancelled = asyncio.ensure_future(work), False
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return working.result()


def ended(folder: Path, code: int, met: Met | None) -> Ended:
    end, stats = _read(folder / "end.json"), _read(folder / "stats.json")
    result = _result(end, stats)
    if met is not None:
        return Ended(outcome=met[0], reason=met[1], result=result, **exit_of(code))
    if outcome := end.get("outcome"):
        return Ended(outcome=str(outcome), reason=str(end.get("message", "")), result=result, **exit_of(code))
    if code == 0 and end and not end.get("message"):
        return Ended(outcome="succeeded", reason=_other_than_finished(end), result=result, exit_code=0)
    if -code in SPENT:
        outcome, what = SPENT[signal.Signals(-code)]
        return Ended(outcome=outcome, reason=f"it used up its {what}", result=result, **exit_of(code))
    return Ended(outcome="failed", reason=str(end.get("message") or _died(code)), result=result, **exit_of(code))


def _other_than_finished(end: Mapping[str, Any]) -> str:
    reason = str(end.get("reason", ""))
    return "" if reason == "finished" else f"closed: {reason}"


def _died(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else 'signal'} ({-code})"
    return f"exit code {code}" if code else "it ended without a word"


def exit_of(code: int) -> dict[str, Any]:
    return {"exit_code": code} if code >= 0 else {"signal": -code}


def _result(end: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    """What lists and pages show of a crawl; all of its statistics are kept with its items."""
    told = stats.get("stats")
    counted: Mapping[str, Any] = told if isinstance(told, dict) else {}
    none = 0 if counted else None  # a project may keep no statistics
    named = {
        "finish_reason": end.get("reason"),
        "items": counted.get("item_scraped_count", none),
        "pages": counted.get("response_received_count", none),
        "errors": counted.get("log_count/ERROR", none),
        "isolation": stats.get("isolation"),
        "isolation_missing": stats.get("isolation_missing") or None,
    }
    return {name: value for name, value in named.items() if value is not None}


def _read(path: Path) -> dict[str, Any]:
    """What the process has left there; nothing where it died before, or wrote what is no JSON."""
    try:
        found = json.loads(read_at_most(path, LARGEST) or b"")
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
