"""Spiders that print numbered lines at a pace, each with its time, and what became of those lines."""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.spiders import project
from weft.app import App
from weft.projects.packing import pack
from weft.runs.model import NewRun, RunSpec

PROJECT = "press"
SPIDER = "prints"
SPIDERS = '''
import asyncio
import socket
import sys
import time

import scrapy


class Prints(scrapy.Spider):
    """Prints as many lines a second as it is told, and catches up where it was held up."""

    name = "prints"

    def __init__(self, rate, seconds, width, port="", **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seconds, self.width, self.port = float(rate), float(seconds), int(width), port

    async def start(self):
        if self.port:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as teller:
                teller.sendto(b"printing", ("127.0.0.1", int(self.port)))
        began, printed, longest, lines = time.monotonic(), 0, 0.0, int(self.rate * self.seconds)
        while printed < lines:
            due = min(lines, int((time.monotonic() - began) * self.rate))
            before = time.monotonic()
            while printed < due:
                printed += 1
                sys.stdout.write(f"line {printed:09d} {time.time_ns()} ".ljust(self.width - 1, ".") + "\\n")
            longest = max(longest, time.monotonic() - before)
            await asyncio.sleep(0.005)
        yield {"lines": printed, "seconds": time.monotonic() - began, "longest": longest}
'''

_LINE = re.compile(rb"^line (\d{9}) (\d+) \.*$", re.MULTILINE)
_DROPPED = re.compile(rb"\[weft\] (\d+) bytes dropped")


@dataclass(frozen=True, slots=True)
class Printed:
    """A log: the numbers of its lines, when the last was printed, and how many bytes it says were dropped."""

    numbers: Sequence[int]
    last_at: float
    dropped: int

    @classmethod
    def read(cls, log: bytes) -> Printed:
        lines = _LINE.findall(log)
        told = _DROPPED.search(log)
        last = int(lines[-1][1]) / 1e9 if lines else 0.0
        return cls([int(number) for number, _ in lines], last, int(told[1]) if told else 0)

    def is_whole(self, lines: int) -> bool:
        return list(self.numbers) == list(range(1, lines + 1))


async def deploy(app: App) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".zip") as archive:
        pack(project(Path(folder), SPIDERS), archive)
        archive.flush()
        await app.projects.deploy(PROJECT, Path(archive.name), "1", by="experiment")


class Ear:
    """Hears when spiders begin to print: from themselves, so that no log is between them and the experiment."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def hear(self, spiders: int, patience: float) -> None:
        """Return when so many spiders have begun to print; ``TimeoutError`` where some of them do not."""
        async with asyncio.timeout(patience):
            for _ in range(spiders):
                await asyncio.get_running_loop().sock_recv(self._socket, 100)


def print_run(rate: float, seconds: float, width: int, label: str, port: int | str = "", **more: Any) -> NewRun:
    """A run that prints lines of ``width`` bytes, on a worker with that label, and tells an ``Ear`` when it begins."""
    spec = {"spider": SPIDER, "args": {"rate": rate, "seconds": seconds, "width": width, "port": port}}
    return NewRun(project=PROJECT, task=SPIDER, kind="spider", spec=RunSpec(spec=spec, labels=(label,), **more))
