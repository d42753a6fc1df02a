"""What the tests of the command line share: a shell in this process, a real one, and a worker that the test moves."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from weft.app import App, open_app
from weft.cli.main import main
from weft.config import Config
from weft.runs.model import Ending, Lease
from weft.workers.protocol import Heartbeat, LogChunk, WorkerInfo

T = TypeVar("T")

ON_ITS_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the terminal of a command, so that what is typed there can interrupt it: also where the tests
run in the background of a shell, which ignores that."""

WEFT = str(Path(sys.executable).with_name("weft"))


def answers(port: int) -> bool:
    """Whether a gateway on that port is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class Answer:
    """What a command has said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """Runs commands on one data directory, in this process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, *args: str) -> Answer:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["--data-dir", str(self.folder), *args])
        out, err = self._capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    def ok(self, *args: str) -> Answer:
        answer = self(*args)
        assert (answer.code, answer.err) == (0, ""), answer
        return answer

    def document(self, *args: str) -> Any:
        return self.ok(*args, "--json").document

    def apply(self, content: str, *args: str, name: str = "tasks.yaml") -> Answer:
        """Write a task file and apply it."""
        file = self.folder.parent / name
        file.write_text(content)
        return self("tasks", "apply", str(file), *args)

    def act(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Do something with the app between two commands."""

        async def acting() -> T:
            app = await open_app(Config(data_dir=str(self.folder)))
            try:
                return await work(app)
            finally:
                await app.close()

        return asyncio.run(acting())

    def start(self, *args: str) -> subprocess.Popen[str]:
        """A command in a process of its own, to be talked with."""
        command = [WEFT, "--data-dir", str(self.folder), *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


class Hand:
    """A worker that does only what the test says, and whose answers are stored at once."""

    def __init__(self, app: App, worker_id: int) -> None:
        self._app, self.id = app, worker_id

    @classmethod
    async def join(cls, app: App, name: str = "hand", labels: tuple[str, ...] = ()) -> Hand:
        card = WorkerInfo(name=name, host="here", pid=1, version="1.2.3", capacity=10, labels=labels)
        return cls(app, await app.protocol.join(card))

    async def beat(self, state: str = "online", **stats: Any) -> None:
        await self._app.protocol.heartbeat(self.id, Heartbeat(state=state, running=1, done=2, stats=stats))

    async def lease(self) -> Lease:
        return (await self._app.protocol.lease(self.id, 1))[0]

    async def say(self, lease: Lease, seq: int, data: bytes) -> None:
        await self._app.protocol.ship(self.id, [LogChunk(lease.run_id, lease.attempt, seq, data)])

    async def end(self, lease: Lease, outcome: str = "succeeded", log: bytes = b"", **fields: Any) -> None:
        key = f"logs/{lease.run_id}/{lease.attempt}.log"
        await self._app.blobs.put(key, log)
        ending = Ending(lease.run_id, lease.attempt, outcome, log_key=key, log_bytes=len(log), **fields)
        assert await self._app.protocol.finish(self.id, [ending]) == [True]


def ended_run(outcome: str = "succeeded", log: bytes = b"", **fields: Any) -> Callable[[App], Awaitable[int]]:
    """Let a worker take the next run and end it so."""

    async def work(app: App) -> int:
        hand = await Hand.join(app)
        lease = await hand.lease()
        await hand.end(lease, outcome, log, **fields)
        return lease.run_id

    return work


def environment(**more: str) -> dict[str, str]:
    """The environment of a real command: without weft's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")} | more


def weft(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 60) -> Answer:
    """Run the real command in a process of its own."""
    done = subprocess.run(
        [WEFT, *args],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def on_a_terminal(
    *args: str, typed: str = "", after: str = "", env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run the real command on a terminal and type once it shows ``after``; its exit code and all that was shown."""
    ours, theirs = pty.openpty()
    variables = environment(**{"TERM": "xterm", "COLUMNS": "120"} | dict(env or {}))
    command = [sys.executable, "-c", ON_ITS_TERMINAL, WEFT, *args]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if typed and after.encode() in shown:
                os.write(ours, typed.encode())
                typed = ""
    except OSError:
        pass  # the end of a terminal whose last program has gone
    os.close(ours)
    return process.wait(60), shown.decode()
