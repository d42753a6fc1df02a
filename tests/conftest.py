"""What tests share: servers, an empty database of each kind, a clock that the test sets, and an app on them.

Each server is started when the first test asks for it, and ended with the session.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests import servers
from tests.servers import server
from tests.statements import share_everywhere
from weft.app import App, open_app
from weft.clock import Moment, seconds
from weft.config import Config
from weft.db import schema
from weft.db.database import open_database
from weft.db.migrate import migrate
from weft.db.server import DRIVERS

THIS_MACHINE = "127.0.0.0/8,::1/128"
DATABASES = ("sqlite", "postgres", "mariadb")

TOGETHER = ("tests/scrapyd/",)
"""Tests of one file in these folders run in one process, so that a real Scrapyd and its clients are started once."""

OpenApp = Callable[..., Awaitable[App]]


class InProcesses(LoadScopeScheduling):  # type: ignore[misc]
    """Which tests go to a process together."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid


MEMORY, ROOM = Path("/dev/shm"), 8 << 30


def pytest_configure() -> None:
    """Servers are in memory, where there is plenty: they sync as ever, and wait for no disk."""
    share_everywhere()
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        server.place = str(MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InProcesses:
    return InProcesses(config, log)


def running(start: Callable[[], servers.Server]) -> Iterator[servers.Server]:
    """A missing server skips on a laptop, with the reason, and fails in CI."""
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
    yield from running(servers.postgresql)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.Server]:
    yield from running(servers.mariadb)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    yield from running(servers.redis)


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[servers.Server]:
    yield from running(servers.rabbitmq)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[servers.Server]:
    yield from running(servers.s3_store)


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[servers.Server]:
    yield from running(servers.dynamodb)


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
