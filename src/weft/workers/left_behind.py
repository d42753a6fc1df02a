"""Items and raw pages that an earlier worker of the same name had on its disk when it was killed."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

from weft.foreign_files import remove
from weft.ports import Blobs
from weft.workers.delivery import Delivery
from weft.workers.file_delivery import deliver_all, has_files
from weft.workers.folder import run_folders
from weft.workers.item_spool import has_items

log = logging.getLogger(__name__)

AT_ONCE = 20

_FOLDER = re.compile(r"([1-9]\d{0,18})-(\d{1,9})", re.ASCII)


async def deliver_left_behind(folder: Path, delivery: Delivery, blobs: Blobs | None = None) -> None:
    """Store what lies in the folders of attempts that are over, and remove them; many at a time."""
    places = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for left in left_behind(folder):
            has_pages = left.parent == folder and has_files(left)
            group.create_task(_deliver(left, delivery, blobs if has_pages else None, places))


async def _deliver(left: Path, delivery: Delivery, blobs: Blobs | None, places: asyncio.Semaphore) -> None:
    run_id, attempt = attempt_of(left)
    async with places:
        log.info("items or pages were left behind", extra={"run_id": run_id, "attempt": attempt})
        delivery.add(run_id, attempt, left)
        await delivery.finish(run_id, attempt)
        if blobs is not None and await deliver_all(blobs, run_id, attempt, left):
            return  # the next worker of this name tries again
        await asyncio.to_thread(remove, left)


def left_behind(folder: Path) -> list[Path]:
    """The folders there that hold items or raw pages. Asked for before the worker starts anything of its own."""
    return [each for each in run_folders(folder) if _FOLDER.fullmatch(each.name) and is_worth_keeping(each, folder)]


def is_worth_keeping(left: Path, folder: Path) -> bool:
    """Whether something in a run's folder is stored nowhere else. Raw pages are those of crawls only."""
    return has_items(left) or (left.parent == folder and has_files(left))


def attempt_of(folder: Path) -> tuple[int, int]:
    run_id, _, attempt = folder.name.partition("-")
    return int(run_id), int(attempt)
