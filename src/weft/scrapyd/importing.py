"""The front door of an import: an existing Scrapyd is taken over, with its eggs, jobs, logs and items.

Its files are only read. What was taken is known by its name, so an import that was killed, or is made again, takes the
rest; what cannot be taken is told by its name with the reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.clock import Clock
from weft.db.database import Database
from weft.ports import Blobs
from weft.projects.projects import Projects
from weft.scrapyd.conf import ScrapydConf
from weft.scrapyd.import_eggs import EggImport
from weft.scrapyd.import_finished import FinishedImport
from weft.scrapyd.import_model import Report
from weft.scrapyd.import_pending import PendingImport
from weft.scrapyd.jobs import Jobs


class Importing:
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
    ) -> Report:
        """Take over what the Scrapyd of ``conf`` has, or only what it has of one project.

        What waits comes last: it is run by the code that was taken, and is newer than all that has ended. With
        ``dry_run`` nothing is written, and the report says what would be. How far it has come is ``told`` meanwhile.
        """
        report = Report(told=told)
        if (eggs := conf.place("eggs_dir")) is not None:
            await self._eggs.take(eggs, project, report, dry_run=dry_run)
        await self._finished.take(conf, project, report, dry_run=dry_run)
        if (dbs := conf.place("dbs_dir")) is not None:
            await self._pending.take(dbs, project, report, dry_run=dry_run)
        return report
