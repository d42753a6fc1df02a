"""A child process in a group of its own, whose output is read while it is printed."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weft.adapters.executors import _group
from weft.adapters.executors._output import Output

KILLED_WITHIN_SECONDS = 5.0
POLL_SECONDS = 0.02


class Process:
    """A started command. Whoever starts one awaits ``end()`` on every way out; then nothing of it runs any more.

    It is started on the loop's own thread: the parent-death signal is sent when the *thread* ends that started a child.
    """

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], sink: Callable[[bytes], None]
    ) -> None:
        self._loop, self._output, self._exit = asyncio.get_running_loop(), Output(sink), asyncio.Event()
        try:
            self._child = subprocess.Popen(
                [*dying_with_parent(), *argv],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=self._output.inlet,
                stderr=self._output.inlet,
                start_new_session=True,
            )
        except BaseException:
            self._output.close()
            raise
        self._output.hand_over()
        self.id = self._child.pid
        self._watch()

    async def exited(self) -> None:
        """Wait for the end of the command itself. Until ``end()`` its id stays taken, so the group is its own."""
        await self._exit.wait()

    async def stop(self, grace_seconds: float) -> None:
        """Ask the whole group to end, and give all of it some time."""
        _group.signal_all(self.id, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self.exited()
                await _group.emptied(self.id, grace_seconds)
        except TimeoutError:
            pass

    async def end(self) -> int:
        """Kill what is left of the group, read what is left of the output; the exit code, or minus the signal."""
        _group.signal_all(self.id, signal.SIGKILL)
        try:
            await self.exited()
            self._child.wait()
            await _group.emptied(self.id, KILLED_WITHIN_SECONDS)
        finally:
            code = self._child.wait()
            self._output.close()
        return code

    def _watch(self) -> None:
        """Set ``_exit`` when the command ends, by a descriptor where the system has them for processes."""
        try:
            watched = os.pidfd_open(self.id)
        except (AttributeError, OSError):
            self._poll()
        else:
            self._loop.add_reader(watched, self._ended, watched)

    def _ended(self, watched: int) -> None:
        self._loop.remove_reader(watched)
        os.close(watched)
        self._exit.set()

    def _poll(self) -> None:
        if self._child.poll() is None:
            self._loop.call_later(POLL_SECONDS, self._poll)
        else:
            self._exit.set()


@functools.cache
def dying_with_parent() -> tuple[str, ...]:
    """What makes a command die with the worker that started it, by the kernel's hand; nothing where that is missing.

    It reaches the command itself. Its own children are found by ``_left_running.sweep`` when the worker is back.
    """
    program = shutil.which("setpriv")
    if program is None:
        return ()
    prefix = (program, "--pdeathsig", "KILL", "--")
    works = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return prefix if works.returncode == 0 else ()
