"""The steps from one schema to the next: a database that took them is as one that was made today."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, select, text, update

from weft.db import schema
from weft.db.database import open_database
from weft.db.migrate import migrate
from weft.db.migrations import (
    m0002_spiders,
    m0003_intake,
    m0008_outcomes,
    m0009_trust,
    m0010_counts,
    m0011_frontier,
    m0012_environment,
    m0013_late_logs,
)


@pytest.fixture
def engine(bare_database_url: str) -> Iterator[Engine]:
    db = open_database(bare_database_url)
    yield db.engine
    db.close()


def described(engine: Engine) -> dict[str, Any]:
    looking = inspect(engine)
    return {
        name: {
            "columns": sorted(
                (each["name"], str(each["type"]), each["nullable"]) for each in looking.get_columns(name)
            ),
            "key": looking.get_pk_constraint(name)["constrained_columns"],
            "unique": sorted(each["column_names"] for each in looking.get_unique_constraints(name)),
            "indexes": sorted((each["name"], each["column_names"]) for each in looking.get_indexes(name)),
        }
        for name in looking.get_table_names()
    }


def taken_back(engine: Engine) -> None:
    """The database as it was before the step, with a project in it."""
    with engine.begin() as connection:
        connection.execute(schema.projects.insert().values(name="shop", weight=2.0))
        m0010_counts.metadata.drop_all(connection)
        m0003_intake.metadata.drop_all(connection)
        m0002_spiders.metadata.drop_all(connection)
        added = [*m0002_spiders.ADDED.items(), *m0008_outcomes.COLUMNS.items(), *m0009_trust.COLUMNS.items()]
        added += [*m0011_frontier.COLUMNS.items(), *m0012_environment.COLUMNS.items()]
        added += [*m0013_late_logs.COLUMNS.items()]
        for table, columns in added:
            for column in columns if table not in m0002_spiders.metadata.tables else ():
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column.name}"))
        connection.execute(update(schema.schema_version).values(version=1))


def test_a_database_of_the_first_schema_becomes_as_one_that_is_made_now(engine: Engine) -> None:
    migrate(engine)
    fresh = described(engine)
    taken_back(engine)
    assert described(engine) != fresh
    assert migrate(engine) == schema.VERSION
    assert described(engine) == fresh


def test_what_was_in_it_is_still_there(engine: Engine) -> None:
    migrate(engine)
    taken_back(engine)
    migrate(engine)
    with engine.connect() as connection:
        kept = connection.execute(select(schema.projects.c.name, schema.projects.c.weight)).all()
    assert [tuple(row) for row in kept] == [("shop", 2.0)]


def test_a_run_that_waited_for_the_year_9999_is_paused(engine: Engine) -> None:
    migrate(engine)
    common = {"project": "shop", "task": "t", "kind": "spider", "spec": "{}", "trigger": "manual", "queued_at": 1}
    common |= {"correlation_id": "", "traceparent": "", "priority": 0, "lane_id": 1, "attempt": 0, "tries": 0}
    common |= {"losses": 0, "cancel_requested": False, "state": "queued", "trouble": None}
    with engine.begin() as connection:
        for run_id, at in ((1, m0008_outcomes.HELD), (2, 5), (3, None)):
            connection.execute(schema.runs.insert().values(id=run_id, not_before=at, **common))
    taken_back(engine)
    migrate(engine)
    columns = [schema.runs.c[name] for name in ("id", "state", "not_before", "trouble")]
    with engine.connect() as connection:
        found = connection.execute(select(*columns).order_by(schema.runs.c.id)).all()
    assert [tuple(row) for row in found] == [
        (1, "paused", None, "paused"),
        (2, "queued", 5, None),
        (3, "queued", None, None),
    ]
