"""A process that has a project's code imported, and its forks: asked over a socket (``agent/zygote.py`` is its side).

It dies with the worker, and its forks with it. Deployed code is imported in it, so it is not believed blindly.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import weft
from weft.adapters.executors import _group
from weft.adapters.executors._output import Output
from weft.adapters.executors._process import KILLED_WITHIN_SECONDS, dying_with_parent
from weft.ports import ReadyCode

AGENT = Path(weft.__file__).parent / "agent" / "__main__.py"
AS_THIRD = ("/bin/sh", "-c", 'exec "$@" 3<&0 0</dev/null', "sh")
"""Gives a command its standard input as descriptor 3, where a zygote listens, and nothing as its standard input."""
READY_WITHIN_SECONDS = 60.0
LARGEST_MESSAGE = 1 << 20


class Unready(Exception):
    """No fork can be had; the run starts cold. The text says why."""


class Fork:
    """A run's process, forked from a zygote."""

    def __init__(self, pid: int, output: Output, ended: asyncio.Future[dict[str, Any]]) -> None:
        self.id, self._output, self._ended = pid, output, ended
        self.usage: Mapping[str, Any] = {}

    async def exited(self) -> None:
        await asyncio.wait({self._ended})

    async def stop(self, grace_seconds: float) -> None:
        """Ask the whole group to end, and give all of it some time."""
        _signal(self.id, signal.SIGTERM)
        await asyncio.wait({self._ended}, timeout=grace_seconds)

    async def end(self) -> int:
        """Kill what is left of the group, read what is left of the output; the exit code, or minus the signal."""
        if not self._ended.done():
            _signal(self.id, signal.SIGKILL)
        try:
            self.usage = await self._ended
            _group.signal_all(self.id, signal.SIGKILL)
            await _group.emptied(self.id, KILLED_WITHIN_SECONDS)
        finally:
            self._output.close()
        return os.waitstatus_to_exitcode(int(self.usage["status"]))


