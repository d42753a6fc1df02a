"""Whether the audit log is still protected can be asked, on every kind of database."""

from __future__ import annotations

import pytest

from tests.conftest import plain_engine
from weft.db import dialect_options, schema
from weft.db.database import open_database
from weft.db.migrate import migrate

HARM = {
    "sqlite": ("DROP TRIGGER audit_no_delete", ["audit_no_delete"]),
    "postgres": ("ALTER TABLE audit DISABLE TRIGGER audit_no_change", ["audit_no_change"]),
    "mariadb": ("DROP TRIGGER audit_no_update", ["audit_no_update"]),
}


def test_a_trigger_that_is_gone_or_switched_off_is_named(database_kind: str, bare_database_url: str) -> None:
    db = open_database(bare_database_url)
    migrate(db.engine)
    db.close()
    statement, gone = HARM[database_kind]
    with plain_engine(bare_database_url).begin() as connection:
        assert dialect_options.missing(connection, schema.audit) == []
        connection.exec_driver_sql(statement)
        assert dialect_options.missing(connection, schema.audit) == gone


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_table_that_never_had_triggers_lacks_them_all(database_url: str) -> None:
    with plain_engine(database_url).begin() as connection:
        assert dialect_options.missing(connection, schema.runs) == ["runs_no_update", "runs_no_delete"]
