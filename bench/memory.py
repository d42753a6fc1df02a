"""Memory of weft's processes at rest, and how long its command line takes to start, beside others."""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.latencies import machine_load
from bench.measure import Figures, Goal, family, judge, pss_megabytes, table
from bench.peers.peer import PeerFailed
from bench.peers.python import VENV, program
from bench.roles import Process, Roles, place
from bench.schedules import is_led
from bench.servers import Servers
from bench.setups import Setup, chosen, setups
from bench.waiting import until
from weft.app import open_app
from weft.config import Config

EACH_MB, UP_MB, START_MS = 50.0, 200.0, 200.0
REST_SECONDS = 4.0
WEFT = str(Path(sys.executable).with_name("weft"))
OURS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "weft --version": [WEFT, "--version"],
    "weft runs list": [WEFT, "runs", "list"],
}
PEERS = {
    "celery --version": ["celery", "--version"],
    "dramatiq --version": ["dramatiq", "--version"],
    "taskiq --version": ["taskiq", "--version"],
    "pgq --help": ["pgq", "--help"],
}


@dataclass(frozen=True, slots=True)
class Weight:
    """The proportional memory of a role, a figure for each run."""

    what: str
    megabytes: Figures
    at_most: float


@dataclass(frozen=True, slots=True)
class Start:
    """How long a command took, in milliseconds."""

    wall: Figures = field(default_factory=Figures)
    cpu: Figures = field(default_factory=Figures)

    def add(self, wall: float, cpu: float) -> None:
        self.wall.add(wall)
        self.cpu.add(cpu)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    weights: dict[str, Weight] = {}
    with Servers() as servers:
        found = [each for each in chosen(setups(servers), options.only) if each.broker_name != "memory"]
        for _ in range(options.runs):
            for setup in found:
                for what, megabytes, most in asyncio.run(at_rest(setup)):
                    weights.setdefault(what, Weight(what, Figures(), most)).megabytes.add(megabytes)
    starts = start_times(options.starts)
    print(report(list(weights.values()), starts))
    print(machine_load())
    return judge(goals(list(weights.values()), starts))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench memory", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often memory is measured (3)")
    parser.add_argument("--starts", type=int, default=11, help="how often each command is started (11)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    return parser.parse_args(arguments)


async def at_rest(setup: Setup) -> list[tuple[str, float, float]]:
    with place(**setup.settings()) as config, Roles(config) as roles:
        roles_by_name = {"serve": roles.weft("serve"), "worker": roles.weft("worker", "--name", "worker")}
        await resting(config, workers=1)
        found = [(f"{setup.name}: {name}", memory(one), EACH_MB) for name, one in roles_by_name.items()]
    if setup.name == "SQLite, local":
        found += await all_of_it(setup)
    return found


async def all_of_it(setup: Setup) -> list[tuple[str, float, float]]:
    """What ``weft up`` takes with all that it starts: the supervisor, the control process, a worker for each core."""
    with place(**setup.settings()) as config, Roles(config) as roles:
        up = roles.weft("up", "--no-examples")
        cores = os.cpu_count() or 1
        await resting(config, workers=cores)
        return [(f"{setup.name}: up, with {cores} workers", memory(up), UP_MB)]


async def resting(config: Config, *, workers: int) -> None:
    """Return when the scheduler leads, so many workers have joined, and their start is over."""
    app = await open_app(config)

    async def all_there() -> bool:
        return len(await app.workers.all()) >= workers and await app.db.read(is_led)

    await until(f"a scheduler and {workers} workers", all_there)
    await app.close()
    await asyncio.sleep(REST_SECONDS)


def memory(process: Process) -> float:
    return sum(pss_megabytes(pid) for pid in family(process.pid))


def start_times(count: int) -> dict[str, Start]:
    """How long each command takes from its start to its end, all in turn."""
    if not VENV.exists():
        print("no peers beside it: ./dev bench throughput installs them")
    there = {name: command for name, command in PEERS.items() if Path(program(command[0])).exists()}
    commands = OURS | {name: [program(first), *rest] for name, (first, *rest) in there.items()}
    starts = {name: Start() for name in commands}
    with place() as config:
        environment = os.environ | {"WEFT_DATA_DIR": config.data_dir}
        timed([WEFT, "runs", "submit", "--kind", "noop", "--spec", "{}"], environment)  # so that there is one to list
        for _ in range(count):
            for name, command in commands.items():
                starts[name].add(*timed(command, environment))
    return starts


def timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Milliseconds of a command by the clock and of the processor."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise PeerFailed(" ".join(command), f"ended with {process.returncode}", "")
    return took * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def report(weights: Sequence[Weight], starts: Mapping[str, Start]) -> str:
    memory_rows = [[each.what, f"{each.megabytes.median:.1f}"] for each in weights]
    start_rows = [[name, start.wall, f"{start.cpu.median:,.0f}"] for name, start in starts.items()]
    tables = [table(["at rest", "MB PSS"], memory_rows), table(["command", "ms", "of them processor"], start_rows)]
    return "\n" + "\n\n".join(tables) + "\n"


def goals(weights: Sequence[Weight], starts: Mapping[str, Start]) -> list[Goal]:
    found = [Goal(what=each.what, value=each.megabytes.median, at_most=each.at_most, unit=" MB") for each in weights]
    version = starts["weft --version"].wall.median
    return [*found, Goal(what="weft --version", value=version, at_most=START_MS, unit=" ms")]
