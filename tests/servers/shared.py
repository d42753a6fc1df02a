"""Servers that all processes of one test run use at once: the first process that asks starts the server.

The test run is the process that called ``begin_run`` (pytest itself, not its xdist workers). It holds a FIFO open, and
the guard of each shared server waits for the other end to close: the servers end with the run, also when it is killed,
and not with the process that happened to start them.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import server
from tests.servers.server import Kind, Server

RUN = "TEST_RUN_FOLDER"
"""Environment variable: the folder of the test run, inherited by every process of it."""

SETTINGS = {
    "postgresql": {"max_connections": "500"},
    "mariadb": {"max_connections": "500"},
    "redis": {"databases": "64"},
}
"""What a server needs in addition where several processes use it."""


class TestRun:
    """Begins a run, or joins the one that a parent process began."""

    __test__ = False

    def __init__(self) -> None:
        self._owned: Path | None = None
        self._alive = -1

    def begin(self) -> None:
        if RUN in os.environ:
            return
        folder = Path(tempfile.mkdtemp(prefix="weft-test-run-", dir=server.place))
        folder.chmod(0o755)
        os.mkfifo(folder / "alive")
        self._alive = os.open(folder / "alive", os.O_RDWR)
        os.environ[RUN] = str(folder)
        self._owned = folder

    def end(self) -> None:
        """End the shared servers: their guards see that nobody holds the FIFO any more."""
        if self._owned is None:
            return
        os.close(self._alive)
        shutil.rmtree(self._owned, ignore_errors=True)
        del os.environ[RUN]
        self._owned = None


class SharedServer(Server):
    """A server of the whole run: it may be used by all processes, so none of them may end, pause or empty it."""

    def __init__(self, kind: Kind, port: int, directory: Path) -> None:
        self.kind = kind
        self.port = port
        self.directory = directory

    @property
    def url(self) -> str:
        """Each process has a Redis database of its own."""
        url = super().url
        return f"{url.rpartition('/')[0]}/{process_number()}" if self.kind.name == "redis" else url

    def start(self) -> None:
        self._refuse("started")

    def stop(self) -> None:
        self._refuse("stopped")

    def kill(self) -> None:
        self._refuse("killed")

    def pause(self) -> None:
        self._refuse("paused")

    def resume(self) -> None:
        self._refuse("resumed")

    def close(self) -> None:
        """It ends with the run."""

    def _refuse(self, what: str) -> None:
        raise RuntimeError(f"the shared {self.kind.name} cannot be {what}: use a server of the test's own")


def process_number() -> int:
    """0 for a run in one process, else 1 and up for each of its workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(worker.removeprefix("gw")) + 1 if worker else 0


def shared(kind: Kind) -> SharedServer:
    """The run's server of this kind, started if this is the first process that asks for it."""
    folder = Path(os.environ[RUN])
    with locked(folder / f"{kind.name}.lock"):
        description = folder / f"{kind.name}.json"
        if not description.exists():
            started = Server(kind, SETTINGS.get(kind.name, {}), alive=folder / "alive")
            started.detach()
            description.write_text(json.dumps({"port": started.port, "directory": str(started.directory)}))
        found = json.loads(description.read_text())
    return SharedServer(kind, found["port"], Path(found["directory"]))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
