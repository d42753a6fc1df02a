"""Scrapyd as something that runs spiders: with its own settings, or with those that make it fastest here."""

import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.peer import PeerFailed, end
from bench.peers.python import program
from bench.spider_hosts import START_SECONDS, Host, Line, Opening
from bench.spider_project import PROJECT, write_egg
from tests.servers.server import free_port

TUNED = {"poll_interval": "0.1"}
"""It looks ten times a second; it runs four spiders for each core at once as it comes, and fewer are not faster."""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(slots=True)
class Scrapyd:
    """One that answers and knows its spiders."""

    name: str
    pid: int
    line: Line

    def submit(self, project: str, spider: str, args: dict[str, str]) -> None:
        form = urllib.parse.urlencode({"project": project, "spider": spider, **args})
        _, said = self.line.ask("POST", "/schedule.json", form)
        if said.get("status") != "ok":
            raise PeerFailed(self.name, f"answered {said}", "")

    def unfinished(self) -> int:
        _, said = self.line.ask("GET", "/daemonstatus.json")
        return int(said["pending"]) + int(said["running"])

    def is_for_spiders(self, pid: int) -> bool:
        return pid != self.pid

    def is_warm(self) -> bool:
        return True  # nothing stays from one run to the next but what the machine has cached


def scrapyd(name: str, settings: dict[str, str]) -> Opening:
    """How one with these settings is opened; all others are as they come."""

    @contextmanager
    def opening(*, project: str = PROJECT) -> Iterator[Host]:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
            folder, port = Path(directory), free_port()
            lines = {"bind_address": "127.0.0.1", "http_port": str(port), **settings}
            text = "".join(f"{key} = {value}\n" for key, value in lines.items())
            (folder / "scrapyd.conf").write_text(f"[scrapyd]\n{text}")
            write_egg(folder / "eggs" / project / "1.egg", project)
            with (folder / "output").open("wb") as output:
                process = subprocess.Popen(
                    [program("scrapyd")], cwd=folder, stdout=output, stderr=output, start_new_session=True
                )
            line = Line(port, FORM)
            try:
                wait_for_spiders(project, line, process, folder / "output")
                yield Scrapyd(name, process.pid, line)
            finally:
                line.close()
                end(process)

    return opening


def wait_for_spiders(project: str, line: Line, process: subprocess.Popen[bytes], output: Path) -> None:
    """Return when the spiders are known: Scrapyd looks for those of a project once, and remembers them."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            _, said = line.ask("GET", f"/listspiders.json?project={project}")
        except OSError:
            line.close()
            time.sleep(0.1)
            continue
        if said.get("spiders"):
            return
        break
    raise PeerFailed("Scrapyd", "does not know its spiders", output.read_text(errors="replace"))
