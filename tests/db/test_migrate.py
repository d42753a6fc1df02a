"""A database is brought to the schema of the code: forward only, one start at a time, each step once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
    text,
    update,
)

from tests import servers
from tests.conftest import running
from weft.db import migrate as migrating
from weft.db import schema
from weft.db.database import open_database
from weft.db.migrate import known_steps, migrate, refuse_unsafe, unsafe_settings
from weft.errors import DatabaseDown, Misconfigured, SchemaNewer, UnsafeDatabase

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def engine(bare_database_url: str) -> Iterator[Engine]:
    db = open_database(bare_database_url)
    yield db.engine
    db.close()


@pytest.fixture
def other(bare_database_url: str) -> Iterator[Engine]:
    """The same database, as another process opens it."""
    db = open_database(bare_database_url)
    yield db.engine
    db.close()


def version_of(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(schema.schema_version.c.version)).scalar_one())


def described(engine: Engine) -> dict[str, Any]:
    """Every table as the database itself describes it."""
    looking = inspect(engine)
    return {
        name: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"]) for column in looking.get_columns(name)
            },
            "key": looking.get_pk_constraint(name)["constrained_columns"],
            "indexes": sorted(str((index["column_names"], index["unique"])) for index in looking.get_indexes(name)),
        }
        for name in looking.get_table_names()
    }


def test_a_new_database_gets_every_table(engine: Engine) -> None:
    assert migrate(engine) == schema.VERSION
    assert set(described(engine)) == set(schema.metadata.tables)
    assert version_of(engine) == schema.VERSION


def test_texts_are_the_same_only_byte_by_byte(engine: Engine) -> None:
    migrate(engine)
    names = ["shop", "Shop", "shop ", "shöp"]
    with engine.begin() as connection:
        for name in names:
            connection.execute(insert(schema.projects).values(name=name, weight=1.0))
        found = connection.execute(select(schema.projects.c.name)).scalars().all()
    assert sorted(found) == sorted(names)


def test_an_index_of_what_is_rarely_set_has_no_other_rows(engine: Engine, database_kind: str) -> None:
    migrate(engine)
    indexes = {index["name"]: index.get("dialect_options", {}) for index in inspect(engine).get_indexes("runs")}
    if database_kind != "mariadb":
        assert "NOT NULL" in str(indexes["runs_leased"][f"{engine.dialect.name}_where"])
    assert "runs_ready" in indexes


def test_the_id_of_a_deleted_task_is_never_another_s(engine: Engine) -> None:
    migrate(engine)
    tasks = schema.tasks
    row = {"project": "shop", "kind": "noop", "definition": "{}", "paused": False, "revision": 1}
    with engine.begin() as connection:
        ids = []
        for name in ("old", "new"):
            made = connection.execute(insert(tasks).values(**row, name=name, created_at=1, updated_at=1))
            assert made.inserted_primary_key is not None
            ids.append(made.inserted_primary_key[0])
            connection.execute(tasks.delete())
    assert ids[1] > ids[0]


def test_a_database_that_is_up_to_date_is_left_alone(engine: Engine) -> None:
    migrate(engine)
    before = described(engine)
    assert migrate(engine, steps={}) == schema.VERSION
    assert described(engine) == before


def test_a_newer_schema_is_refused_and_left_alone(engine: Engine) -> None:
    migrate(engine)
    with engine.connect() as connection:
        connection.execute(update(schema.schema_version).values(version=schema.VERSION + 3))
        connection.commit()
    with pytest.raises(SchemaNewer, match=f"has schema {schema.VERSION + 3}, this weft knows schemas up to"):
        migrate(engine)
    assert version_of(engine) == schema.VERSION + 3


def add_color(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE projects ADD COLUMN color VARCHAR(20)"))


def add_shelf(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE shelf (id INTEGER NOT NULL PRIMARY KEY, color VARCHAR(20))"))


NEXT, AFTER = schema.VERSION + 1, schema.VERSION + 2
STEPS = {NEXT: add_color, AFTER: add_shelf}


def test_an_older_database_gets_the_steps_that_it_lacks_in_order(engine: Engine) -> None:
    migrate(engine)
    taken: list[int] = []

    def noted(number: int) -> Any:
        def step(connection: Connection) -> None:
            taken.append(number)
            STEPS[number](connection)

        return step

    steps = {number: noted(number) for number in (AFTER, NEXT)}
    assert migrate(engine, steps, AFTER) == AFTER
    assert migrate(engine, steps, AFTER) == AFTER
    assert taken == [NEXT, AFTER]
    assert version_of(engine) == AFTER


def test_steps_lead_to_the_same_schema_as_a_fresh_start(
    engine: Engine, database_kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(engine)
    migrate(engine, STEPS, AFTER)
    newer = MetaData()
    for table in schema.metadata.sorted_tables:
        table.to_metadata(newer)
    newer.tables["projects"].append_column(Column("color", String(20)))
    Table("shelf", newer, Column("id", Integer, primary_key=True, autoincrement=False), Column("color", String(20)))
    monkeypatch.setattr(schema, "metadata", newer)
    url = f"sqlite:///{tmp_path / 'fresh.db'}"
    if database_kind != "sqlite":
        url = request.getfixturevalue(f"{database_kind}_server").new_database()
    fresh = open_database(url)
    migrate(fresh.engine, {}, AFTER)
    assert described(fresh.engine) == described(engine)
    fresh.close()


def test_every_schema_after_the_first_has_its_step() -> None:
    assert set(known_steps()) == set(range(schema.FIRST_VERSION + 1, schema.VERSION + 1))


def test_a_schema_from_before_the_first_release_is_refused_and_left_alone(engine: Engine) -> None:
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(update(schema.schema_version).values(version=schema.FIRST_VERSION - 1))
    with pytest.raises(Misconfigured, match="from before the first release"):
        migrate(engine)
    assert version_of(engine) == schema.FIRST_VERSION - 1


def test_a_missing_step_is_refused_before_anything_is_kept(engine: Engine) -> None:
    migrate(engine)
    with pytest.raises(Misconfigured, match=f"the step to schema {AFTER} is missing"):
        migrate(engine, {NEXT: lambda connection: None}, AFTER)
    assert version_of(engine) in (schema.VERSION, NEXT)


def test_a_step_that_fails_is_not_counted_and_hinders_nobody(engine: Engine, other: Engine) -> None:
    migrate(engine)

    def fail(connection: Connection) -> None:
        raise KeyError("half-way")

    with pytest.raises(KeyError):
        migrate(engine, {NEXT: fail}, NEXT)
    assert version_of(other) == schema.VERSION
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(migrate, other, {NEXT: add_color}, NEXT).result(20) == NEXT


CUT_OFF = {
    "postgres": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
    "mariadb": ("SELECT CONNECTION_ID()", "KILL {}"),
}


@pytest.mark.parametrize("database_kind", CUT_OFF, indirect=True)
def test_a_start_whose_connection_is_lost_says_that_the_database_does_not_answer(
    engine: Engine, other: Engine, database_kind: str
) -> None:
    migrate(engine)
    who, cut = CUT_OFF[database_kind]

    def lose_connection(connection: Connection) -> None:
        number = connection.execute(text(who)).scalar_one()
        with other.connect() as rival:
            rival.execute(text(cut.format(number)))
        connection.execute(text("SELECT 1"))

    with pytest.raises(DatabaseDown):
        migrate(engine, {NEXT: lose_connection}, NEXT)
    assert migrate(engine, {NEXT: add_color}, NEXT) == NEXT


def test_starts_at_the_same_time_take_each_step_once(engine: Engine, other: Engine) -> None:
    migrate(engine)
    taken: list[int] = []
    meet = threading.Barrier(2)

    def start(engine: Engine) -> int:
        meet.wait(20)
        return migrate(engine, {NEXT: noted}, NEXT)

    def noted(connection: Connection) -> None:
        taken.append(NEXT)
        add_color(connection)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(start, [engine, other])) == [NEXT, NEXT]
    assert taken == [NEXT]


def test_five_processes_may_start_on_an_empty_database_at_once(bare_database_url: str) -> None:
    command = [sys.executable, "-m", "tests.db.writer", bare_database_url, "3"]
    starts = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(5)
    ]
    problems = [start.communicate("go\n")[1] for start in starts]
    assert [start.returncode for start in starts] == [0] * 5, problems
    db = open_database(bare_database_url)
    assert set(described(db.engine)) == set(schema.metadata.tables)
    with db.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM events")).scalar_one() == 15
        assert connection.execute(text("SELECT count(*) FROM schema_version")).scalar_one() == 1
    db.close()


@pytest.mark.parametrize("database_kind", ["mariadb"], indirect=True)
def test_a_start_that_waits_too_long_for_another_says_so(
    engine: Engine, other: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "LOCK_SECONDS", 0)
    with other.connect() as connection:
        connection.execute(text(f"SELECT GET_LOCK({migrating.LOCK_NAME}, 0)"))
        with pytest.raises(DatabaseDown, match="another start"):
            migrate(engine)
        connection.execute(text(f"SELECT RELEASE_LOCK({migrating.LOCK_NAME})"))
    assert migrate(engine) == schema.VERSION


@pytest.mark.parametrize("database_kind", ["mariadb"], indirect=True)
def test_a_start_does_not_wait_for_a_start_on_another_database_of_the_server(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "LOCK_SECONDS", 0)
    with engine.connect() as connection:
        connection.execute(text("USE information_schema"))
        assert connection.execute(text(f"SELECT GET_LOCK({migrating.LOCK_NAME}, 0)")).scalar_one() == 1
        assert migrate(engine) == schema.VERSION
        connection.invalidate()


@pytest.fixture(
    scope="module",
    params=[
        ("postgresql", {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}),
        ("mariadb", {"innodb_flush_log_at_trx_commit": "0", "innodb_doublewrite": "0"}),
    ],
    ids=["postgresql", "mariadb"],
)
def unsafe_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    kind, settings = request.param
    yield from running(lambda: getattr(servers, kind)(**settings))


REFUSED = {"postgresql": ["fsync=off", "full_page_writes=off"], "mariadb": ["innodb_flush_log_at_trx_commit=0"]}


def test_a_server_that_may_forget_is_refused(unsafe_server: servers.Server) -> None:
    db = open_database(unsafe_server.new_database())
    with pytest.raises(UnsafeDatabase, match="may lose acknowledged runs in a crash") as refused:
        refuse_unsafe(db.engine, allowed=False)
    for setting in REFUSED[unsafe_server.kind.name]:
        assert setting in str(refused.value)
    assert "WEFT_ALLOW_UNSAFE_DATABASE=true" in str(refused.value)
    db.close()


def test_a_server_that_may_forget_is_only_warned_about_where_that_is_allowed(
    unsafe_server: servers.Server, caplog: pytest.LogCaptureFixture
) -> None:
    db = open_database(unsafe_server.new_database())
    with caplog.at_level(logging.WARNING):
        refuse_unsafe(db.engine, allowed=True)
    assert "may lose acknowledged runs" in caplog.text
    assert migrate(db.engine) == schema.VERSION
    db.close()


def test_a_commit_waits_for_the_disk_whatever_the_server_s_default_is(unsafe_server: servers.Server) -> None:
    db = open_database(unsafe_server.new_database())
    with db.engine.connect() as connection:
        if unsafe_server.kind.name == "postgresql":
            assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
        else:
            assert "innodb_flush_log_at_trx_commit=0" in unsafe_settings(db.engine)
    db.close()


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_a_server_with_safe_settings_is_accepted_without_a_word(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_unsafe(engine, allowed=False)
    assert caplog.text == ""
