"""What weft's processes may import and how much memory they may take while there is nothing to do.

Each is started as a user starts it. Python itself tells what it imports (``-X importtime``), so nothing of ours is in
the way.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from bench.measure import pss_megabytes
from tests import servers
from tests.cases import for_each
from tests.cli.commanding import environment
from tests.conftest import migrated, plain_engine, sqlite_copy
from tests.servers.server import free_port
from tests.waiting import eventually

MEGABYTES = {"serve": 50.0, "worker": 50.0, "gateway": 80.0}
"""The most that a process may take, in proportional memory (PSS)."""

UNUSED = {
    "aiohttp": "executors import it with the first http run",
    "bench": "benchmarks are no part of weft",
    "cProfile": "a profiler is for a person who asks for it",
    "multiprocessing": "weft starts processes by their command",
    "obstore": "nobody chose a bucket",
    "psycopg": "SQLite needs no driver",
    "pymysql": "SQLite needs no driver",
    "hiredis": "nobody chose Redis",
    "aiormq": "nobody chose RabbitMQ",
    "pydantic": "specs are checked by msgspec",
    "rich": "only a terminal wants colours",
    "sqlalchemy.dialects.mysql": "one database is spoken to",
    "sqlalchemy.dialects.postgresql": "one database is spoken to",
    "sqlalchemy.ext": "there is neither an ORM nor an async engine",
    "sqlalchemy.orm": "there is no ORM",
    "typer.rich_utils": "help is for people",
    "yaml": "task files are read by commands",
}
"""What no process at rest may have imported, and why."""

UVICORNS = {("gateway", "multiprocessing")}
"""What the server of the gateway imports for uses that weft makes no use of."""

ROLES = {
    "serve": ("serve", "--port", "0"),
    "worker": ("worker", "--name", "rested"),
    "gateway": ("serve", "--process-roles", "gateway", "--port", str(free_port())),
}
READY = {
    "serve": "SELECT count(*) FROM leaders",
    "worker": "SELECT count(*) FROM workers WHERE beats > 0",
    "gateway": "SELECT count(*) FROM users",
}
"""What tells that a role has come to rest."""

MOST_MODULES = {"serve": 400, "worker": 405, "gateway": 545}
"""Of others than weft, a tenth more than there are now: a new dependency shows here first."""

MOST_MODULES_OF_A_COMMAND = 180

UNUSED_BY_A_LIST = (
    "weft.app",
    "weft.tasks",
    "weft.workers",
    "weft.webhooks",
    "weft.client",
    "weft.operations",
    "weft.http",
)
"""What a list of runs need not load."""


@dataclass(frozen=True)
class Rested:
    """A process that has nothing to do."""

    modules: frozenset[str]
    megabytes: float


def imported(told: str) -> frozenset[str]:
    """The modules that Python told of as it imported them."""
    lines = (line for line in told.splitlines() if line.startswith("import time:"))
    return frozenset(line.rsplit("|", 1)[1].strip() for line in lines) - {"imported package"}


@contextmanager
def started(role: str, settings: Mapping[str, str], told: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "importtime", "-m", "weft", *ROLES[role]]
    with told.open("wb") as errors:
        process = subprocess.Popen(command, env=environment(**settings), stdout=errors, stderr=errors)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def rested(role: str, settings: Mapping[str, str], folder: Path) -> Rested:
    """Start a role, wait until it does no more than its regular duties, and look at it."""
    told = folder / f"{role}.told"
    with started(role, settings, told) as process:

        async def ready() -> bool:
            assert process.poll() is None, told.read_text()[-2000:]
            return await asyncio.to_thread(count, settings["WEFT_DATABASE"], READY[role]) > 0

        asyncio.run(until(ready))
        return Rested(imported(told.read_text()), pss_megabytes(process.pid))


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    await eventually(ready, timeout=60)


def count(url: str, query: str) -> int:
    """0 also while there is no such table yet."""
    try:
        with plain_engine(url).connect() as connection:
            return int(connection.execute(text(query)).scalar() or 0)
    except DBAPIError:
        return 0


def created(url: str, role: str) -> str:
    """A worker creates no database."""
    return migrated(url) if role == "worker" else url


@pytest.fixture(scope="module", params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def on_sqlite(role: str, tmp_path_factory: pytest.TempPathFactory) -> Rested:
    folder = tmp_path_factory.mktemp(role)
    settings = {"WEFT_DATA_DIR": str(folder), "WEFT_DATABASE": created(f"sqlite:///{folder / 'weft.db'}", role)}
    return rested(role, settings, folder)


def test_a_process_at_rest_is_light(role: str, on_sqlite: Rested) -> None:
    assert 10 < on_sqlite.megabytes <= MEGABYTES[role]


def test_a_process_at_rest_is_light_on_postgresql(role: str, postgres_server: servers.Server, tmp_path: Path) -> None:
    settings = {"WEFT_DATA_DIR": str(tmp_path), "WEFT_DATABASE": created(postgres_server.new_database(), role)}
    found = rested(role, settings, tmp_path)
    assert not {name for name in found.modules if name.startswith("sqlalchemy.dialects.sqlite")}
    assert 10 < found.megabytes <= MEGABYTES[role]


@for_each("package", UNUSED)
def test_a_process_at_rest_has_not_imported(role: str, on_sqlite: Rested, package: str) -> None:
    if (role, package) in UVICORNS:
        return
    found = {name for name in on_sqlite.modules if name == package or name.startswith(f"{package}.")}
    assert not found, UNUSED[package]


def test_a_process_at_rest_has_few_modules(role: str, on_sqlite: Rested) -> None:
    assert "sqlalchemy" in on_sqlite.modules
    others = {name for name in on_sqlite.modules if name.partition(".")[0] != "weft"}
    assert len(others) <= MOST_MODULES[role]


def test_a_command_that_does_nothing_has_few_modules() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "weft", "--version"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    modules = imported(done.stderr)
    assert "typer" in modules
    assert not {"sqlalchemy", "asyncio", "msgspec", "weft.app", "weft.config"} & modules
    assert len(modules) <= MOST_MODULES_OF_A_COMMAND


def test_a_list_of_runs_loads_nothing_but_runs_and_one_database(tmp_path: Path, sqlite_template: Path) -> None:
    told = environment(WEFT_DATA_DIR=str(tmp_path), WEFT_DATABASE=sqlite_copy(sqlite_template, tmp_path))
    weft = [sys.executable, "-X", "importtime", "-m", "weft", "runs"]
    submit = [*weft, "submit", "--kind", "noop", "--spec", "{}"]
    subprocess.run(submit, env=told, capture_output=True, check=True, timeout=60)
    done = subprocess.run([*weft, "list"], env=told, capture_output=True, text=True, check=True, timeout=60)
    modules = imported(done.stderr)
    assert "noop" in done.stdout
    assert {"weft.runs.runs", "sqlalchemy.dialects.sqlite"} <= modules
    unused = (*UNUSED_BY_A_LIST, *UNUSED, "starlette", "cryptography", "argon2")
    assert not {name for name in modules if name.startswith(tuple(f"{package}." for package in unused))}
    assert not modules & set(unused)
