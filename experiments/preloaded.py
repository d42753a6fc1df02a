"""Starts roles from a process that has imported weft already.

Each role is a process of its own all the same: forked, with its own session, folder, environment and log, and killed
like any other. To import weft takes 0.8 s of CPU, and experiments start hundreds of roles.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MODULES = (
    "aiohttp",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvloop",
    "weft.http.application",
    "weft.app",
    "weft.cli.serve",
    "weft.cli.worker",
    "weft.worker_setup",
    "weft.web.site",
)
_STATUS = struct.Struct("i")
_one_at_a_time = threading.Lock()
"""Experiments start roles from several threads."""


class Process:
    """A process that another one has forked, with as much of ``subprocess.Popen`` as a role needs."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self.wait(0.0)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code once it has ended, as soon as that is known; None where it still runs after ``timeout``."""
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            told = os.read(self._status, _STATUS.size)
            self.returncode = os.waitstatus_to_exitcode(*_STATUS.unpack(told)) if told else -signal.SIGKILL
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def start(words: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: int) -> Process:
    """Run the module ``words[0]`` with the other words as its arguments, as ``python -m`` would."""
    mine, its = os.pipe()
    asked = json.dumps({"words": list(words), "folder": str(folder), "environment": dict(environment)}).encode()
    with _one_at_a_time:
        connection = _starter()
        try:
            connection.sendall(struct.pack("!I", len(asked)))
            connection.sendmsg([asked[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [its, log]))])
            connection.sendall(asked[1:])
            (pid,) = struct.unpack("!I", _exactly(connection, 4))
        finally:
            os.close(its)
    return Process(pid, mine)


@cache
def _starter() -> socket.socket:
    """The process that forks, started once; it ends when this one does."""
    mine, its = socket.socketpair()
    command = [sys.executable, "-m", "experiments.preloaded", str(its.fileno())]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
        start_new_session=True,
    ).returncode = 0  # nobody waits for it
    its.close()
    return mine


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise ConnectionError("the process that starts roles has ended")
        found += piece
    return found


def serve(connection: socket.socket) -> list[str]:
    """Fork for each request until nobody asks any more. Returns only in a forked process: the words it is to run."""
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    statuses: dict[int, int] = {}
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([connection, woken], [], [])[0]
        if woken in ready:
            woken.recv(4096)
            _tell_ended(statuses)
        if connection in ready:
            try:
                (size,) = struct.unpack("!I", _exactly(connection, 4))
            except ConnectionError:
                sys.exit(0)
            first, ancillary, *_ = connection.recvmsg(1, socket.CMSG_SPACE(2 * 4))
            status, log = array.array("i", ancillary[0][2])
            asked = json.loads(first + _exactly(connection, size - 1))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (connection, woken, wake):
                    each.close()
                for descriptor in (status, *statuses.values()):
                    os.close(descriptor)
                return _become(asked, log)
            statuses[pid] = status
            os.close(log)
            connection.sendall(struct.pack("!I", pid))


def _tell_ended(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        end = statuses.pop(pid)
        try:
            os.write(end, _STATUS.pack(status))
        except BrokenPipeError:
            pass
        os.close(end)


def _become(asked: dict[str, Any], log: int) -> list[str]:
    """Take the session, folder, environment and output of a new program."""
    os.setsid()
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    return list(asked["words"])


if __name__ == "__main__":
    module, *arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
