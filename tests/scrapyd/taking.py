"""An import that a test makes, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from tests.conftest import SetClock
from tests.scrapyd import left_behind
from weft.app import App
from weft.db import schema
from weft.items.model import ItemQuery
from weft.runs.model import Run
from weft.scrapyd.conf import read_conf
from weft.scrapyd.importing import ScrapydImport
from weft.scrapyd.model import ImportKind, ImportOutcome, ImportReport


@dataclass
class Taking:
    """Imports from one folder into one weft."""

    app: App
    clock: SetClock
    folder: Path

    async def __call__(
        self, folder: Path | None = None, *, project: str | None = None, dry_run: bool = False
    ) -> ImportReport:
        app = self.app
        importing = ScrapydImport(app.db, app.blobs, app.projects, app.jobs, self.clock)
        conf = read_conf(folder or self.folder, self.conf())
        return await importing.take(conf, project=project, dry_run=dry_run)

    def conf(self) -> Path:
        """Of this folder alone, whatever this machine has."""
        file = self.folder.parent / "import.conf"
        file.write_text("[scrapyd]\nitems_dir = items\n")
        return file

    async def run(self, job: str, project: str = left_behind.PROJECT) -> Run:
        found = await self.app.jobs.find(job, {project})
        assert found is not None, job
        return await self.app.runs.get(found.run_id)

    async def items(self, run: Run) -> list[dict[str, object]]:
        return [dict(row.data) async for row in self.app.items.rows(ItemQuery(run_id=run.id))]


def counts(report: ImportReport) -> dict[str, tuple[int, int, int]]:
    """Of each kind: taken, known, refused."""
    fates = (ImportOutcome.TAKEN, ImportOutcome.KNOWN, ImportOutcome.REFUSED)
    every = {kind.value: tuple(report.counts[kind, fate] for fate in fates) for kind in ImportKind}
    return {kind: found for kind, found in every.items() if any(found)}  # type: ignore[misc]


def refused(report: ImportReport) -> dict[str, str]:
    return {each.name: each.why for each in report.refused}


async def stored(app: App) -> dict[str, int]:
    """How many rows there are of all that an import writes."""
    tables = [schema.runs, schema.scrapyd_jobs, schema.items, schema.records, schema.revisions, schema.versions]
    tables += [schema.run_stats, schema.datasets, schema.events]
    return await app.db.read(
        lambda tx: {each.name: int(tx.value(select(func.count()).select_from(each))) for each in tables}
    )
