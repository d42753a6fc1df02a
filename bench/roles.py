"""weft's own processes in a benchmark: started on one configuration, and ended with it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from weft.app import App, open_app
from weft.cli.up import environment
from weft.config import Config, Loaded

Process = subprocess.Popen[bytes]

LOUD = ("warning", "error", "critical")


class Roles(ExitStack):
    """The processes on one configuration, each ended gently, in the reverse order of their starts."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self._output = config.folder / "output"
        self._environment = environment(Loaded(config, ())) | {"XDG_STATE_HOME": str(config.folder / "state")}

    def weft(self, *arguments: str) -> Process:
        """A command of weft: ``weft("serve")``. It ends with the benchmark, also with one that is killed."""
        supervised = ["--supervised"] if arguments[0] in ("serve", "worker") else []
        return self.start([sys.executable, "-m", "weft", *arguments, *supervised])

    def crew(self, name: str, count: int, directory: Path, mode: str = "") -> Process:
        """A process of ``count`` workers that note in ``directory`` when each run started."""
        return self.start([sys.executable, "-m", "bench.crew", name, str(count), str(directory), mode])

    def python(self, module: str, *arguments: str) -> Process:
        """A process of the benchmark itself."""
        return self.start([sys.executable, "-m", module, *arguments])

    def start(self, command: Sequence[str]) -> Process:
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        self.callback(end, process)
        return process

    def complaints(self) -> list[str]:
        """Every line that a process has written which is not a mere statement."""
        lines = self._output.read_text(errors="replace").splitlines() if self._output.exists() else []
        return [line for line in lines if is_loud(line)]


def is_loud(line: str) -> bool:
    try:
        return json.loads(line).get("level") in LOUD
    except (ValueError, AttributeError):
        return True


def end(process: Process) -> None:
    """End a process and all of its session: first by asking."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@contextmanager
def place(**settings: object) -> Iterator[Config]:
    """A configuration whose files live as long as one measurement."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        yield Config(data_dir=directory, port=0, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def stage(**settings: object) -> AsyncIterator[tuple[App, Roles]]:
    """weft on such a configuration: its front doors here, and whatever processes are started on it."""
    with place(**settings) as config:
        app = await open_app(config)
        try:
            with Roles(config) as roles:
                yield app, roles
        finally:
            await app.close()
