"""Keeps the JOBDIR of an interrupted Scrapy crawl, so that its next attempt goes on there.

Kept is what a spider wrote when it closed gently: because it was paused, or because its worker drains. One that was
killed has no JOBDIR that could be trusted; its next attempt begins where the last gentle end was.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from weft.errors import WeftError
from weft.ports import Blobs
from weft.projects.model import ArchiveLimits
from weft.runs.model import NOT_KEPT, Lease
from weft.untrusted_files import create, file_at
from weft.workers.folder_cache import in_thread

log = logging.getLogger(__name__)

JOBDIR = "jobdir"
"""The folder inside a run's folder where Scrapy keeps its place."""

LARGEST = 500_000_000
UNPACKED = ArchiveLimits(archive_bytes=LARGEST, entries=1_000_000, inflated_bytes=20 * LARGEST, ratio=1000, twins=True)


def is_resumable(lease: Lease) -> bool:
    return lease.spec.code is not None and bool(lease.spec.spec.get("resumable"))


async def restore(blobs: Blobs, run_id: int, folder: Path) -> None:
    """Put the place that was kept into a run's folder. Where none can be had, the crawl begins anew."""
    packed = folder / "place.tar.gz"
    try:
        data = await blobs.get(_key(run_id))
        if data is not None:
            await in_thread(_unpack, data, packed, folder / JOBDIR)
    except (OSError, WeftError) as problem:
        log.warning("place not restored", extra={"run_id": run_id, "why": str(problem)})
    finally:
        packed.unlink(missing_ok=True)


async def keep(blobs: Blobs, run_id: int, folder: Path) -> str:
    """Keep the place; empty, or why that was not possible. Then the one that was kept before stays."""
    packed = folder / "place.tar.gz"
    if not _is_closed(folder):
        return f"{NOT_KEPT}: it ended before it had closed"
    try:
        await asyncio.to_thread(_pack, folder / JOBDIR, packed)
        if packed.stat().st_size > LARGEST:
            return f"{NOT_KEPT}: it has more than {LARGEST} bytes"
        await blobs.put(_key(run_id), await asyncio.to_thread(packed.read_bytes))
    except (OSError, WeftError) as problem:
        log.error("place not kept", extra={"run_id": run_id, "why": str(problem)})
        return f"{NOT_KEPT}: {problem}"
    return ""


def _is_closed(folder: Path) -> bool:
    """Whether the spider has closed, and written what is needed to go on; one that was killed has not."""
    with file_at(folder / "end.json") as end:
        return end is not None


async def forget(blobs: Blobs, run_id: int) -> None:
    """The crawl is over: nobody goes on with it."""
    try:
        await blobs.delete(_key(run_id))
    except (OSError, WeftError) as problem:
        log.warning("place not forgotten", extra={"run_id": run_id, "why": str(problem)})


def _key(run_id: int) -> str:
    return f"places/{run_id}.tar.gz"


def _unpack(data: bytes, packed: Path, folder: Path) -> None:
    from weft.projects.archive import unpack  # what knows archives is loaded with the first one

    packed.write_bytes(data)
    unpack(packed, folder, UNPACKED)


def _pack(folder: Path, packed: Path) -> None:
    """Regular files only: what else a spider may have put there is not carried to another machine."""
    import tarfile

    if folder.is_symlink():
        raise NotADirectoryError(f"{JOBDIR} is a link")
    with open(create(packed), "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for place, _, names in os.walk(folder):
            for path in (Path(place) / name for name in sorted(names)):
                if path.is_file() and not path.is_symlink():
                    archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
