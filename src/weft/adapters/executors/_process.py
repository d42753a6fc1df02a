"""What a process prints, read while it is printed."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from weft.adapters.executors import _process_groups

CHUNK = 65_536
DRAIN_LIMIT = 1_048_576
"""More than a pipe holds: what comes beyond was printed by a process that has left the group."""
PIPE_BYTES = 1_048_576
"""How much may be printed while the reader is busy; a system that allows less gives less."""


class Output:
    """A pipe whose one end is the process's standard output, and whose other end is read into ``sink``."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._loop, self._sink = asyncio.get_running_loop(), sink
        self._end, self.inlet = os.pipe()
        try:
            fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except (AttributeError, OSError):
            pass
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def hand_over(self) -> None:
        """The process has its end: ours of that is closed, so that the end of the process is the end of the output."""
        if self.inlet >= 0:
            os.close(self.inlet)
            self.inlet = -1

    def close(self) -> None:
        """Read what is left, within reason, and close."""
        self.hand_over()
        passed = 0
        while passed < DRAIN_LIMIT and (count := self._read()):
            passed += count
        self._loop.remove_reader(self._end)
        os.close(self._end)

    def _read(self) -> int:
        """Pass on what is there; returns how much, 0 at the end or where there is nothing."""
        try:
            data = os.read(self._end, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._sink(data)
        else:
            self._loop.remove_reader(self._end)
        return len(data)


KILLED_WITHIN_SECONDS = 5.0
POLL_SECONDS = 0.02


class Process:
    """A started command. Whoever starts one awaits ``end()`` on every way out; then nothing of it runs any more.

    It is started on the loop's own thread: the parent-death signal is sent when the *thread* ends that started a child.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        sink: Callable[[bytes], None],
        passed: Collection[int] = (),
    ) -> None:
        """``passed`` are descriptors that the command is to have under their own numbers."""
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
                pass_fds=passed,
            )
        except BaseException:
            self._output.close()
            raise
        self._output.hand_over()
        self.id = self._child.pid
        _process_groups.lower_soon(self.id)
        self._watch()

    async def exited(self) -> None:
        """Wait for the end of the command itself. Until ``end()`` its id stays taken, so the group is its own."""
        await self._exit.wait()

    async def stop(self, grace_seconds: float) -> None:
        """Ask the whole group to end, and give all of it some time."""
        _process_groups.signal_all(self.id, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self.exited()
                await _process_groups.emptied(self.id, grace_seconds)
        except TimeoutError:
            pass

    async def end(self) -> int:
        """Kill what is left of the group, read what is left of the output; the exit code, or minus the signal."""
        _process_groups.signal_all(self.id, signal.SIGKILL)
        try:
            await self.exited()
            self._child.wait()
            await _process_groups.emptied(self.id, KILLED_WITHIN_SECONDS)
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
