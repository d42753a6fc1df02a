"""Fills a database with very many runs in little time, as copies of a few that came in by the front door."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine, event, text

from weft.app import App
from weft.db import schema
from weft.runs.model import NewRun, RunSpec

PROJECTS = 10
PIECE = 1_000_000
"""How many rows one transaction writes."""

SERIES = {
    "sqlite": "(WITH RECURSIVE count(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM count WHERE n < :last) "
    "SELECT n FROM count)",
    "postgresql": "(SELECT n FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n)",
}
HURRY = {
    "sqlite": ["PRAGMA cache_size = -1000000", "PRAGMA synchronous = OFF"],
    "postgresql": ["SET synchronous_commit = off"],
}
NEXT_ID = {
    "sqlite": "UPDATE sequences SET last = :last WHERE name = 'run_ids'",
    "postgresql": "SELECT setval('run_ids', :last)",
}
QUEUED = {"id": "number.n", "priority": "number.n % 3"}
ENDED = QUEUED | {
    "state": "'succeeded'",
    "outcome": "'succeeded'",
    "attempt": "1",
    "tries": "1",
    "ready_lane": "NULL",
    "live_task": "NULL",
    "task_id": "1 + number.n % 1000",
    "worker": "'worker-' || (number.n % 100)",
    "started_at": "sample.queued_at",
    "finished_at": "sample.queued_at",
}


async def fill(
    app: App,
    *,
    queued: int,
    ended: int,
    of_queued: Mapping[str, str] = {},
    of_ended: Mapping[str, str] = {},
    samples: Sequence[NewRun] = (),
) -> None:
    """Add runs of ten projects: first those that have ended, then those that wait.

    ``of_queued`` and ``of_ended`` are columns that differ from run to run, as expressions of its id, ``number.n``; all
    others are those of ten ``samples``.
    """
    await app.runs.submit(samples or [sample(number) for number in range(PROJECTS)])
    engine = hurried(app.db.engine)
    await asyncio.to_thread(copy, engine, {**ENDED, **of_ended}, PROJECTS + 1, ended)
    await asyncio.to_thread(copy, engine, {**QUEUED, **of_queued}, PROJECTS + ended + 1, queued - PROJECTS)
    await asyncio.to_thread(settle, engine, queued + ended)


def hurried(engine: Engine) -> Engine:
    """Connections for filling alone: with much memory, and without waiting for the disk."""
    hurry = create_engine(engine.url, poolclass=NullPool)

    @event.listens_for(hurry, "connect")
    def prepare(connection: Any, _: Any) -> None:
        for statement in HURRY[hurry.dialect.name]:
            connection.cursor().execute(statement)

    return hurry


def sample(number: int) -> NewRun:
    return NewRun(project=f"project-{number % PROJECTS}", task="noop", kind="noop", spec=RunSpec(spec={}))


def copy(engine: Engine, changed: Mapping[str, str], first: int, count: int) -> None:
    names = [column.name for column in schema.runs.columns]
    quoted = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(changed.get(name, f'sample."{name}"') for name in names)
    series = SERIES[engine.dialect.name]
    source = f"{series} AS number JOIN runs AS sample ON sample.id = 1 + number.n % {PROJECTS}"
    for low, high in pieces(first, count):
        with engine.connect() as connection:
            connection.execute(
                text(f"INSERT INTO runs ({quoted}) SELECT {values} FROM {source}"), {"first": low, "last": high}
            )
            connection.commit()


def pieces(first: int, count: int) -> Iterator[tuple[int, int]]:
    for low in range(first, first + count, PIECE):
        yield low, min(low + PIECE, first + count) - 1


def settle(engine: Engine, last: int) -> None:
    """Let ids go on behind the copies, and let the planner know what is there."""
    with engine.begin() as connection:
        connection.execute(text(NEXT_ID[engine.dialect.name]), {"last": last})
        connection.execute(text("ANALYZE"))