class Zygote:
    """One process with one version of one project's code in it."""

    def __init__(self, code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: deque[bytes] = deque(maxlen=20)
        self._output = Output(self._said.append)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [*dying_with_parent(), *AS_THIRD, str(code.python), "-I", str(AGENT), "zygote"]
            try:
                self._child = _popen(argv, env, code.folder, self._output, theirs)
            except OSError as problem:
                self._output.close()
                self._socket.close()
                raise Unready(f"no process could be started: {problem}") from problem
        self._output.hand_over()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._hear)
        self._watch = _watched(self._child.pid)
        if self._watch >= 0:
            self._loop.add_reader(self._watch, self._died)
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._started: dict[str, asyncio.Future[int]] = {}
        self._ended: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._socket.send(json.dumps(dict(order)).encode())
        self.used_at = time.monotonic()
        self.is_gone = False

    @property
    def is_idle(self) -> bool:
        return not self._ended and not self._started

    async def ready(self) -> None:
        """Wait until it has imported everything. Raises ``Unready``."""
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._ready), READY_WITHIN_SECONDS)
        except TimeoutError:
            raise Unready(f"the code was not imported within {READY_WITHIN_SECONDS:g} s") from None
        if not answer.get("ready"):
            raise Unready(str(answer.get("unsafe") or answer.get("failed") or "it ended")[-2000:])

    async def fork(self, folder: Path, output: Output) -> Fork:
        """A new process for the run of this folder. Raises ``Unready`` where the zygote has died."""
        name, self.used_at = str(folder), time.monotonic()
        started = self._started[name] = self._loop.create_future()
        ended = self._ended[name] = self._loop.create_future()
        try:
            socket.send_fds(self._socket, [json.dumps({"start": name}).encode()], [output.inlet])
            await asyncio.wait({started})
            return Fork(started.result(), output, ended)
        except OSError as problem:
            self._ended.pop(name, None)
            raise Unready(f"the prepared process does not answer: {problem}") from problem
        except asyncio.CancelledError:  # it may be starting right now, and nobody would end it
            self._started.pop(name, None)
            if started.done():
                _kill_started(started)
            await asyncio.wait({ended}, timeout=KILLED_WITHIN_SECONDS)
            raise
        finally:
            self._started.pop(name, None)

    def close(self) -> None:
        """Let it go; it kills what it has forked."""
        if self.is_gone:
            return
        self.is_gone = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
        self._give_up()
        self._output.close()
        self._loop.run_in_executor(None, _reap, self._child, self._watch)

    def _died(self) -> None:
        """It has ended. Its socket alone may not tell: what deployed code has started may hold the other end."""
        while not self.is_gone and self._hear():
            pass
        self.close()

    def _hear(self) -> bool:
        """Act on the next message, or on the end of them; False where there is none."""
        try:
            message = self._socket.recv(LARGEST_MESSAGE)
        except BlockingIOError:
            return False
        except OSError:
            message = b""
        try:
            if message:
                self._obey(json.loads(message))
                return True
        except (ValueError, TypeError, KeyError, RecursionError):
            pass  # Deployed code speaks in its place.
        self.close()
        return False

    def _obey(self, told: Mapping[str, Any]) -> None:
        if "started" in told:
            self._has_started(str(told["started"]), int(told["pid"]))
        elif "ended" in told:
            _settle(self._ended.pop(told["ended"], None), {**told, "status": int(told["status"])})
        elif "refused" in told:
            self._refuse(told["refused"], str(told.get("why", "")))
        else:
            _settle(self._ready, dict(told))

    def _has_started(self, name: str, pid: int) -> None:
        """One that nobody waits for any more is ended. Whom we shall signal must be its child, or gone already."""
        found = _group.stat(pid) if pid > 1 else None
        if pid <= 1 or (found is not None and found.parent != self._child.pid):
            raise ValueError(f"{pid} is no child of {self._child.pid}")
        if name in self._started:
            _settle(self._started[name], pid)
        elif found is not None:
            _signal(pid, signal.SIGKILL)

    def _refuse(self, name: str, why: str) -> None:
        """It could not fork: there are too many processes, or too little memory."""
        self._ended.pop(name, None)
        started = self._started.get(name)
        if started is not None and not started.done():
            started.set_exception(Unready(f"no process could be forked: {why}"))

    def _give_up(self) -> None:
        """Nobody will tell any more how its forks ended: the kernel has killed them with it."""
        said = b"".join(self._said).decode(errors="replace")[-1000:]
        _settle(self._ready, {"failed": f"it ended while it was importing the code: {said}"})
        for started in self._started.values():
            if not started.done():
                started.set_exception(Unready("the prepared process has died"))
        for ended in self._ended.values():
            _settle(ended, {"status": int(signal.SIGKILL), "orphaned": True})
        self._ended.clear()


def _popen(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, output: Output, line: socket.socket
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=line.fileno(),
        stdout=output.inlet,
        stderr=output.inlet,
        start_new_session=True,
    )


def _watched(pid: int) -> int:
    """A descriptor that tells when a child has ended; -1 where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _reap(child: subprocess.Popen[bytes], watch: int) -> None:
    """It ends when its socket does; one that does not is killed, and with it what deployed code has started in it."""
    try:
        if watch >= 0:
            ended = select.poll()
            ended.register(watch, select.POLLIN)
            ended.poll(KILLED_WITHIN_SECONDS * 1000)
            os.close(watch)
            _group.signal_all(child.pid, signal.SIGKILL)  # until it is waited for, the number is its own
        child.wait(KILLED_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _signal(pid: int, number: int) -> None:
    """Signal a fork and all that it has started. Right after the fork it has no group of its own yet."""
    if not _group.signal_all(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _kill_started(started: asyncio.Future[int]) -> None:
    if not started.cancelled() and started.exception() is None:
        _signal(started.result(), signal.SIGKILL)


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)
