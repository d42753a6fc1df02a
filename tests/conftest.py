"""What tests share: servers, an empty database of each kind, a clock that the test sets, and an app on them.

Each server is started when the first test of the run asks for it, used by all test processes, and ended with the run.
A test that kills, pauses or empties a server starts one of its own.
"""

import os
import resource
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import (
    CompoundSelect,
    Connection,
    Engine,
    NullPool,
    QueuePool,
    Table,
    create_engine,
    delete,
    exists,
    literal,
    select,
    text,
    union_all,
)

from tests import selection, servers
from tests.scheduling import Scheduler, sort_long_first
from tests.servers import server
from tests.servers.dynamodb import DYNAMODB
from tests.servers.kinds import MARIADB, POSTGRESQL, RABBITMQ, REDIS
from tests.servers.s3 import S3
from tests.servers.shared import TestRun, shared
from tests.statements import share_everywhere
from weft.app import App, open_app
from weft.clock import Moment, seconds
from weft.config import Config
from weft.db import schema
from weft.db.database import open_database
from weft.db.migrate import migrate
from weft.db.server import DRIVERS

pytest_plugins = ["tests.database_variants"]

THIS_MACHINE = "127.0.0.0/8,::1/128"
DATABASES = ("sqlite", "postgres", "mariadb")

OpenApp = Callable[..., Awaitable[App]]


MEMORY, ROOM = Path("/dev/shm"), 8 << 30


TEST_RUN = TestRun()


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_options(parser)


NO_SERVERS = "TESTS_WITHOUT_SERVERS"
"""Environment variable of runs with ``--fast``, which xdist's processes inherit."""


def pytest_configure(config: pytest.Config) -> None:
    """Servers are in memory, where there is plenty: they sync as ever, and wait for no disk."""
    share_everywhere()
    if config.getoption("--fast"):
        os.environ[NO_SERVERS] = "1"
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(selection.RedControls())
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        server.place = str(MEMORY)
    TEST_RUN.begin()


def pytest_unconfigure() -> None:
    TEST_RUN.end()


@pytest.fixture(scope="session", autouse=True)
def state_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what is started for many tests notes that it runs: not where the user's own weft does."""
    place = tmp_path_factory.getbasetemp() / "state"
    os.environ["XDG_STATE_HOME"] = str(place / "of-all")
    return place


@pytest.fixture(autouse=True)
def own_state(state_of_all: Path) -> None:
    """No command of a test finds a weft that another test, or the user, has started."""
    os.environ["XDG_STATE_HOME"] = str(state_of_all / uuid4().hex)  # it is made when something is noted there


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """A command that a test runs in this process makes files for its owner alone; the next test makes them as ever."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.select(config, items)
    sort_long_first(items)


CPU_BEFORE = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[CPU_BEFORE] = time.process_time(), children_seconds()
    if control := selection.control_of(item):
        item.user_properties.append(("red_control", control))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note in the JUnit file how much CPU a test has used, itself and by its child processes."""
    if call.when == "teardown" and CPU_BEFORE in item.stash:
        own, children = item.stash[CPU_BEFORE]
        item.user_properties.append(("cpu_seconds", round(time.process_time() - own, 3)))
        item.user_properties.append(("children_cpu_seconds", round(children_seconds() - children, 3)))


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def running(start: Callable[[], servers.Server]) -> Iterator[servers.Server]:
    """A missing server skips on a laptop, with the reason, and fails in CI."""
    if NO_SERVERS in os.environ:
        pytest.fail("a fast test asks for a server: name its file in NOT_FAST of tests/selection.py")
    try:
        started = start()
    except servers.ServerMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(POSTGRESQL))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(MARIADB))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(REDIS))


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(RABBITMQ))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(S3))


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[servers.Server]:
    yield from running(lambda: shared(DYNAMODB))


@pytest.fixture(scope="session")
def own_postgres_server() -> Iterator[servers.Server]:
    """A server that tests may kill; those tests run in one process: ``KILLING`` in tests/scheduling.py."""
    yield from running(servers.postgresql)


