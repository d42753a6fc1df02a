"""Zygotes: processes that have imported what a project needs, and fork for each run.

``agent/zygote.py`` is their side of the socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import socket
import subprocess
import time
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import weft
from weft.adapters.executors import _process_groups
from weft.adapters.executors._process import KILLED_WITHIN_SECONDS, Output, dying_with_parent
from weft.adapters.executors._process_groups import CENSUS, new_zygote_mark
from weft.adapters.executors._resource_monitor import ResourceMonitor, sweep
from weft.adapters.executors._spec import Limits
from weft.ports import ReadyCode
from weft.user_code import KINDS, Launch, bare_environment, environment_paths, of_older_kernels

log = logging.getLogger(__name__)

AGENT = Path(weft.__file__).parent / "agent" / "__main__.py"
AS_THIRD = ("/bin/sh", "-c", 'exec "$@" 3<&0 0</dev/null', "sh")
"""Gives a command its standard input as descriptor 3, where a zygote listens, and nothing as its standard input."""
READY_WITHIN_SECONDS = 60.0
IMPORTING = Limits(cpu_seconds=60)
"""What importing a project's code may use up."""
LARGEST_MESSAGE = 1 << 20


class Unready(Exception):
    """No fork can be had; the run starts cold. The text says why."""


class Fork:
    """A run's process, forked from a zygote."""

    def __init__(self, pid: int, output: Output, ended: asyncio.Future[dict[str, Any]]) -> None:
        self.id, self._output, self._ended = pid, output, ended
        self.usage: Mapping[str, Any] = {}
        _process_groups.lower_soon(pid)

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
            _process_groups.signal_all(self.id, signal.SIGKILL)
            await _process_groups.emptied(self.id, KILLED_WITHIN_SECONDS)
        finally:
            self._output.close()
        return os.waitstatus_to_exitcode(int(self.usage["status"]))


class Zygote:
    """One process for one version of one project's code."""

    def __init__(self, code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: deque[bytes] = deque(maxlen=20)
        self._output = Output(self._said.append)
        self._mark = new_zygote_mark()
        self._guard: asyncio.Task[None] | None = None
        order = {**order, **_limits(self._mark)}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._child = _popen(_launch(code, order, env), code.folder, self._output, theirs)
            except OSError as problem:
                self._output.close()
                self._socket.close()
                raise Unready(f"no process could be started: {problem}") from problem
        self._output.hand_over()
        _process_groups.lower_soon(self._child.pid)
        self.used_at = time.monotonic()
        self.is_gone = False
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._hear)
        self._watch = _watched(self._child.pid)
        if self._watch >= 0:
            self._loop.add_reader(self._watch, self._died)
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._started: dict[str, asyncio.Future[int]] = {}
        self._ended: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._overseer = ResourceMonitor(None, self._child.pid, IMPORTING, partial(CENSUS.importing, self._mark))
        try:
            self._socket.send(json.dumps(order).encode())
        except OSError:
            pass  # it has ended at once, as where it is refused for want of isolation; its readers notice

    @property
    def is_idle(self) -> bool:
        return not self._ended and not self._started

    async def ready(self) -> None:
        """Wait until it has imported everything. Raises ``Unready``, also where it takes more than a run may."""
        watching = asyncio.ensure_future(self._overseer.watch())
        try:
            either: set[asyncio.Future[Any]] = {self._ready, watching}
            await asyncio.wait(either, timeout=READY_WITHIN_SECONDS, return_when=FIRST_COMPLETED)
            if not self._ready.done():
                why = watching.result()[1] if watching.done() else f"it took more than {READY_WITHIN_SECONDS:g} s"
                raise Unready(f"the code was not imported: {why}")
        finally:
            watching.cancel()
        answer = self._ready.result()
        if not answer.get("ready"):
            raise Unready(str(answer.get("unsafe") or answer.get("failed") or "it ended")[-2000:])
        if await asyncio.to_thread(self._clear) and not self.is_gone:
            self._guard = asyncio.create_task(self._end_at_a_limit())

    def _clear(self) -> bool:
        """End what the project left running when it was looked at; whether packages left something running too, which
        stays for as long as the zygote. Blocks meanwhile."""
        sweep(partial(CENSUS.learning, self._mark))
        return len(CENSUS.importing(self._mark)) > 1

    async def _end_at_a_limit(self) -> None:
        """Its runs are watched for themselves."""
        _, reason = await self._overseer.watch()
        log.warning("prepared process ended", extra={"why": reason})
        self._child.kill()
        self.close()

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
        is_ready = self._ready.done() and bool(self._ready.result().get("ready"))
        if self._guard is not None:
            self._guard.cancel()
        self._give_up()
        self._output.close()
        if not is_ready:  # it does not listen while it imports
            self._child.kill()
        self._loop.run_in_executor(None, _reap, self._child, self._watch, self._mark)

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
        found = _process_groups.stat(pid) if pid > 1 else None
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


