"""A process with Scrapy and the packages that one project needs imported, which forks for each run.

The project's own modules are imported by each run, as under Scrapy, unless it asks to have them shared. It speaks JSON
over the socket on descriptor 3, one object a message. No reactor and no thread may exist in it: a fork would copy their
locks and not their threads.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import run_folder, sandbox
from .learning import Unsafe, shuffle_numbers
from .processes import die_with, leave

SOCKET = 3
MESSAGE_BYTES = 64 * 1024
SHOWN_SPIDERS = 100


class Zygote:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._children: dict[int, str] = {}
        self._warm: Any = None

    def serve(self) -> int:
        """Import what runs need, then fork for each order, until the other side hangs up."""
        first = self._hear()
        if first is None or not self._prepare(first[0]):
            return 1
        bell = ring_on_child_end()
        with selectors.DefaultSelector() as ears:
            ears.register(self._line, selectors.EVENT_READ)
            ears.register(bell, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in ears.select()}
                if bell in ready:
                    os.read(bell, 4096)
                    self._reap()
                if self._line in ready:
                    heard = self._hear()
                    if heard is None:
                        break
                    self._start(heard[0]["start"], heard[1])
        self._kill_all()
        return 0

    def _prepare(self, first: dict[str, Any]) -> bool:
        try:
            _enter(first, "limits", write=first["write"])
            self._warm, spiders = imported(first)
        except (Unsafe, sandbox.Refused) as error:
            self._say(unsafe=str(error))
            return False
        except (Exception, SystemExit) as error:
            why = getattr(error, "told", "") or traceback.format_exc()
            self._say(failed=why[-MESSAGE_BYTES // 2 :])
            return False
        gc.collect()
        gc.freeze()
        self._say(ready=True, spiders=spiders[:SHOWN_SPIDERS])
        return True

    def _start(self, folder: str, pipes: list[int]) -> None:
        zygote = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                self._become_run(Path(folder), pipes[0], zygote)
        except OSError as error:
            self._say(refused=folder, why=f"the zygote cannot fork: {error.strerror}")
        else:
            self._children[pid] = folder
            self._say(started=folder, pid=pid)
        finally:
            for pipe in pipes:
                os.close(pipe)

    def _become_run(self, folder: Path, pipe: int, zygote: int) -> NoReturn:
        code = 1
        try:
            self._line.close()
            die_with(zygote)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for stream in (1, 2):
                os.dup2(pipe, stream)
            os.close(pipe)
            shuffle_numbers()
            from . import crawl

            code = crawl.run(folder, run_folder.take_order(folder), self._warm)
        except BaseException:
            traceback.print_exc()
        leave(code)

    def _reap(self) -> None:
        for pid, folder in list(self._children.items()):
            ended, status, spent = os.wait4(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                self._say(
                    ended=folder,
                    status=status,
                    cpu_seconds=round(spent.ru_utime + spent.ru_stime, 3),
                    max_rss_bytes=spent.ru_maxrss * 1024,
                )

    def _kill_all(self) -> None:
        for pid in self._children:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no group of its own yet
                os.kill(pid, signal.SIGKILL)

    def _hear(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and the descriptors that came with it; None when the other side has hung up."""
        try:
            data, pipes, _, _ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
        except ConnectionResetError:  # it hung up before it had read all answers
            return None
        return (json.loads(data), pipes) if data else None

    def _say(self, **message: Any) -> None:
        try:
            self._line.send(json.dumps(message).encode())
        except OSError:  # the other side has hung up: the next _hear sees it
            pass


def ring_on_child_end() -> int:
    """A descriptor that becomes readable when a child ends."""
    reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    return reads


def imported(first: dict[str, Any]) -> tuple[Any, list[str]]:
    """What runs are given, and the names of some spiders. Imports what they will need, inside the sandbox."""
    # Imported here: a project whose environment has no Scrapy is told so over the line.
    from . import crawl, learning  # noqa: F401

    def enter() -> None:
        """Let the child that imports the project write nowhere."""
        _enter(first, "learning_limits")

    found = learning.prepared(first["code"], first["settings_module"], enter)
    return found, found.spiders if isinstance(found, learning.Known) else sorted(found.loader.list())


def _enter(first: dict[str, Any], limits: str, write: Sequence[str] = ()) -> None:
    must = bool(first.get("must"))
    held = {**first.get(limits, {}), "ports": first.get("ports")}
    sandbox.enter(first["isolation"], read=first["read"], write=write, limits=held, must=must)


def main() -> int:
    with socket.socket(fileno=SOCKET) as line:
        return Zygote(line).serve()
