"""Very many finished jobs, made inside the database: of weft, and of Scrapyd."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, text

from bench.ballast import PROJECTS, fill, hurried
from bench.peers.scrapyd import PROJECT, SPIDER
from weft.app import App
from weft.runs.model import NewRun, RunSpec

BEGAN = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
NAMES = "INSERT INTO scrapyd_jobs (project, job, run_id) SELECT project, 'job-' || id, id FROM runs"


async def finished_in_weft(app: App, count: int) -> None:
    """So many that have ended well, and ten that wait, as :mod:`bench.ballast` makes them."""
    samples = [job(number) for number in range(PROJECTS)]
    await fill(app, queued=PROJECTS, ended=count, of_ended={"task_id": "NULL"}, samples=samples)
    await asyncio.to_thread(name_all, hurried(app.db.engine))


def job(number: int) -> NewRun:
    return NewRun(project=PROJECT, task=SPIDER, kind="spider", spec=RunSpec(spec={"spider": SPIDER, "args": {}}))


def name_all(engine: Engine) -> None:
    """Give each run the name that a client of Scrapyd would know it by."""
    with engine.begin() as connection:
        connection.execute(text(NAMES))


def finished_in_scrapyd(folder: Path, count: int) -> None:
    """The same in the file in which Scrapyd keeps finished jobs when it is told to."""
    (folder / "dbs").mkdir()
    with sqlite3.connect(folder / "dbs" / "jobs.db") as connection:
        connection.execute(
            "CREATE TABLE finished_jobs "
            "(id integer PRIMARY KEY, project text, spider text, job text, start_time datetime, end_time datetime)"
        )
        connection.executemany(
            "INSERT INTO finished_jobs (project, spider, job, start_time, end_time) VALUES (?, ?, ?, ?, ?)",
            (finished(number) for number in range(count)),
        )


def finished(number: int) -> tuple[str, str, str, str, str]:
    started = BEGAN + timedelta(seconds=number, microseconds=1)
    return PROJECT, SPIDER, f"job-{number}", str(started), str(started + timedelta(seconds=30))
