"""Scrapyd's schedule.json: one deployed project with one spider, and no process in which it could start."""

import io
import json
import sqlite3
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.doors import Seen
from bench.load import Load, ask, request
from bench.measure import cpu_seconds
from bench.peers.peer import PeerFailed, end
from bench.peers.python import program
from tests.servers.server import free_port

START_SECONDS = 60.0
PROJECT, SPIDER = "bench", "noop"
SETTINGS = """[scrapyd]
bind_address = 127.0.0.1
http_port = {port}
max_proc = 0
max_proc_per_cpu = 0
"""
EGG = {
    "EGG-INFO/PKG-INFO": "Metadata-Version: 1.0\nName: noops\nVersion: 1\n",
    "EGG-INFO/entry_points.txt": "[scrapy]\nsettings = noops.settings\n",
    "noops/__init__.py": "",
    "noops/settings.py": "SPIDER_MODULES = ['noops.spiders']\n",
    "noops/spiders/__init__.py": "",
    "noops/spiders/noop.py": f"import scrapy\n\n\nclass Noop(scrapy.Spider):\n    name = '{SPIDER}'\n",
}


@dataclass(frozen=True, slots=True)
class Scrapyd:
    """It as it comes, but that it starts nothing: what it accepts stays in its queue."""

    name: str = "Scrapyd"

    def submit(self, clients: int, seconds: float) -> Seen:
        body = f"project={PROJECT}&spider={SPIDER}"
        asked = request(
            "POST", "/schedule.json", body=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        with scrapyd() as (folder, port, pid):
            load, before = Load(port=port, requests=[asked], clients=clients, seconds=seconds), cpu_seconds(pid)
            answers = ask(load)
            return Seen(answers=answers, kept=queued(folder), server_cpu=cpu_seconds(pid) - before)


def nothing(_: Path) -> None:
    """It begins with an empty folder."""


@contextmanager
def scrapyd(
    settings: Mapping[str, str] = {}, prepare: Callable[[Path], None] = nothing
) -> Iterator[tuple[Path, int, int]]:
    """One that answers and knows its spider: its folder, which somebody may ``prepare``, its port and its process."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        folder, port = Path(directory), free_port()
        more = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (folder / "scrapyd.conf").write_text(SETTINGS.format(port=port) + more)
        deploy(folder)
        prepare(folder)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [program("scrapyd")], cwd=folder, stdout=output, stderr=output, start_new_session=True
            )
        try:
            wait_for_spider(port, process, folder / "output")
            yield folder, port, process.pid
        finally:
            end(process)


def deploy(folder: Path) -> None:
    """Put the project's egg where Scrapyd would have stored it."""
    egg = folder / "eggs" / PROJECT / "1.egg"
    egg.parent.mkdir(parents=True)
    egg.write_bytes(packed(EGG))


def packed(files: Mapping[str, str]) -> bytes:
    """An egg, as it is uploaded."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def wait_for_spider(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    """Return when the spider is known: Scrapyd looks for the spiders of a project once, and remembers them."""
    address, deadline = f"http://127.0.0.1:{port}/listspiders.json?project={PROJECT}", time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=START_SECONDS) as answer:
                said = json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
            continue
        if said.get("spiders") == [SPIDER]:
            return
        raise PeerFailed("Scrapyd", f"does not know its spider: {said}", output.read_text(errors="replace"))
    raise PeerFailed("Scrapyd", "did not answer", output.read_text(errors="replace"))


def queued(folder: Path) -> int:
    """How many it keeps in its queue."""
    with sqlite3.connect(folder / "dbs" / f"{PROJECT}.db") as connection:
        return int(connection.execute("SELECT COUNT(*) FROM spider_queue").fetchone()[0])
