"""Import an existing Scrapyd: its eggs, its waiting jobs, and what has finished."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from weft.clock import Clock
from weft.db.database import Database
from weft.errors import Conflict, Invalid, NotFound, QueueFull, Rejected
from weft.ports import Blobs
from weft.projects.model import Version
from weft.projects.projects import Projects
from weft.scrapyd import import_files, job_store
from weft.scrapyd.conf import ScrapydConf
from weft.scrapyd.import_finished import FinishedImport
from weft.scrapyd.jobs import Jobs, matching_version
from weft.scrapyd.model import ImportKind, ImportOutcome, ImportReport, NewJob, QueuedJob
from weft.user_code import VARIABLES

IMPORTED_BY = "import:scrapyd"
"""Who has deployed what was imported, and has asked for what waited."""
COPY_BYTES = 1 << 20


class EggImport:
    def __init__(self, db: Database, projects: Projects) -> None:
        self._db, self._projects = db, projects

    async def take(self, top: Path, only: str | None, report: ImportReport, *, dry_run: bool) -> None:
        """Deploy every egg that is not there. One that does not work is told, and nothing of it is kept."""
        found = await asyncio.to_thread(import_files.egg_files, top, only, report)
        for project, versions in found.items():
            await self._take_project(top, project, versions, report, dry_run=dry_run)

    async def _take_project(
        self, top: Path, project: str, versions: list[str], report: ImportReport, *, dry_run: bool
    ) -> None:
        known = await self._db.read(lambda tx: job_store.version_digests(tx, project))
        for version in versions:
            name = f"{project}/{version}.egg"
            report.tell(f"{name} is looked at")
            with self._place(dry_run) as place:
                egg = Path(place) / "code.egg"
                try:
                    digest = await asyncio.to_thread(copy_egg, top, project, version, egg, self._projects.largest_bytes)
                    if _is_there(known, version, digest):
                        report.count(ImportKind.EGG, ImportOutcome.KNOWN)
                        continue
                    if not dry_run:  # to replace lets the newest by name be the current one, whoever deployed it
                        deployed = await self._projects.deploy(project, egg, version, by=IMPORTED_BY, replace=True)
                        report.variables[project] = _missing_eggs(deployed)
                    report.count(ImportKind.EGG, ImportOutcome.TAKEN)
                except (Rejected, Invalid, Conflict) as problem:
                    report.refuse(ImportKind.EGG, name, problem, getattr(problem, "traceback", ""))

    def _place(self, dry_run: bool) -> AbstractContextManager[Path | str]:
        """Where eggs are copied to; a dry run leaves alone what is weft's."""
        return (
            tempfile.TemporaryDirectory(prefix="weft-import-") if dry_run else self._projects.incoming.place("import")
        )


def _missing_eggs(version: Version) -> list[str]:
    """The variables that its code reads and no spider sees, but weft's own."""
    found = {each.name for each in version.warnings if each.code == "environment"}
    return sorted(name for name in found if VARIABLES.fullmatch(name))


def copy_egg(top: Path, project: str, version: str, target: Path, most: int) -> str:
    """Copy an egg, so that what is checked is what is kept; its digest."""
    digest = hashlib.sha256()
    with import_files.open_plain_file(top, ImportKind.EGG, project, version) as file, target.open("xb") as copy:
        if file is None:
            raise Invalid("the egg", f"{project}/{version}.egg", import_files.NOT_PLAIN)
        if (size := os.fstat(file).st_size) > most:
            raise Invalid("the size of the egg", size, f"largest_archive_bytes allows {most} bytes")
        offset = 0
        while offset < size and (data := os.pread(file, min(COPY_BYTES, size - offset), offset)):
            offset += len(data)
            digest.update(data)
            copy.write(data)
    return digest.hexdigest()


def _is_there(known: dict[str, str], version: str, digest: str) -> bool:
    """Whether this version, however it is spelled, has this code already; refused where it has other code."""
    same = matching_version(known, version)
    if same is None:
        return False
    if known[same] != digest:
        raise Conflict(f"version {same} is there with other code; delete it first to have this one")
    return True


