"""Delivers items, WARC files and logs that an earlier worker of the same name had on its disk when it was killed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

from weft.ports import Blobs
from weft.runs.model import Ending
from weft.untrusted_files import remove
from weft.workers.item_delivery import ItemDelivery, has_items
from weft.workers.log_spool import LogSpool, late_ending, store_attempt_log
from weft.workers.remote.wire import LARGEST_LOG
from weft.workers.warc_delivery import deliver_all, has_files
from weft.workers.work_dir import run_folders

log = logging.getLogger(__name__)

AT_ONCE = 20

_FOLDER = re.compile(r"([1-9]\d{0,18})-(\d{1,9})", re.ASCII)


Tell = Callable[[Ending], None]
"""Tells where the log of an attempt is that its worker was lost with."""


async def deliver_left_behind(
    folder: Path, delivery: ItemDelivery, blobs: Blobs | None = None, tell: Tell | None = None
) -> None:
    """Store what lies in the folders of attempts that are over, and remove them; many at a time."""
    places = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for left in left_behind(folder):
            has_pages = left.parent == folder and has_files(left)
            group.create_task(_deliver(left, delivery, blobs, tell, places, has_pages=has_pages))


async def _deliver(
    left: Path,
    delivery: ItemDelivery,
    blobs: Blobs | None,
    tell: Tell | None,
    places: asyncio.Semaphore,
    *,
    has_pages: bool,
) -> None:
    run_id, attempt = attempt_of(left)
    async with places:
        log.info("items, pages or a log were left behind", extra={"run_id": run_id, "attempt": attempt})
        delivery.add(run_id, attempt, left)
        await delivery.finish(run_id, attempt)
        is_left = blobs is not None and has_pages and bool(await deliver_all(blobs, run_id, attempt, left))
        if blobs is not None and tell is not None:
            is_left = await _deliver_log(left, blobs, tell) or is_left
        if not is_left:  # else the next worker of this name tries again
            await asyncio.to_thread(remove, left)


async def _deliver_log(left: Path, blobs: Blobs, tell: Tell) -> bool:
    """Keep the log of an attempt; whether it must stay here."""
    run_id, attempt = attempt_of(left)
    with LogSpool.left_in(left, LARGEST_LOG) as spool:
        if spool is None:
            return False
        kept = await store_attempt_log(blobs, run_id, attempt, spool, asyncio.Event())
    if (ending := late_ending(run_id, attempt, kept)) is not None:
        tell(ending)
    return kept.is_left


def left_behind(folder: Path) -> list[Path]:
    """The folders there that hold items, raw pages or a log. Asked for before the worker starts anything of its own."""
    return [each for each in run_folders(folder) if _FOLDER.fullmatch(each.name) and is_worth_keeping(each, folder)]


def is_worth_keeping(left: Path, folder: Path) -> bool:
    """Whether something in a run's folder is stored nowhere else. Raw pages are those of crawls only."""
    with LogSpool.left_in(left, LARGEST_LOG) as spool:
        return spool is not None or has_items(left) or (left.parent == folder and has_files(left))


def attempt_of(folder: Path) -> tuple[int, int]:
    run_id, _, attempt = folder.name.partition("-")
    return int(run_id), int(attempt)