@pytest.fixture(scope="session")
def own_redis_server() -> Iterator[servers.Server]:
    yield from running(servers.redis)


@pytest.fixture(scope="session")
def own_rabbitmq_server() -> Iterator[servers.Server]:
    yield from running(servers.rabbitmq)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: servers.Server) -> str:
    return migrated(postgres_server.new_database())


@pytest.fixture(scope="session")
def mariadb_url(mariadb_server: servers.Server) -> str:
    return migrated(mariadb_server.new_database())


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "weft.db"
    migrated(f"sqlite:///{path}")
    return path


def migrated(url: str) -> str:
    db = open_database(url)
    migrate(db.engine)
    db.close()
    return url


@pytest.fixture(params=DATABASES)
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind that has every table and no row. To make one takes longer than to empty one."""
    if database_kind == "sqlite":
        return sqlite_copy(request.getfixturevalue("sqlite_template"), tmp_path)
    url = str(request.getfixturevalue(f"{database_kind}_url"))
    empty(url)
    return url


@pytest.fixture
def bare_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind that was just made and has no table yet."""
    if database_kind == "sqlite":
        return f"sqlite:///{tmp_path / 'weft.db'}"
    return str(request.getfixturevalue(f"{database_kind}_server").new_database())


def sqlite_copy(template: Path, folder: Path) -> str:
    shutil.copy(template, folder / "weft.db")
    return f"sqlite:///{folder / 'weft.db'}"


def plain_engine(url: str, **options: Any) -> Engine:
    """Connections without any of weft's habits."""
    scheme, rest = url.split(":", 1)
    driver = DRIVERS.get(scheme, scheme)
    without_tls = {"ssl_disabled": True} if "pymysql" in driver else {}
    return create_engine(f"{driver}:{rest}", connect_args=without_tls, **{"poolclass": NullPool} | options)


@cache
def broom(url: str) -> Engine:
    """One connection that stays, to empty a database with before each of very many tests."""
    return plain_engine(url, poolclass=QueuePool, pool_size=1, pool_pre_ping=True)


def empty(url: str) -> None:
    """Delete every row; most tables have none, and asking all of them takes no longer than emptying one."""
    tables = [table for table in schema.metadata.sorted_tables if table is not schema.schema_version]
    with broom(url).begin() as connection:
        filled = set(connection.execute(filled_tables(tables)).scalars())
        for table in tables:
            if table is schema.audit and table.name in filled:
                empty_audit(connection)
            elif table.name in filled:
                connection.execute(delete(table))


def filled_tables(tables: Sequence[Table]) -> CompoundSelect[Any]:
    """The names of those that have a row."""
    return union_all(
        *(select(literal(table.name)).where(exists(select(literal(1)).select_from(table))) for table in tables)
    )


def empty_audit(connection: Connection) -> None:
    """Rows of this table are only ever added, so the triggers that see to it are passed by."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER USER"))
        connection.execute(delete(schema.audit))
        connection.execute(text("ALTER TABLE audit ENABLE TRIGGER USER"))
    else:
        connection.execute(text("TRUNCATE TABLE audit"))


@dataclass
class SetClock:
    """Shows the time that it was set to."""

    now: Moment = 1_780_315_200_000_000

    def __call__(self) -> Moment:
        return self.now

    def forward(self, count: float) -> Moment:
        self.now += seconds(count)
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest_asyncio.fixture
async def another_app(database_url: str, clock: SetClock, tmp_path: Path) -> AsyncIterator[OpenApp]:
    """Opens one more app on the same database, as another process would."""
    async with AsyncExitStack() as stack:

        async def opened(**settings: Any) -> App:
            usual = {"data_dir": str(tmp_path), "database": database_url, "broker": "memory:"}
            config = Config(**{"allowed_networks": THIS_MACHINE} | usual | settings)
            app = await open_app(config, clock)
            stack.push_async_callback(app.close)
            return app

        yield opened


@pytest_asyncio.fixture
async def app(another_app: OpenApp) -> App:
    return await another_app()


on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
"""For what has nothing to do with the kind of the database."""
