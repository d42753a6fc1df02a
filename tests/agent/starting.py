"""Starting the agent's processes by hand, as an executor does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import weft.agent

AGENT = Path(weft.agent.__file__).parent / "__main__.py"
PATIENCE_SECONDS = 60


@dataclass
class Run:
    """One run of a spider: its folder, and what came through its pipe."""

    folder: Path
    pid: int = 0
    status: int = -1
    output: bytes = b""
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def items(self) -> list[dict[str, Any]]:
        segments = sorted((self.folder / "items").iterdir())
        return [json.loads(line)["item"] for path in segments for line in path.read_bytes().splitlines()]

    @property
    def end(self) -> dict[str, Any]:
        return self._read("end.json")

    @property
    def stats(self) -> dict[str, Any]:
        return self._read("stats.json")

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line[1:]) for line in self.output.split(b"\n") if line.startswith(b"\x1e")]

    @property
    def printed(self) -> list[str]:
        return [line.decode() for line in self.output.split(b"\n") if line and not line.startswith(b"\x1e")]

    @property
    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(self.status)

    def _read(self, name: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / name).read_text())
        return read


class Zygote:
    """The executor's end of the line to a zygote."""

    def __init__(self, line: socket.socket, process: subprocess.Popen[bytes], code: Path, home: Path) -> None:
        self.line, self.process, self._code, self._home = line, process, code, home
        self._runs = 0
        self.first = self.hear()

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self.line.recv(1 << 16))
        return heard

    def begin(self, spider: str, **order: Any) -> tuple[Run, int]:
        """Start a run; returns it and the end of its pipe from which its output is read."""
        self._runs += 1
        run = Run(write_order(self._home / f"run-{self._runs}", self._code, spider, **order))
        reads, writes = os.pipe()
        socket.send_fds(self.line, [json.dumps({"start": str(run.folder)}).encode()], [writes])
        os.close(writes)
        started = self.hear()
        assert started["started"] == str(run.folder)
        run.pid = started["pid"]
        return run, reads

    def finish(self, run: Run, reads: int) -> Run:
        with open(reads, "rb") as pipe:
            run.output += pipe.read()
        run.answer = self.hear()
        assert run.answer["ended"] == str(run.folder)
        run.status = run.answer["status"]
        return run

    def run(self, spider: str, **order: Any) -> Run:
        return self.finish(*self.begin(spider, **order))


@contextmanager
def zygote(code: Path, home: Path) -> Iterator[Zygote]:
    """A zygote for the project in ``code``; its runs have their folders in ``home``."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_SECONDS)
    with ours:
        # The shell's redirection puts the socket where the zygote looks for it.
        command = f'exec "$0" -I "$1" zygote 3<&{theirs.fileno()}'
        with theirs:
            process = subprocess.Popen(
                ["bash", "-c", command, sys.executable, str(AGENT)], pass_fds=[theirs.fileno()], start_new_session=True
            )
        ours.send(json.dumps(first_message(code)).encode())
        try:
            yield Zygote(ours, process, code, home)
        finally:
            ours.close()
            process.wait(PATIENCE_SECONDS)


def first_message(code: Path) -> dict[str, Any]:
    return {"code": str(code), "settings_module": "shop.settings", "isolation": "L0", "read": [], "write": []}


def write_order(folder: Path, code: Path, spider: str, **order: Any) -> Path:
    folder.mkdir(parents=True)
    words = {"spider": spider, "settings_module": "shop.settings", "code": str(code), "run_id": "r7", **order}
    (folder / "order.json").write_text(json.dumps(words))
    return folder


def run_cold(code: Path, folder: Path, spider: str, **order: Any) -> Run:
    """One run in a process of its own."""
    run = Run(write_order(folder, code, spider, **order))
    command = [sys.executable, "-I", str(AGENT), "run", str(run.folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS)
    run.output, run.status = done.stdout, done.returncode << 8
    return run


def inspect(code: Path, settings_module: str = "shop.settings") -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-I", str(AGENT), "inspect", str(code), settings_module]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS)
    return done.returncode, json.loads(done.stdout)