def _launch(code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> Launch:
    """The zygote's Python begins in the sandbox as well: packages may bring code that every start of it executes."""
    return Launch(
        [*AS_THIRD, str(code.python), "-I", str(AGENT), "zygote"],
        env,
        isolation=str(order["isolation"]),
        read=[*order["read"], *environment_paths(code.python)],
        write=order["write"],
        must=bool(order["must"]),
        limits=order["limits"],
        ports=order["ports"],
        tell=False,
    )


def _limits(mark: int) -> dict[str, dict[str, int]]:
    """Of the zygote itself, whose runs may be allowed more, and of the process that looks at the project for it. Where
    one number is the mark of both, the second carries it twice: as a zygote's and as a run's."""
    own = {**KINDS["spider"].limits, **of_older_kernels()}
    learning = {**own, "cpu_seconds": IMPORTING.cpu_seconds, "mark": mark}
    return {"limits": {**own, "soft": 1, "zygote_mark": mark}, "learning_limits": learning}


def _popen(launch: Launch, cwd: Path, output: Output, line: socket.socket) -> subprocess.Popen[bytes]:
    with closing(launch):
        return subprocess.Popen(
            [*dying_with_parent(), *launch.argv],
            cwd=cwd,
            env=bare_environment(),
            stdin=line.fileno(),
            stdout=output.inlet,
            stderr=output.inlet,
            start_new_session=True,
            pass_fds=(launch.descriptor,),
        )


def _watched(pid: int) -> int:
    """A descriptor that tells when a child has ended; -1 where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _reap(child: subprocess.Popen[bytes], watch: int, mark: int) -> None:
    """It ends when its socket does; one that does not is killed, and with it what deployed code has started in it,
    wherever that has moved to."""
    try:
        if watch >= 0:
            ended = select.poll()
            ended.register(watch, select.POLLIN)
            ended.poll(KILLED_WITHIN_SECONDS * 1000)
            os.close(watch)
            _process_groups.signal_all(child.pid, signal.SIGKILL)  # until it is waited for, the number is its own
        child.wait(KILLED_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    sweep(partial(CENSUS.carriers, mark))


def _signal(pid: int, number: int) -> None:
    """Signal a fork and all that it has started. Right after the fork it has no group of its own yet."""
    if not _process_groups.signal_all(pid, number):
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


MOST_IDLE = 8
IDLE_SECONDS = 900.0
"""How many zygotes without runs are kept, and how long."""
UNFIT_SECONDS = 300.0
"""How long code that cannot be forked is started cold, before that is tried again."""
LOW_MEMORY = 0.1
"""Below this share of free memory, zygotes without runs are let go."""

Key = tuple[str, str, str, bool, int]
"""The digest of the code, the interpreter, the isolation, whether that must be reached, and what the sandbox allows and
the environment has."""


class Zygotes:
    """The zygotes of a worker: one for each version of code that it has been asked for lately."""

    def __init__(self) -> None:
        self._all: dict[Key, asyncio.Task[Zygote]] = {}
        self._unfit: dict[Key, tuple[float, str]] = {}

    async def get(self, code: ReadyCode, order: Mapping[str, Any], env: Mapping[str, str]) -> Zygote:
        """The zygote of this code, made where there is none. Raises ``Unready`` where the code cannot be forked."""
        isolation, must = str(order["isolation"]), bool(order["must"])
        key = (code.digest, str(code.python), isolation, must, _allowed(code.folder, order, env))
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


def _allowed(folder: Path, order: Mapping[str, Any], env: Mapping[str, str]) -> int:
    """Differs for runs elsewhere, with other ports or variables, and for code that was fetched again: Landlock knows
    folders, not names."""
    found = folder.stat()
    return hash((found.st_ino, found.st_mtime_ns, *order["write"], str(order["ports"]), *sorted(env.items())))


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
