"""Takes over what waits in the queues of a Scrapyd: each job becomes a run that waits, under its own name."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weft.db.database import Database
from weft.errors import Conflict, Invalid, NotFound, QueueFull
from weft.scrapyd import import_dbs, import_folders, import_store
from weft.scrapyd.import_eggs import BY
from weft.scrapyd.import_model import Fate, Kind, Report, Waiting
from weft.scrapyd.jobs import Jobs
from weft.scrapyd.model import NewJob

REFUSALS = (Invalid, NotFound, Conflict, QueueFull)
MOST_OF_A_NAME = 20
"""How many jobs may have had the same name."""


class PendingImport:
    def __init__(self, db: Database, jobs: Jobs) -> None:
        self._db, self._jobs = db, jobs

    async def take(self, folder: Path, only: str | None, report: Report, *, dry_run: bool) -> None:
        for name in await asyncio.to_thread(import_dbs.queues, folder):
            if only not in (None, name.removesuffix(".db")):
                continue
            found = await asyncio.to_thread(import_dbs.waiting, folder, name, report)
            holder = await asyncio.to_thread(import_dbs.holder, folder, name) if found else None
            if holder is not None and not dry_run:
                why = f"process {holder} has it open: stop Scrapyd first, or both would run the {len(found)} jobs in it"
                report.refuse(Kind.PENDING, import_folders.shown(name), why)
                continue
            for each in found:
                await self._take(each, report, dry_run=dry_run)

    async def _take(self, waiting: Waiting, report: Report, *, dry_run: bool) -> None:
        shown = import_folders.shown(f"{waiting.project}.db job {waiting.job}")
        if (problem := import_folders.problem_of((waiting.project, waiting.spider, waiting.job))) is not None:
            report.refuse(Kind.PENDING, shown, problem)
            return
        try:
            job = await self._name(waiting)
            if job is not None and not dry_run:
                await self._jobs.schedule(_new_job(waiting, job))
            report.count(Kind.PENDING, Fate.KNOWN if job is None else Fate.TAKEN)
            if job not in (None, waiting.job):
                report.notes.append(f"{shown} waits as {job}: a job of its name has ended")
        except REFUSALS as refused:
            report.refuse(Kind.PENDING, shown, refused)

    async def _name(self, waiting: Waiting) -> str | None:
        """What the job can be called; None where it was taken before.

        Scrapyd lets several jobs have one name, weft does not: a second one gets a number behind it.
        """
        names = [waiting.job, *(f"{waiting.job[:190]}-{number}" for number in range(2, MOST_OF_A_NAME + 1))]
        known = await self._db.read(lambda tx: import_store.named(tx, waiting.project, names))
        for name in names:
            if name not in known:
                return name
            if known[name].origin is None and known[name].spider == waiting.spider:
                return None
        raise Conflict(f"{MOST_OF_A_NAME} jobs of the name {waiting.job} are there already")


def _new_job(waiting: Waiting, name: str) -> NewJob:
    return NewJob(
        id=name,
        project=waiting.project,
        spider=waiting.spider,
        version=waiting.version,
        priority=waiting.priority,
        settings=waiting.settings,
        args=waiting.args,
        by=BY,
    )
