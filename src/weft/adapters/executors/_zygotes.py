"""Processes that have a project's code imported and fork for each run: a start costs milliseconds.

A zygote is asked over a socket (``agent/zygote.py`` is its side). It dies with the worker, and its forks with it.
"""

from __future__ import annotations

import asyncio
import json
import os
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
MOST_IDLE = 8
IDLE_SECONDS = 900.0
"""How many zygotes without runs are kept, and how long."""
UNFIT_SECONDS = 300.0
"""How long code that cannot be forked is started cold, before that is tried again."""
LOW_MEMORY = 0.1
"""Below this share of free memory, zygotes without runs are let go."""
LARGEST_MESSAGE = 1 << 20

Key = tuple[str, str, str]
"""The digest of the code, the interpreter, and the isolation."""


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
            self._child = _popen(argv, env, code.folder, self._output, theirs)
        self._output.hand_over()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._hear)
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
            started.add_done_callback(_kill_started)
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
        self._give_up()
        self._output.close()
        self._loop.run_in_executor(None, _reap, self._child)

    def _hear(self) -> None:
        try:
            message = self._socket.recv(LARGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.close()
            return
        told = json.loads(message)
        if "started" in told:
            _settle(self._started.get(told["started"]), int(told["pid"]))
        elif "ended" in told:
            _settle(self._ended.pop(told["ended"], None), told)
        elif "refused" in told:
            self._refuse(told["refused"], str(told.get("why", "")))
        else:
            _settle(self._ready, told)

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


class Zygotes:
    """The zygotes of a worker: one for each version of code that it has been asked for lately."""

    def __init__(self) -> None:
        self._all: dict[Key, asyncio.Task[Zygote]] = {}
        self._unfit: dict[Key, tuple[float, str]] = {}

    async def get(self, code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> Zygote:
        """The zygote of this code, made where there is none. Raises ``Unready`` where the code cannot be forked."""
        key = (code.digest, str(code.python), str(order["isolation"]))
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


def _reap(child: subprocess.Popen[bytes]) -> None:
    """It ends when its socket does; one that does not is killed."""
    try:
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


def _memory_is_short() -> bool:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    known = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
    return known.get("MemAvailable", 1) < LOW_MEMORY * known.get("MemTotal", 1)
