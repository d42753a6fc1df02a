"""Delivers the WARC files of crawls, with their indexes, to the blob store as soon as each is finished.

What a dead process has left is mended first. A file is removed here once it is stored there. The process that wrote
them is not trusted: it may put a link where a file is looked for, or in place of a folder on the way, at any moment; so
the way is walked from one open folder to the next, and what is read is what was opened.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from weft.crawler.messages import WARC_FOLDER, WARC_OPEN_SUFFIX
from weft.errors import WeftError
from weft.ports import Blobs

FOLDER_ONLY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NO_PLAIN_FILE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""What is said of a name that is nothing, a link, beneath a file, or a socket."""


@contextmanager
def open_plain_file(folder: Path, names: Sequence[str]) -> Iterator[Path | None]:
    """By which path a file beneath ``folder`` can be read now; None where it is no plain one, or a link leads to it."""
    with ExitStack() as stack:
        place = _place(folder, names[:-1], stack)
        file = _open(names[-1], FILE_ONLY, place, stack) if place is not None else None
        if file is None or not stat.S_ISREG(os.fstat(file).st_mode):
            yield None
        else:
            short = Path(f"/proc/self/fd/{file}")
            yield short if short.exists() else Path(f"/dev/fd/{file}")


def remove_plain_file(folder: Path, names: Sequence[str]) -> None:
    """Remove a file beneath ``folder``, or a link that is in its place."""
    with ExitStack() as stack, suppress(FileNotFoundError):
        place = _place(folder, names[:-1], stack)
        if place is not None:
            os.unlink(names[-1], dir_fd=place)


def _place(folder: Path, names: Sequence[str], stack: ExitStack) -> int | None:
    place = _open(str(folder), os.O_RDONLY | os.O_DIRECTORY, None, stack)
    for name in names:
        place = _open(name, FOLDER_ONLY, place, stack) if place is not None else None
    return place


def _open(name: str, flags: int, place: int | None, stack: ExitStack) -> int | None:
    try:
        found = os.open(name, flags | os.O_CLOEXEC, dir_fd=place)
    except OSError as problem:
        if problem.errno in NO_PLAIN_FILE:
            return None
        raise
    stack.callback(os.close, found)
    return found


log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
KEEP_SECONDS = 60.0
"""How long a store that does not answer is tried again before the files stay for the next worker."""
RETRY_SECONDS = 1.0
KIND = "crawl"
"""Only runs of this kind have such files: what other processes leave in their folders is theirs."""

_CRAWL = re.compile(r"[1-9]\d{0,18}", re.ASCII)


def name_pattern(crawl_id: int, run_id: int, attempt: int) -> str:
    """What the files of an attempt are called."""
    return rf"weft-{crawl_id}-{run_id}-{attempt}-\d{{5,9}}\.(?:warc\.gz|cdxj)"


def key_of(crawl_id: int, name: str) -> str:
    return f"crawls/{crawl_id}/warc/{name}"


@runtime_checkable
class FileUploader(Protocol):
    """A blob store that has its own way with such files: a gateway takes them in pieces."""

    async def keep_file(self, run_id: int, attempt: int, name: str, path: Path) -> None: ...


@asynccontextmanager
async def delivering(blobs: Blobs, run_id: int, attempt: int, folder: Path) -> AsyncIterator[None]:
    """Deliver each file that is finished while an attempt runs."""
    task = asyncio.create_task(_deliver_on(blobs, run_id, attempt, folder))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def deliver_all(
    blobs: Blobs, run_id: int, attempt: int, folder: Path, hurried: asyncio.Event | None = None
) -> str:
    """Mend and deliver what an attempt has left; why some of it is still there, where it is."""
    deadline = time.monotonic() + KEEP_SECONDS
    while True:
        try:
            await asyncio.to_thread(_mend, folder)
            await deliver(blobs, run_id, attempt, folder)
            return ""
        except (OSError, WeftError) as problem:
            if time.monotonic() > deadline or (hurried is not None and hurried.is_set()):
                log.error("raw pages not kept", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
                return f"its raw pages are still with its worker: {problem}"
        await asyncio.sleep(RETRY_SECONDS)


async def deliver(blobs: Blobs, run_id: int, attempt: int, folder: Path) -> int:
    """Deliver the files that are finished; how many these were. An index goes first: a file that is there has one."""
    delivered = 0
    for crawl_id, file in await asyncio.to_thread(finished, folder, run_id, attempt):
        for name in (file.name.removesuffix(".warc.gz") + ".cdxj", file.name):
            way = (WARC_FOLDER, file.parent.name, name)
            with open_plain_file(folder, way) as readable:
                if readable is not None:
                    await _put(blobs, crawl_id, run_id, attempt, name, readable)
            remove_plain_file(folder, way)
        delivered += 1
    return delivered


def finished(folder: Path, run_id: int, attempt: int) -> list[tuple[int, Path]]:
    """The WARC files of an attempt that nobody writes to any more, with the crawl that each is of."""
    found: list[tuple[int, Path]] = []
    if (folder / WARC_FOLDER).is_symlink():
        return found
    for place in sorted((folder / WARC_FOLDER).glob("*")):
        if not _CRAWL.fullmatch(place.name) or place.is_symlink() or not place.is_dir():
            continue
        is_ours = re.compile(name_pattern(int(place.name), run_id, attempt), re.ASCII).fullmatch
        files = (each for each in sorted(place.glob("*.warc.gz")) if is_ours(each.name))
        found += [(int(place.name), each) for each in files if each.is_file() and not each.is_symlink()]
    return found


def has_files(folder: Path) -> bool:
    """Whether raw pages lie in the folder of an attempt, finished or not."""
    names = (each for ending in ("", WARC_OPEN_SUFFIX) for each in (folder / WARC_FOLDER).glob(f"*/*.warc.gz{ending}"))
    return any(not each.is_symlink() for each in names)


def _mend(folder: Path) -> None:
    """Finish what was still written; a worker without crawls does not import what that needs."""
    if any((folder / WARC_FOLDER).glob(f"*/*.warc.gz{WARC_OPEN_SUFFIX}")):
        from weft.crawler.warc import repair_all

        repair_all(folder)


async def _put(blobs: Blobs, crawl_id: int, run_id: int, attempt: int, name: str, file: Path) -> None:
    if isinstance(blobs, FileUploader):
        await blobs.keep_file(run_id, attempt, name, file)
    else:
        await blobs.put_file(key_of(crawl_id, name), file)


async def _deliver_on(blobs: Blobs, run_id: int, attempt: int, folder: Path) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await deliver(blobs, run_id, attempt, folder)
        except (OSError, WeftError) as problem:
            log.warning("raw pages not kept yet", extra={"run_id": run_id, "attempt": attempt, "why": str(problem)})
