"""The folders that Scrapyd would have: a project, in it a spider, in that a file for each job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.scrapyd import folder_store as store
from weft.scrapyd.model import Job, JobState

MOST_FILES = 1_000
"""How many jobs of a spider are listed: the newest."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A project or a spider, and when something in it last changed."""

    name: str
    changed_at: Moment


@dataclass(frozen=True, slots=True)
class JobFiles:
    """A job that has a log, and may have items."""

    job: Job
    changed_at: Moment
    log_bytes: int
    """Of all its attempts, as they are kept."""


class _Inner(msgspec.Struct):
    spider: str = ""


class _Spec(msgspec.Struct):
    spec: _Inner


_spec = msgspec.json.Decoder(_Spec).decode


class Folders:
    """Looks at runs as if each had left files."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def projects(self, visible: Collection[str] | None) -> list[Folder]:
        """Those in which a spider has run, of all or of some."""
        return await self._db.read(lambda tx: self._projects(tx, visible))

    async def spiders(self, project: str) -> list[Folder]:
        return await self._db.read(lambda tx: self._spiders(tx, project))

    async def jobs(self, project: str, spider: str) -> list[JobFiles]:
        """The newest jobs of a spider that have begun, the newest first."""
        return await self._db.read(lambda tx: self._jobs(tx, project, spider))

    def _projects(self, tx: Transaction, visible: Collection[str] | None) -> list[Folder]:
        found: list[Folder] = []
        for project in store.projects(tx):
            if visible is not None and project not in visible:
                continue
            for newest in self._newest(tx, project):
                found.append(Folder(project, self._changed_at(newest.finished_at)))
        return found

    def _newest(self, tx: Transaction, project: str) -> Sequence[Any]:
        """The newest run of a spider, if any; where much else runs, that of the first task that has one."""
        of_tasks = (store.newest(tx, project, task) for task in store.tasks(tx, project))
        return store.newest(tx, project) or next(filter(None, of_tasks), [])

    def _spiders(self, tx: Transaction, project: str) -> list[Folder]:
        found: dict[str, Moment] = {}
        for task in store.tasks(tx, project):
            for row in store.newest(tx, project, task, limit=store.LOOKED_AT):
                spider, at = spider_of(row.spec), self._changed_at(row.finished_at)
                found[spider] = max(at, found.get(spider, 0))
        return [Folder(name, at) for name, at in found.items() if name]

    def _jobs(self, tx: Transaction, project: str, spider: str) -> list[JobFiles]:
        tasks = [task for task in store.tasks(tx, project) if task == spider or self._runs(tx, project, task, spider)]
        rows = [row for task in tasks for row in store.of_task(tx, project, task, MOST_FILES)]
        rows = sorted((row for row in rows if spider_of(row.spec) == spider), key=lambda row: -row.id)[:MOST_FILES]
        earlier = store.earlier_bytes(tx, [row.id for row in rows if row.attempt > 1])
        live = store.live_bytes(tx, [row.id for row in rows if row.finished_at is None])
        return [
            JobFiles(
                _job(row, project, spider),
                self._changed_at(row.finished_at),
                (row.log_bytes or 0) + earlier.get(row.id, 0) + live.get(row.id, 0),
            )
            for row in rows
        ]

    def _runs(self, tx: Transaction, project: str, task: str, spider: str) -> bool:
        return any(spider_of(row.spec) == spider for row in store.newest(tx, project, task, limit=store.LOOKED_AT))

    def _changed_at(self, finished_at: Moment | None) -> Moment:
        return self._clock() if finished_at is None else finished_at


def _job(row: Any, project: str, spider: str) -> Job:
    state = JobState.RUNNING if row.finished_at is None else JobState.FINISHED
    return Job(
        id=row.job or str(row.id),
        project=project,
        spider=spider,
        state=state,
        ended_at=row.finished_at,
        run_id=row.id,
        attempt=row.attempt,
    )


def spider_of(spec: bytes | str) -> str:
    """The spider that a run's spec names."""
    try:
        return _spec(spec).spec.spider
    except msgspec.MsgspecError:
        return ""
