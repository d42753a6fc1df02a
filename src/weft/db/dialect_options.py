"""What tables have beyond plain SQL where a database knows it: storage options, and triggers against changes."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, MetaData, Table
from sqlalchemy.exc import DBAPIError

BYTE_BY_BYTE = {"charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}  # also the spaces at the end of a text


def add_dialect_options(metadata: MetaData, dialect: str) -> None:
    """Let text compare byte by byte, no id be given twice where that is asked, sparse indexes have no more than they
    must, and pages keep the room that they need for changes, on this kind of database."""
    for table in metadata.tables.values():
        if dialect in ("mysql", "mariadb"):
            table.dialect_kwargs.update({f"{dialect}_{key}": value for key, value in BYTE_BY_BYTE.items()})
            continue
        if dialect == "sqlite" and not table.info.get("reuses_ids", True):
            table.dialect_kwargs["sqlite_autoincrement"] = True
        if dialect == "postgresql" and "full_percent" in table.info:
            table.dialect_kwargs["postgresql_with"] = {"fillfactor": table.info["full_percent"]}
        for index in table.indexes:
            if "sparse" in index.info:
                index.dialect_kwargs[f"{dialect}_where"] = index.info["sparse"].is_not(None)


log = logging.getLogger(__name__)

NO_TRIGGERS = frozenset({1142, 1227, 1419})
"""How MariaDB says that its user may not make triggers."""

FOUND = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{}'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE tgrelid = '{}'::regclass AND tgenabled <> 'D'",
    "mysql": "SELECT trigger_name FROM information_schema.triggers "
    "WHERE trigger_schema = DATABASE() AND event_object_table = '{}'",
}
"""The triggers of a table, for each kind of database."""


def protect(connection: Connection, table: Table) -> None:
    """Refuse UPDATE and DELETE, on PostgreSQL also TRUNCATE, of ``table``."""
    statements = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}.get(connection.dialect.name, _on_mariadb)
    try:
        for statement in statements(table.name, f"rows of {table.name} are only ever added"):
            connection.exec_driver_sql(statement)
    except DBAPIError as problem:
        if getattr(problem.orig, "args", (0,))[0] not in NO_TRIGGERS:
            raise
        log.warning("the database refuses to make triggers; rows can be changed there", extra={"table": table.name})


def missing(connection: Connection, table: Table) -> list[str]:
    """The triggers of ``table`` that should be there and are not, or are switched off."""
    kind = connection.dialect.name
    statements = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}.get(kind, _on_mariadb)(table.name, "")
    wanted = [words[2] for words in map(str.split, statements) if words[1] == "TRIGGER"]
    rows = connection.exec_driver_sql(FOUND.get(kind, FOUND["mysql"]).format(table.name))
    found = {row[0] for row in rows}
    return [name for name in wanted if name not in found]


def _on_sqlite(name: str, why: str) -> list[str]:
    return [
        f"CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name} BEGIN SELECT RAISE(ABORT, '{why}'); END"
        for verb in ("UPDATE", "DELETE")
    ]


def _on_postgresql(name: str, why: str) -> list[str]:
    refuse = f"{name}_only_grows()"
    body = f"BEGIN RAISE EXCEPTION '{why}'; END"
    return [
        f"CREATE FUNCTION {refuse} RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"CREATE TRIGGER {name}_no_change BEFORE UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION {refuse}",
        f"CREATE TRIGGER {name}_no_truncate BEFORE TRUNCATE ON {name} EXECUTE FUNCTION {refuse}",
    ]


def _on_mariadb(name: str, why: str) -> list[str]:
    return [
        f"CREATE TRIGGER {name}_no_{verb.lower()} BEFORE {verb} ON {name} FOR EACH ROW "
        f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{why}'"
        for verb in ("UPDATE", "DELETE")
    ]
