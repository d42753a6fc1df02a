"""A project of bad spiders, each bad in its own way, and how weft must end each of them.

None can harm the machine where weft fails to stop it: each stops by itself, at less than a gigabyte, 200 processes or
a minute.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.spiders import project
from weft.app import App
from weft.projects.packing import pack
from weft.runs.model import NewRun, RunSpec

PROJECT = "rogues"
GOOD = "good"

SPIDERS = '''
import asyncio
import os
import signal
import sys
import time

import scrapy

MIB = 2**20
A_MINUTE = 60


class Good(scrapy.Spider):
    """Works a little, waits a little, and is done in half a second."""

    name = "good"

    async def start(self):
        for number in range(10):
            sum(range(50_000))
            yield {"number": number}
            await asyncio.sleep(0.05)


class Memory(scrapy.Spider):
    """Takes more and more memory."""

    name = "memory"

    async def start(self):
        held = []
        while len(held) < 20:
            held.append(os.urandom(20 * MIB))
            await asyncio.sleep(0.05)
        await asyncio.sleep(A_MINUTE)
        yield {}


class Gulp(scrapy.Spider):
    """Takes a lot of memory at once."""

    name = "gulp"

    async def start(self):
        held = bytearray(900 * MIB)
        yield {"held": len(held)}


class Forks(scrapy.Spider):
    """Forks, and what it has forked forks too."""

    name = "forks"

    async def start(self):
        for _ in range(7):
            os.fork()
        time.sleep(A_MINUTE)
        yield {}


class Descriptors(scrapy.Spider):
    """Opens what it can."""

    name = "descriptors"

    async def start(self):
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_000_000)]
        yield {"held": len(held)}


class Spin(scrapy.Spider):
    """Computes in C, where no signal of Python's is looked at."""

    name = "spin"

    async def start(self):
        yield {"total": sum(range(4_000_000_000))}


class Files(scrapy.Spider):
    """Writes file after file."""

    name = "files"

    async def start(self):
        for number in range(10_000):
            with open(f"{number}", "wb") as file:
                file.write(bytes(16_384))
            await asyncio.sleep(0.001)
        await asyncio.sleep(A_MINUTE)
        yield {}


class Large(scrapy.Spider):
    """Writes one large file."""

    name = "large"

    async def start(self):
        with open("large", "wb") as file:
            for _ in range(500):
                file.write(bytes(MIB))
        yield {}


class Flood(scrapy.Spider):
    """Prints as fast as it can."""

    name = "flood"

    async def start(self):
        for _ in range(5_000):
            sys.stdout.write("x" * 100_000 + "\\n")
            await asyncio.sleep(0)
        yield {}


class Stubborn(scrapy.Spider):
    """Does not hear that it should end."""

    name = "stubborn"

    async def start(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for _ in range(10 * A_MINUTE):
            time.sleep(0.1)
        yield {}


class Daemon(scrapy.Spider):
    """Leaves somebody behind: another session, another folder, nobody's child, no environment."""

    name = "daemon"

    async def start(self):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.chdir("/")
                os.closerange(0, 100)
                os.execve("/bin/sleep", ["sleep", str(A_MINUTE)], {})
            os._exit(0)
        os.wait()
        yield {"left": "somebody"}


class Aborts(scrapy.Spider):
    """Dumps its core."""

    name = "aborts"

    async def start(self):
        os.abort()
        yield {}


class Huge(scrapy.Spider):
    """Yields one item that is too large."""

    name = "huge"

    async def start(self):
        yield {"text": "x" * 5 * MIB}


class Tiny(scrapy.Spider):
    """Yields very many items."""

    name = "tiny"

    async def start(self):
        for number in range(10_000_000):
            yield {"number": number}


class Hangs(scrapy.Spider):
    """Waits for what never comes."""

    name = "hangs"

    async def start(self):
        await asyncio.sleep(A_MINUTE)
        yield {}


class Nonsense(scrapy.Spider):
    """Yields what is not JSON, items that name themselves among it."""

    name = "nonsense"

    async def start(self):
        inside = {}
        inside["self"] = inside
        yield {"thing": object()}
        yield inside


class Deep(scrapy.Spider):
    """Leaves folders in folders in folders."""

    name = "deep"

    async def start(self):
        for _ in range(1_500):
            os.mkdir("d")
            os.chdir("d")
        yield {}


class Tampers(scrapy.Spider):
    """Leaves pipes and links where its worker looks for what it has to say."""

    name = "tampers"

    async def start(self):
        os.rename("../items", "../elsewhere")
        os.mkfifo("../items")
        os.unlink("../stats.json")
        os.mkfifo("../stats.json")
        os.symlink("/etc/passwd", "../end.json")
        os._exit(0)
        yield {}
'''


@dataclass(frozen=True, slots=True)
class Rogue:
    """A bad spider, and how its run must end."""

    spider: str
    outcome: str
    says: str
    """What its reason must have in it."""
    limits: Mapping[str, int] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


SMALL = {"memory_bytes": 200 << 20, "processes": 20, "files": 64, "disk_bytes": 20 << 20}
"""What every bad spider may use, unless its own limits say otherwise."""

ROGUES = (
    Rogue("memory", "oom", "200 MiB are allowed"),
    Rogue("gulp", "oom", "memory"),
    Rogue("forks", "processes", "20 are allowed"),
    Rogue("descriptors", "failed", "64"),
    Rogue("spin", "cpu_limit", "CPU time", {"cpu_seconds": 1}),
    Rogue("files", "disk_limit", "20 MiB are allowed"),
    Rogue("large", "disk_limit", ""),
    Rogue("flood", "log_limit", "3000000 bytes", spec={"log_bytes": 3_000_000}),
    Rogue("stubborn", "timeout", "timeout of 1 s", more={"timeout_seconds": 1.0, "grace_seconds": 0.5}),
    Rogue("daemon", "succeeded", ""),
    Rogue("aborts", "failed", "SIGABRT"),
    Rogue("huge", "item_limit", "1000000 are allowed", {"item_bytes": 1_000_000}),
    Rogue("tiny", "item_limit", "1000 items", {"items": 1000}),
    Rogue("hangs", "stalled", "for 1 s", {"stalled_seconds": 1}),
    Rogue("nonsense", "failed", "2 of 2 items were refused"),
    Rogue("deep", "succeeded", ""),
    Rogue("tampers", "failed", "it ended without a word"),
)


async def deploy(app: App) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".zip") as archive:
        pack(project(Path(folder), SPIDERS), archive)
        archive.flush()
        await app.projects.deploy(PROJECT, Path(archive.name), "1", by="experiment")


def bad_run(rogue: Rogue, isolation: str) -> NewRun:
    spec = {"spider": rogue.spider, "isolation": isolation, "limits": SMALL | dict(rogue.limits), **rogue.spec}
    return NewRun(project=PROJECT, task=rogue.spider, kind="spider", spec=RunSpec(spec=spec, **rogue.more))


def good_run() -> NewRun:
    return NewRun(project=PROJECT, task=GOOD, kind="spider", spec=RunSpec(spec={"spider": GOOD, "isolation": "L1"}))
