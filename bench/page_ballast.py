"""A weft with a long history, for its pages: runs of a spider over thirty days, their numbers, and very many items."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from bench import ballast, item_ballast
from bench.ballast import PROJECTS, SERIES, hurried
from bench.peers.scrapyd import EGG, SPIDER, packed
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.runs.model import NewRun, RunSpec
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task

PROJECT, DATASET, TASK = item_ballast.PROJECT, item_ballast.DATASET, "nightly"
USER, PASSWORD = "reader", "made up for a benchmark"
APART = 2_592_000
"""Microseconds between two runs: a million of them are thirty days."""
BEFORE = f"sample.queued_at - ({{last}} - number.n) * {APART}"
STATS = (
    "INSERT INTO run_stats (run_id, attempt, dataset_id, next_seq, items, new_records, changed_records, refused, "
    "invalid, stats, at, told_at) SELECT n, 1, 1, 11, 10, 0, 0, 0, 0, '{{}}', 0, 0 FROM {series} AS number"
)


async def fill(app: App, folder: Path, *, runs: int, items: int) -> None:
    """Add runs that have ended, each fiftieth of them badly, ten that wait, and the items of the first of them."""
    egg = folder / "noops.egg"
    egg.write_bytes(packed(EGG))
    await app.projects.deploy(PROJECT, egg, "1", by=USER)
    await app.tasks.apply(DesiredState((Task(name=TASK, project=PROJECT, kind="spider", spec={"spider": SPIDER}),)))
    await app.users.create(USER, PASSWORD, {EVERYWHERE: Role.ADMIN})
    bad = "CASE WHEN number.n % 50 = 0 THEN 'failed' ELSE 'succeeded' END"
    before = BEFORE.format(last=PROJECTS + runs)
    ended = {"state": bad, "outcome": bad, "task_id": "NULL", "queued_at": before}
    ended |= {"trouble": "CASE WHEN number.n % 50 = 0 THEN 'failed' END"}
    ended |= {"started_at": f"{before} + 100000", "finished_at": f"{before} + 1300000"}
    await ballast.fill(app, queued=PROJECTS, ended=runs, of_ended=ended, samples=[_run()] * PROJECTS)
    await asyncio.to_thread(item_ballast.fill, app, items)
    await asyncio.to_thread(_add_stats, app, PROJECTS + runs)


def _run() -> NewRun:
    return NewRun(project=PROJECT, task=SPIDER, kind="spider", spec=RunSpec(spec={"spider": SPIDER, "args": {}}))


def _add_stats(app: App, last: int) -> None:
    engine = hurried(app.db.engine)
    with engine.begin() as connection:
        statement = STATS.format(series=SERIES[engine.dialect.name])
        connection.execute(text(statement), {"first": PROJECTS + 1, "last": last})
        connection.execute(text("ANALYZE"))
