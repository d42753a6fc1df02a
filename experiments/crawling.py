"""Spiders that note what they have yielded, and a look at which of their processes are alive.

A spider may write nowhere but into its run's folder, which goes with the run. So the experiment links its notes into a
folder of its own, and the spider waits for that before it yields anything.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.cluster import Cluster
from tests.servers.processes import is_alive, process_ids, stat_fields
from tests.spiders import project
from weft.app import App
from weft.projects.packing import pack
from weft.runs.model import NewRun, Retry, RunSpec
from weft.workers.work_dir import run_folders

PROJECT = "harvest"
COLD = "cold"
"""The same spiders in a project that cannot be forked."""

SPIDERS = '''
import asyncio
import hashlib
import os
import random
import subprocess

import scrapy
from scrapy import signals


class Numbered(scrapy.Spider):
    """Yields numbered items, and notes each once weft has it on disk; with a count of 0, until it has enough."""

    name = "numbered"

    def __init__(self, count: str, pause: str = "0", most_bytes: str = "300", child: str = "", **kwargs):
        super().__init__(**kwargs)
        self.count, self.pause, self.most_bytes, self.child = int(count), float(pause), int(most_bytes), child

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.note, signals.item_scraped)
        return spider

    async def start(self):
        self.notes = os.open("notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self.child:
            subprocess.Popen(["sleep", "600"], start_new_session=True)
        while os.fstat(self.notes).st_nlink < 2:
            await asyncio.sleep(0.02)
        number = 0
        while number < self.count if self.count else not os.path.exists("enough"):
            number += 1
            yield item(number, self.most_bytes)
            if random.random() < 0.1:
                await asyncio.sleep(random.random() * self.pause)

    def note(self, item):
        os.write(self.notes, b"%d\\n" % item["number"])


def item(number, most_bytes):
    """Every other item is the same in all runs."""
    text = os.urandom(random.randint(10, most_bytes)).hex() if number % 2 else "again and again"
    return {"number": number, "text": text, "checksum": hashlib.sha256(f"{number} {text}".encode()).hexdigest()}
'''

THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
AGAIN = Retry(count=1000, delay_seconds=0.1, factor=1.0, losses=1000)
NOTED_SECONDS = 0.02

Try = tuple[int, int]
"""Run and attempt."""

_RUN = re.compile(r"/runs/(?:[^/]+/){1,2}(\d+)-(\d+)(?:/|$)")


async def deploy(app: App, *names: str) -> None:
    """Deploy the spiders, as the project ``PROJECT`` unless others are named."""
    for name in names or (PROJECT,):
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".zip") as archive:
            pack(project(Path(folder), SPIDERS, more=THREAD if name == COLD else ""), archive)
            archive.flush()
            await app.projects.deploy(name, Path(archive.name), "1", by="experiment")


def crawl(
    count: int = 0, *, pause: float = 0.0, most_bytes: int = 300, child: bool = False, of: str = PROJECT
) -> NewRun:
    arguments: dict[str, Any] = {"count": count, "pause": pause, "most_bytes": most_bytes}
    arguments |= {"child": "yes"} if child else {}
    spec = RunSpec(spec={"spider": "numbered", "args": arguments, "isolation": "L1"}, retry=AGAIN)
    return NewRun(project=of, task="numbered", kind="spider", spec=spec)


class Field:
    """Where the spiders of a cluster are at work."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = cluster.folder
        self._notes = cluster.folder / "notes"
        self._notes.mkdir()
        self.missed = 0
        """How often there was nobody to kill."""
        self._seen: dict[int, tuple[str, Try]] = {}
        """Of each process of a run that was found, when it was started, and the attempt."""

    async def follow(self) -> None:
        """Hold on to the notes of every spider."""
        while True:
            for folder in self.folders():
                self._hold(folder)
            await asyncio.sleep(NOTED_SECONDS)

    def folders(self) -> list[Path]:
        """The folders of all runs that workers have on their disks."""
        found = [each for worker in self._folder.glob("*/runs/*") for each in run_folders(worker)]
        return [each for each in found if not each.name.startswith(".")]  # that is a file with which a disk is tried

    def enough(self) -> None:
        """Let the spiders that go on and on come to their end."""
        for folder in self.folders():
            try:
                (folder / "files" / "enough").touch()
            except FileNotFoundError:
                pass  # a run that has ended in this moment

    def noted(self) -> dict[Try, list[int]]:
        """What each attempt has noted; a line that was cut off is no note."""
        return {try_of(notes.name): _numbers(notes) for notes in self._notes.iterdir()}

    def spiders(self) -> dict[int, Try]:
        """The living processes of runs, with what they have started.

        In its own view of the files a process whose folder was removed has no path any more, so one that was seen once
        is remembered.
        """
        seen: dict[int, tuple[str, Try]] = {}
        for pid in process_ids():
            if match := _RUN.search(self._place(pid)):
                seen[pid] = (_started(pid), (int(match[1]), int(match[2])))
            elif pid in self._seen and self._seen[pid][0] == _started(pid):
                seen[pid] = self._seen[pid]
        self._seen = seen
        return {pid: place for pid, (_, place) in seen.items() if is_alive(pid)}

    def zygotes(self) -> list[int]:
        return [pid for pid in process_ids() if "/code/" in self._place(pid) and is_alive(pid)]

    def strike_spider(self) -> None:
        self._strike(lambda: list(self.spiders()))

    def strike_zygote(self) -> None:
        self._strike(self.zygotes)

    def _strike(self, find: Any, patience: float = 20.0) -> None:
        """Kill one of those that are found; where there are none for a while, nobody."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if (found := find()) and self._kill(random.choice(found)):
                return
            time.sleep(0.02)
        self.missed += 1

    def _kill(self, pid: int) -> bool:
        """Kill this very process: by the time of the signal, its id must still be one of ours."""
        try:
            process = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if ours := bool(self._place(pid)):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            return ours
        except OSError:
            return False
        finally:
            os.close(process)

    def _place(self, pid: int) -> str:
        """Where below the cluster's folder a process works; nothing where it is none of the cluster's."""
        try:
            place = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return ""
        return place if place.startswith(f"{self._folder}/") else ""

    def _hold(self, folder: Path) -> None:
        try:
            os.link(folder / "files" / "notes", self._notes / folder.name)
        except (FileNotFoundError, FileExistsError):
            pass


def _started(pid: int) -> str:
    """When a process was started, in ticks of the kernel's clock; no later one with its id has the same."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return fields[19] if fields else ""


def try_of(name: str) -> Try:
    run, _, attempt = name.partition("-")
    return int(run), int(attempt)


def _numbers(notes: Path) -> list[int]:
    text = notes.read_bytes()
    return [int(line) for line in text[: text.rfind(b"\n") + 1].split()]
