"""A peer: its backlog is made, its workers are started, watched and ended, all as processes of its own Python."""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.marks import DIRECTORY, Marks
from bench.peers.python import ROOT, program

FILL_SECONDS = 180.0
STALL_SECONDS = 20.0
MEASURED = 0.9
"""The part of a backlog that must be done for its rate to count."""

Output = int | IO[bytes]


class PeerFailed(Exception):
    """A peer ended, or did not get through its tasks in time."""

    def __init__(self, name: str, why: str, output: str) -> None:
        super().__init__(f"{name} {why}; its last words:\n{output[-2000:]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A queue that a user could pick instead of weft, at the setting that makes it fastest here."""

    name: str
    app: str
    """The module in bench/peers that holds its no-op task."""
    fill: str = "submit"
    """The app's function that makes a backlog fastest."""
    workers: Callable[[int], Sequence[Sequence[str]]]
    """The commands that start so many worker processes."""
    url: Callable[[Path], str]
    """Where its broker is, given a directory that lives as long as one measurement."""

    def drain(self, processes: int, tasks: int) -> float:
        with measurement(self) as place:
            place.call(self.fill, tasks)
            with place.working(self.workers(processes)) as workers:
                place.wait_for(tasks, workers)
            return place.marks.rate()

    def submit(self, tasks: int) -> float:
        with measurement(self) as place:
            return tasks / place.call("submit", tasks)


@contextmanager
def measurement(peer: Peer) -> Iterator["Place"]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        yield Place(peer, Path(directory))


class Place:
    """Where one measurement happens: a directory, a queue that is new, and the processes that share them."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        self._peer = peer
        self._output = directory / "output"
        marks = directory / "marks"
        marks.mkdir()
        self.marks = Marks(marks)
        self._environment = os.environ | {
            "BENCH_URL": peer.url(directory),
            "BENCH_QUEUE": f"bench-{uuid.uuid4().hex[:8]}",
            DIRECTORY: str(marks),
            "PYTHONPATH": str(ROOT),
        }

    def call(self, function: str, tasks: int) -> float:
        """Let the peer's app call one of its functions; the seconds that this took, without its imports."""
        command = ["python", "-m", "bench.peers.app", self._peer.app, function, str(tasks)]
        with self._output.open("ab") as output, self._spawn(command, subprocess.PIPE, output) as process:
            try:
                said, _ = process.communicate(timeout=FILL_SECONDS)
            except subprocess.TimeoutExpired:
                end(process)
                raise self._failure(f"needed more than {FILL_SECONDS:.0f} s to {function} {tasks} tasks") from None
        if process.returncode:
            raise self._failure(f"could not {function} {tasks} tasks")
        return float(said.split()[-1])

    @contextmanager
    def working(self, commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self._worker(command)) for command in commands]

    def wait_for(self, tasks: int, workers: list[subprocess.Popen[bytes]]) -> None:
        """Return when all is done, or all that will be: the last tenth is not measured, and a lost message not ours."""
        done, moved_at = 0, time.monotonic()
        while done < tasks:
            time.sleep(0.05)
            before, done = done, self.marks.total()
            if done > before:
                moved_at = time.monotonic()
            elif any(worker.poll() is not None for worker in workers):
                raise self._failure(f"lost a worker after {done} of {tasks} tasks")
            elif time.monotonic() > moved_at + STALL_SECONDS:
                if done < tasks * MEASURED:
                    raise self._failure(f"did {done} of {tasks} tasks and then none for {STALL_SECONDS:.0f} s")
                print(f"{self._peer.name} left {tasks - done} of {tasks} tasks undone", flush=True)
                return

    @contextmanager
    def _worker(self, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        with self._output.open("ab") as output:
            worker = self._spawn(command, output, output)
        try:
            yield worker
        finally:
            end(worker)

    def _spawn(self, command: Sequence[str], stdout: Output, stderr: Output) -> subprocess.Popen[bytes]:
        """Start a program of the peers' environment, in a process group of its own so that its children end with it."""
        return subprocess.Popen(
            [program(command[0]), *command[1:]],
            env=self._environment,
            cwd=ROOT,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def _failure(self, why: str) -> PeerFailed:
        return PeerFailed(self._peer.name, why, self._output.read_text(errors="replace"))


def end(worker: subprocess.Popen[bytes]) -> None:
    """End the worker and its children at once: its queue is never used again, so there is nothing to put in order."""
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    worker.wait()
