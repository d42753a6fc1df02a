"""Brings a database to the schema of this code: on start, under a lock, forward only."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, insert, inspect, select, text, update
from sqlalchemy.exc import DatabaseError, InterfaceError, OperationalError

from weft.db import migrations, schema
from weft.db.dialect_options import add_dialect_options, protect
from weft.errors import DatabaseDown, Misconfigured, NoWeft, SchemaNewer, UnsafeDatabase

log = logging.getLogger(__name__)

Step = Callable[[Connection], None]
LOCK = 0x77656674  # "weft"
LOCK_NAME = "CONCAT('weft.', MD5(DATABASE()))"  # locks of MariaDB are for the whole server, and their names are short
LOCK_SECONDS = 60


def migrate(
    engine: Engine, steps: Mapping[int, Step] | None = None, version: int = schema.VERSION, *, create: bool = True
) -> int:
    """Create or upgrade the schema; return its version. Refuses a schema that is newer than the code.

    Without ``create`` a database without a schema is refused, as one where no weft is.
    """
    try:
        with _locked(engine) as connection:
            found = _version(connection)
            if found > version:
                raise SchemaNewer(found, version)
            if found == version:
                return version
            if 0 < found < schema.FIRST_VERSION:
                raise Misconfigured(
                    f"the database has schema {found}, from before the first release, which has no upgrade:"
                    " start with a new database, and import your projects and tasks"
                )
            if found == 0 and not create:
                raise NoWeft(f"the database {engine.url.render_as_string()} is empty")
            if found == 0:
                _create(connection, version)
            steps = known_steps() if found and steps is None else steps or {}
            for number in range(found + 1, version + 1) if found else ():
                _upgrade(connection, number, steps)
            return version
    except (OperationalError, InterfaceError) as problem:
        raise DatabaseDown(problem.orig) from problem
    except DatabaseError as problem:
        if type(problem) is not DatabaseError or engine.dialect.name != "sqlite":
            raise
        from weft.db.sqlite import down

        raise down(problem) from problem


def known_steps() -> dict[int, Step]:
    found: dict[int, Step] = {}
    for module in pkgutil.iter_modules(migrations.__path__):
        if module.name.startswith("m"):
            step = importlib.import_module(f"{migrations.__name__}.{module.name}")
            found[int(module.name[1:5])] = step.upgrade
    return found


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(schema.schema_version.name):
        return 0
    return connection.execute(select(schema.schema_version.c.version)).scalar() or 0


def _create(connection: Connection, version: int) -> None:
    add_dialect_options(schema.metadata, connection.dialect.name)
    schema.metadata.create_all(connection)
    protect(connection, schema.audit)
    connection.execute(insert(schema.schema_version).values(version=version))
    log.info("database created", extra={"schema": version})


def _upgrade(connection: Connection, number: int, steps: Mapping[int, Step]) -> None:
    if number not in steps:
        raise Misconfigured(f"the step to schema {number} is missing from this weft; install it again")
    steps[number](connection)
    connection.execute(update(schema.schema_version).values(version=number))
    log.info("database upgraded", extra={"schema": number})


@contextmanager
def _locked(engine: Engine) -> Iterator[Connection]:
    """One transaction that no other start of weft can enter at the same time."""
    with engine.connect() as connection:
        _lock(connection)
        try:
            yield connection
        except BaseException:
            if not connection.invalidated:  # else the server has rolled back when it lost us
                connection.exec_driver_sql("ROLLBACK")
            raise
        else:
            connection.exec_driver_sql("COMMIT")
        finally:
            _unlock(connection)


def _lock(connection: Connection) -> None:
    dialect = connection.dialect.name
    if dialect == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif dialect == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    elif connection.execute(text(f"SELECT GET_LOCK({LOCK_NAME}, :seconds)"), {"seconds": LOCK_SECONDS}).scalar() != 1:
        raise DatabaseDown(f"another start of weft has been changing the schema for {LOCK_SECONDS} s")


def _unlock(connection: Connection) -> None:
    """On MariaDB the lock belongs to the session, because DDL commits by itself there; the pool keeps the session."""
    if connection.dialect.name not in ("sqlite", "postgresql") and not connection.invalidated:
        connection.execute(text(f"SELECT RELEASE_LOCK({LOCK_NAME})"))


# What a server must have switched on to keep what it has acknowledged, and how it says so.
SAFE: dict[str, dict[str, str]] = {
    "postgresql": {"fsync": "on", "full_page_writes": "on"},
    "mariadb": {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"},
}


def unsafe_settings(engine: Engine) -> list[str]:
    """The server's settings that could lose acknowledged runs, as ``name=value``."""
    wanted = SAFE.get("mariadb" if engine.dialect.name in ("mysql", "mariadb") else engine.dialect.name, {})
    if not wanted:
        return []
    try:
        with engine.connect() as connection:
            found = {name: _setting(connection, name) for name in wanted}
    except (OperationalError, InterfaceError) as problem:
        raise DatabaseDown(problem.orig) from problem
    return [f"{name}={value}" for name, value in found.items() if value.lower() != wanted[name].lower()]


def refuse_unsafe(engine: Engine, *, allowed: bool) -> None:
    """Stop the start on unsafe settings, or only warn where the operator has said so."""
    settings = unsafe_settings(engine)
    if settings and not allowed:
        raise UnsafeDatabase(", ".join(settings))
    if settings:
        log.warning("the database server may lose acknowledged runs in a crash", extra={"settings": settings})


def _setting(connection: Connection, name: str) -> str:
    if connection.dialect.name == "postgresql":
        return str(connection.exec_driver_sql(f"SHOW {name}").scalar())
    row: Any = connection.execute(text("SHOW VARIABLES LIKE :name"), {"name": name}).first()
    return str(row[1]) if row else ""
