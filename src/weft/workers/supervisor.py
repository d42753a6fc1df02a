"""Keeps processes alive: starts each, replaces it when it ends, and ends all of them together."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.workers.work_dir import waited_for


async def interruptible_sleep(seconds: float, until: asyncio.Event) -> None:
    """So many seconds, or until the word comes. ``wait_for`` would lose a cancellation that comes with the word."""
    try:
        async with asyncio.timeout(seconds):
            await until.wait()
    except TimeoutError:
        return


log = logging.getLogger(__name__)

SHORT_LIFE_SECONDS = 10.0
"""A process that lived shorter than this is replaced more and more slowly."""

MOST_QUICK_ENDS = 8
"""So often in a row a process may fail soon after its start, within a minute or so, until it is of no use to go on."""
LONG_PAUSE_SECONDS = 60.0

LOOK_SECONDS = 1.0
TELL_SECONDS = 15.0
"""How much longer than its runs a worker may take to end, which tells how they ended."""
HURRIED_SECONDS = 5.0
"""How long a process that is to end at once may take."""

NOT_STARTED = 126
"""What a shell answers for a program that it cannot start."""


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """A process that is always to be there."""

    name: str
    command: Sequence[str]
    unseen: Collection[str] = ()
    """Variables of the environment that are none of its business."""
    vital: bool = False
    """Whether nothing works without it: where it cannot be started, all end."""
    folder: Path | None = None
    """Of a worker: where its runs are. It may take as long to end as it says beside that."""


class Supervisor:
    """One process for each role, until it is stopped."""

    def __init__(
        self, roles: Sequence[SupervisedProcess], environment: Mapping[str, str], *, patience_seconds: float
    ) -> None:
        self._roles, self._environment, self.patience_seconds = roles, dict(environment), patience_seconds
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping, self._hurried = asyncio.Event(), asyncio.Event()
        self.misconfigured = self.has_given_up = False

    @property
    def alive(self) -> list[str]:
        """The roles whose processes have not ended."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    async def run(self) -> None:
        """Keep every role alive until ``stop``; return when all processes have ended."""
        await asyncio.gather(*(self._keep(role) for role in self._roles))

    def stop(self, *, at_once: bool = False) -> None:
        """Ask all processes to end; ``at_once``, a second time, for those that were asked before."""
        self._stopping.set()
        if at_once:
            self._hurried.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def _keep(self, role: SupervisedProcess) -> None:
        quick_ends = failures = 0
        while not self._stopping.is_set():
            started = asyncio.get_running_loop().time()
            code = await self._live(role)
            if code == 78:  # it is set up wrongly, and so would be the next one
                self.misconfigured = True
                self.stop()
            if self._stopping.is_set():
                return
            lived = asyncio.get_running_loop().time() - started
            quick_ends = quick_ends + 1 if lived < SHORT_LIFE_SECONDS and code != 0 else 0
            failures = failures + 1 if quick_ends and code > 0 else 0  # not where somebody has killed it
            if failures >= MOST_QUICK_ENDS and role.vital:
                self._give_up(role, code, failures)
                return
            log.warning("process ended and is replaced", extra={"role": role.name, "exit_code": code})
            await interruptible_sleep(
                LONG_PAUSE_SECONDS if failures >= MOST_QUICK_ENDS else pause_after(quick_ends), self._stopping
            )

    def _give_up(self, role: SupervisedProcess, code: int, failures: int) -> None:
        told = {"role": role.name, "exit_code": code, "failures": failures}
        log.error("process fails at each start, so weft ends; what it printed before says why", extra=told)
        self.has_given_up = True
        self.stop()

    async def _live(self, role: SupervisedProcess) -> int:
        seen = {name: value for name, value in self._environment.items() if name not in role.unseen}
        try:
            # Of a group of its own, it gets no Ctrl-C from the terminal beside what it is told from here: for one that
            # is asked twice has no time left.
            process = await asyncio.create_subprocess_exec(*role.command, env=seen, process_group=0)
        except OSError as problem:  # the machine has no room for it now
            log.error("process could not be started", extra={"role": role.name, "why": str(problem)})
            return NOT_STARTED
        self._processes[role.name] = process
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._wait(ended, role)
        if not ended.done() and self._hurried.is_set():
            await asyncio.wait({ended}, timeout=HURRIED_SECONDS)
        if not ended.done():
            log.error("process did not end in time and is killed", extra={"role": role.name})
            process.kill()
        return await ended

    async def _wait(self, ended: asyncio.Future[int], role: SupervisedProcess) -> None:
        """Return when the process has ended, has taken too long, or is to end at once."""
        hurried = asyncio.ensure_future(self._hurried.wait())
        either: set[asyncio.Future[Any]] = {ended, hurried}
        patience_ends = time.monotonic() + self.patience_seconds
        while not (ended.done() or hurried.done()):
            waiting = None if role.folder is None else waited_for(role.folder)
            until = patience_ends if waiting is None else max(patience_ends, waiting.until + TELL_SECONDS)
            if time.monotonic() >= until:
                break
            timeout = min(until - time.monotonic(), LOOK_SECONDS)
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()


def pause_after(quick_ends: int) -> float:
    """Seconds until a process is replaced that has ended so often in a row soon after its start."""
    return min(2.0 ** min(quick_ends, 7) / 10, 10.0)
