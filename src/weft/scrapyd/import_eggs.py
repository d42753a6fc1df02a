"""Takes over the eggs of a Scrapyd: each is deployed as any other code, the oldest version first."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from weft.db.database import Database
from weft.errors import Conflict, Invalid, Rejected
from weft.projects.projects import Projects
from weft.scrapyd import import_folders, import_store
from weft.scrapyd.import_model import Fate, Kind, Report
from weft.scrapyd.jobs import spelled

BY = "import:scrapyd"
"""Who has deployed what was imported, and has asked for what waited."""
CHUNK = 1 << 20


class EggImport:
    def __init__(self, db: Database, projects: Projects) -> None:
        self._db, self._projects = db, projects

    async def take(self, top: Path, only: str | None, report: Report, *, dry_run: bool) -> None:
        """Deploy every egg that is not there. One that does not work is told, and nothing of it is kept."""
        found = await asyncio.to_thread(import_folders.eggs, top, only, report)
        for project, versions in found.items():
            await self._take_project(top, project, versions, report, dry_run=dry_run)

    async def _take_project(
        self, top: Path, project: str, versions: list[str], report: Report, *, dry_run: bool
    ) -> None:
        known = await self._db.read(lambda tx: import_store.version_digests(tx, project))
        for version in versions:
            name = f"{project}/{version}.egg"
            report.tell(f"{name} is looked at")
            with self._place(dry_run) as place:
                egg = Path(place) / "code.egg"
                try:
                    digest = await asyncio.to_thread(copied, top, project, version, egg, self._projects.largest_bytes)
                    if _is_there(known, version, digest):
                        report.count(Kind.EGG, Fate.KNOWN)
                        continue
                    if not dry_run:  # to replace lets the newest by name be the current one, whoever deployed it
                        await self._projects.deploy(project, egg, version, by=BY, replace=True)
                    report.count(Kind.EGG, Fate.TAKEN)
                except (Rejected, Invalid, Conflict) as problem:
                    report.refuse(Kind.EGG, name, problem, getattr(problem, "traceback", ""))

    def _place(self, dry_run: bool) -> AbstractContextManager[Path | str]:
        """Where eggs are copied to; a dry run leaves alone what is weft's."""
        return (
            tempfile.TemporaryDirectory(prefix="weft-import-") if dry_run else self._projects.incoming.place("import")
        )


def copied(top: Path, project: str, version: str, target: Path, most: int) -> str:
    """Copy an egg, so that what is checked is what is kept; its digest."""
    digest = hashlib.sha256()
    with import_folders.opened(top, Kind.EGG, project, version) as file, target.open("xb") as copy:
        if file is None:
            raise Invalid("the egg", f"{project}/{version}.egg", import_folders.NOT_PLAIN)
        if (size := os.fstat(file).st_size) > most:
            raise Invalid("the size of the egg", size, f"largest_archive_bytes allows {most} bytes")
        offset = 0
        while offset < size and (data := os.pread(file, min(CHUNK, size - offset), offset)):
            offset += len(data)
            digest.update(data)
            copy.write(data)
    return digest.hexdigest()


def _is_there(known: dict[str, str], version: str, digest: str) -> bool:
    """Whether this version, however it is spelled, has this code already; refused where it has other code."""
    same = spelled(known, version)
    if same is None:
        return False
    if known[same] != digest:
        raise Conflict(f"version {same} is there with other code; delete it first to have this one")
    return True
