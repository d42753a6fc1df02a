"""Keeps processes alive: starts each, replaces it when it ends, and ends all of them together."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from weft.workers.pausing import pause

log = logging.getLogger(__name__)

SHORT_LIFE_SECONDS = 10.0
"""A process that lived shorter than this is replaced more and more slowly."""

NOT_STARTED = 126
"""What a shell answers for a program that it cannot start."""


@dataclass(frozen=True, slots=True)
class Role:
    """A process that is always to be there."""

    name: str
    command: Sequence[str]
    unseen: Collection[str] = ()
    """Variables of the environment that are none of its business."""


class Supervisor:
    """One process for each role, until it is stopped."""

    def __init__(self, roles: Sequence[Role], environment: Mapping[str, str], *, patience_seconds: float) -> None:
        self._roles, self._environment, self._patience = roles, dict(environment), patience_seconds
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.misconfigured = False

    async def run(self) -> None:
        """Keep every role alive until ``stop``; return when all processes have ended."""
        await asyncio.gather(*(self._keep(role) for role in self._roles))

    def stop(self) -> None:
        """Ask all processes to end; asked again, they hurry."""
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def _keep(self, role: Role) -> None:
        quick_ends = 0
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
            log.warning("process ended and is replaced", extra={"role": role.name, "exit_code": code})
            await pause(pause_after(quick_ends), self._stopping)

    async def _live(self, role: Role) -> int:
        seen = {name: value for name, value in self._environment.items() if name not in role.unseen}
        try:
            process = await asyncio.create_subprocess_exec(*role.command, env=seen)
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
            await asyncio.wait({ended}, timeout=self._patience)
        if not ended.done():
            log.error("process did not end in time and is killed", extra={"role": role.name})
            process.kill()
        return await ended


def pause_after(quick_ends: int) -> float:
    """Seconds until a process is replaced that has ended so often in a row soon after its start."""
    return min(2.0 ** min(quick_ends, 7) / 10, 10.0)