REFUSED_ERRORS = (Invalid, NotFound, Conflict, QueueFull)
MOST_OF_A_NAME = 20
"""How many jobs may have had the same name."""


class PendingImport:
    def __init__(self, db: Database, jobs: Jobs) -> None:
        self._db, self._jobs = db, jobs

    async def take(self, folder: Path, only: str | None, report: ImportReport, *, dry_run: bool) -> None:
        for name in await asyncio.to_thread(import_files.queues, folder):
            if only not in (None, name.removesuffix(".db")):
                continue
            found = await asyncio.to_thread(import_files.queued_jobs, folder, name, report)
            holder = await asyncio.to_thread(import_files.lock_holder, folder, name) if found else None
            if holder is not None and not dry_run:
                why = f"process {holder} has it open: stop Scrapyd first, or both would run the {len(found)} jobs in it"
                report.refuse(ImportKind.PENDING, import_files.printable(name), why)
                continue
            for each in found:
                await self._take(each, report, dry_run=dry_run)

    async def _take(self, waiting: QueuedJob, report: ImportReport, *, dry_run: bool) -> None:
        shown = import_files.printable(f"{waiting.project}.db job {waiting.job}")
        if (problem := import_files.problem_of((waiting.project, waiting.spider, waiting.job))) is not None:
            report.refuse(ImportKind.PENDING, shown, problem)
            return
        try:
            job = await self._name(waiting)
            if job is not None and not dry_run:
                await self._jobs.schedule(_new_job(waiting, job))
            report.count(ImportKind.PENDING, ImportOutcome.KNOWN if job is None else ImportOutcome.TAKEN)
            if job not in (None, waiting.job):
                report.notes.append(f"{shown} waits as {job}: a job of its name has ended")
        except REFUSED_ERRORS as refused:
            report.refuse(ImportKind.PENDING, shown, refused)

    async def _name(self, waiting: QueuedJob) -> str | None:
        """What the job can be called; None where it was taken before.

        Scrapyd lets several jobs have one name, weft does not: a second one gets a number behind it.
        """
        names = [waiting.job, *(f"{waiting.job[:190]}-{number}" for number in range(2, MOST_OF_A_NAME + 1))]
        known = await self._db.read(lambda tx: job_store.named_runs(tx, waiting.project, names))
        for name in names:
            if name not in known:
                return name
            if known[name].origin is None and known[name].spider == waiting.spider:
                return None
        raise Conflict(f"{MOST_OF_A_NAME} jobs of the name {waiting.job} are there already")


def _new_job(waiting: QueuedJob, name: str) -> NewJob:
    return NewJob(
        id=name,
        project=waiting.project,
        spider=waiting.spider,
        version=waiting.version,
        priority=waiting.priority,
        settings=waiting.settings,
        args=waiting.args,
        by=IMPORTED_BY,
    )


class ScrapydImport:
    def __init__(self, db: Database, blobs: Blobs, projects: Projects, jobs: Jobs, clock: Clock) -> None:
        self._eggs = EggImport(db, projects)
        self._finished = FinishedImport(db, blobs, clock)
        self._pending = PendingImport(db, jobs)

    async def take(
        self,
        conf: ScrapydConf,
        *,
        project: str | None = None,
        dry_run: bool = False,
        told: Callable[[str], None] | None = None,
    ) -> ImportReport:
        """Take over what the Scrapyd of ``conf`` has, or only what it has of one project.

        What waits comes last: it is run by the code that was taken, and is newer than all that has ended. With
        ``dry_run`` nothing is written, and the report says what would be. How far it has come is ``told`` meanwhile.
        """
        report = ImportReport(told=told)
        if (eggs := conf.place("eggs_dir")) is not None:
            await self._eggs.take(eggs, project, report, dry_run=dry_run)
        await self._finished.take(conf, project, report, dry_run=dry_run)
        if (dbs := conf.place("dbs_dir")) is not None:
            await self._pending.take(dbs, project, report, dry_run=dry_run)
        return report
