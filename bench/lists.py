"""A database with very many runs of a thousand tasks, and the lists that its users ask for."""

import asyncio
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import select

from bench import ballast
from bench.ballast import PROJECTS, fill
from bench.doors import Seen, put_on
from bench.gateway import QUIET, Gateway, gateway
from bench.load import Load
from bench.roles import place
from bench.setups import Setup
from weft.app import App, open_app
from weft.config import Config
from weft.db import schema
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task

TASKS = 1_000
QUEUED = 1_000
SORTS = ("all", "project", "state", "task", "page")
ASKED = 100
"""How many different requests there are of each sort, where there are so many."""
TASK_ID = f"1 + number.n % {TASKS}"
FAILED = "number.n / 10 % 50 = 0"
"""A run in fifty."""
VARIED = {
    "correlation_id": "'flow-00000000000000000000' || number.n",
    "task_id": TASK_ID,
    "task": f"'task-' || (number.n % {TASKS} / {PROJECTS})",
}
ENDED = VARIED | {
    "state": f"CASE WHEN {FAILED} THEN 'failed' ELSE 'succeeded' END",
    "outcome": f"CASE WHEN {FAILED} THEN 'failed' ELSE 'succeeded' END",
    "trouble": f"CASE WHEN {FAILED} THEN 'failed' END",
}
WAITING = VARIED | {"live_task": TASK_ID}


@dataclass(frozen=True, slots=True)
class Library:
    """A filled database, and the gateway's lists from it."""

    setup: Setup
    config: Config

    @property
    def name(self) -> str:
        return f"weft on {self.setup.database_name}"

    def read(self, clients: int, sorts: Sequence[str], seconds: float) -> Seen:
        """Lists of 50 runs: of all, of a project, a state, a task, and the pages after the first."""
        return asyncio.run(self._read(clients, sorts, seconds))

    async def _read(self, clients: int, sorts: Sequence[str], seconds: float) -> Seen:
        async with gateway(self.config) as at:
            mixed = [each for each in in_turn(await paths(at)) if each[0] in sorts]
            requests = [at.get(path) for _, path in mixed]
            load = Load(port=at.port, requests=requests, clients=clients, seconds=seconds)
            return replace(await put_on(load, at, self.setup), sorts=[sort for sort, _ in mixed])


async def paths(at: Gateway) -> dict[str, list[str]]:
    """What is asked for, a hundred of each sort."""
    states = ("succeeded", "failed", "queued", "running", "cancelled")
    return {
        "all": [listed()] * ASKED,
        "project": [listed(project=f"project-{number % PROJECTS}") for number in range(ASKED)],
        "state": [listed(state=states[number % len(states)]) for number in range(ASKED)],
        "task": [listed(project=f"project-{number % PROJECTS}", task=f"task-{number}") for number in range(ASKED)],
        "page": [*await later_pages(at), *await later_pages(at, project="project-3")],
    }


def in_turn(asked: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """One of each sort after the other, so that never many clients are at the same one."""
    return (
        (sort, path)
        for one_of_each in zip(*asked.values(), strict=True)
        for sort, path in zip(asked, one_of_each, strict=True)
    )


def listed(**filters: str) -> str:
    return f"/v1/runs?{urlencode({'limit': '50'} | filters)}"


async def later_pages(at: Gateway, **filters: str) -> list[str]:
    """The pages after the first, found as anybody finds them: each names the next."""
    found: list[str] = []
    path = listed(**filters)
    for _ in range(ASKED // 2):
        page: Any = await at.answer(path)
        path = listed(**filters, after=page["next"])
        found.append(path)
    return found


@contextmanager
def library(setup: Setup, runs: int, kept: Path | None) -> Iterator[Library]:
    """A database with so many runs; one that is ``kept`` is made only once."""
    settings = setup.settings() | QUIET
    if kept is None or setup.database_name != "SQLite":
        with place(**settings) as config:
            asyncio.run(stock(config, setup.name, runs))
            yield Library(setup, config)
    else:
        config = Config(data_dir=str(kept / f"sqlite-{runs}"), port=0, **settings)  # type: ignore[arg-type]
        restock(config, setup.name, runs)
        yield Library(setup, config)


def restock(config: Config, name: str, runs: int) -> None:
    """Fill the database of a folder unless it is full, and as it would be made now."""
    stamp, making = config.folder / "made-as", digest()
    if stamp.exists() and stamp.read_text() == making:
        return
    shutil.rmtree(config.folder, ignore_errors=True)
    config.folder.mkdir(parents=True)
    asyncio.run(stock(config, name, runs))
    stamp.write_text(making)


def digest() -> str:
    """Of all that says what a filled database looks like."""
    files = [schema.__file__, ballast.__file__, __file__]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


async def stock(config: Config, name: str, runs: int) -> None:
    app = await open_app(config)
    try:
        await make(app, name, runs)
    finally:
        await app.close()


async def make(app: App, name: str, runs: int) -> None:
    began = time.monotonic()
    await app.tasks.apply(DesiredState(tuple(map(task, range(TASKS)))))
    await check_ids(app)
    await fill(app, queued=QUEUED, ended=runs - QUEUED, of_queued=WAITING, of_ended=ENDED)
    print(f"{name}: {runs:,} runs were made in {time.monotonic() - began:.0f} s", flush=True)


def task(number: int) -> Task:
    return Task(name=f"task-{number // PROJECTS}", project=f"project-{number % PROJECTS}", kind="noop")


async def check_ids(app: App) -> None:
    """The copies name tasks by ids that are counted; they must be those that the tasks got."""
    tasks = schema.tasks.c
    found = await app.db.read(lambda tx: tx.rows(select(tasks.project, tasks.name).order_by(tasks.id)))
    first = await app.db.read(lambda tx: tx.value(select(tasks.id).order_by(tasks.id)))
    if first != 1 or [tuple(row) for row in found] != [(each.project, each.name) for each in map(task, range(TASKS))]:
        raise RuntimeError("the tasks did not get the ids 1, 2, 3 … in the order of their definitions")
