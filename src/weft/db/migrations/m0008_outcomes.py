"""What runs have counted, what stands out about them, when they have succeeded, and ``paused`` as a state."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, update
from sqlalchemy.schema import CreateColumn

from weft.db.schema.columns import Json, Moment

HELD = 253_402_300_799_000_000
"""The last second of the year 9999: until then a run waited that was paused."""

COLUMNS: dict[str, tuple[Column[Any], ...]] = {
    "runs": (
        *(Column(name, BigInteger) for name in ("items", "pages", "requests", "errors", "warnings")),
        Column("finish_reason", String(200)),
        Column("marks", Json),
        Column("conditions", Json),
    ),
    "run_stats": (Column("missing", Json),),
    "projects": (Column("success_if", Json), Column("spiders", Json)),
}

runs = Table(
    "runs",
    MetaData(),
    Column("id", Integer),
    Column("state", String(10)),
    Column("not_before", Moment),
    Column("trouble", String(12)),
)


def upgrade(connection: Connection) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            declared = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {declared}")
    paused = {"state": "paused", "trouble": "paused", "not_before": None}
    connection.execute(update(runs).where(runs.c.not_before == HELD, runs.c.state == "queued").values(paused))
