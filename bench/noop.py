"""weft as a contender: no-op runs on each database, done when their outcome and history are durable."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.marks import DIRECTORY, Marks
from bench.peers.peer import PeerFailed, end
from bench.servers import Servers
from weft.app import App, open_app
from weft.config import Config
from weft.runs.model import NewRun, RunSpec

BATCH = 1000
STALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Weft:
    """weft on one database, with real worker processes."""

    name: str
    database: Callable[[Path], str]

    def drain(self, processes: int, tasks: int) -> float:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
            config = Config(data_dir=directory, database=self.database(Path(directory)))
            asyncio.run(fill(config, tasks))
            marks = Path(directory) / "marks"
            marks.mkdir()
            with working(config, processes, marks):
                return done_rate(self.name, Marks(marks), tasks)

    def submit(self, tasks: int) -> float:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
            return asyncio.run(
                submit_one_by_one(Config(data_dir=directory, database=self.database(Path(directory))), tasks)
            )


def contenders(servers: Servers) -> list[Weft]:
    return [
        Weft("weft on SQLite", lambda directory: ""),
        Weft("weft on PostgreSQL", lambda directory: servers.postgresql.new_database()),
    ]


def noop() -> NewRun:
    return NewRun(project="bench", task="noop", kind="noop", spec=RunSpec(spec={}))


async def fill(config: Config, tasks: int) -> None:
    app = await open_app(config)
    for start in range(0, tasks, BATCH):
        await app.runs.submit([noop() for _ in range(min(BATCH, tasks - start))])
    await app.close()


async def submit_one_by_one(config: Config, tasks: int) -> float:
    app: App = await open_app(config)
    started = time.perf_counter()
    for _ in range(tasks):
        await app.runs.submit([noop()])
    seconds = time.perf_counter() - started
    await app.close()
    return tasks / seconds


@contextmanager
def working(config: Config, processes: int, marks: Path) -> Iterator[None]:
    settings = {"WEFT_DATA_DIR": config.data_dir, "WEFT_DATABASE": config.database, "WEFT_CAPACITY": "400"}
    environment = os.environ | {name: value for name, value in settings.items() if value} | {DIRECTORY: str(marks)}
    with ExitStack() as stack:
        for number in range(processes):
            command = [sys.executable, "-m", "bench.noop_worker", f"worker-{number}"]
            worker = subprocess.Popen(command, env=environment, start_new_session=True)
            stack.callback(end, worker)
        yield


def done_rate(name: str, marks: Marks, tasks: int) -> float:
    done, moved_at = 0, time.monotonic()
    while done < tasks:
        time.sleep(0.05)
        before, done = done, marks.total()
        if done > before:
            moved_at = time.monotonic()
        elif time.monotonic() > moved_at + STALL_SECONDS:
            raise PeerFailed(name, f"did {done} of {tasks} tasks and then none for {STALL_SECONDS:.0f} s", "")
    return marks.rate()
