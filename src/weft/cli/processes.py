"""What the long-running commands share: their settings, their signals and the end of their parent."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import user_code
from weft.config import Config, Loaded, load, refuse_full
from weft.errors import DatabaseDamaged, DatabaseDown, DiskFull, Misconfigured, NoWeft
from weft.logging_config import configure_logging
from weft.untrusted_files import create

if TYPE_CHECKING:
    from weft.app import App

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1

FRESH_OBJECTS = 10_000
"""How many come together before garbage is looked for among them."""


def settings(role: str, file: Path | None = None, **overrides: Any) -> Config:
    """Load the configuration, for a process of its own."""
    return prepare(role, load(overrides, file=file)).config


def prepare(role: str, loaded: Loaded) -> Loaded:
    """Send log lines where the configuration says. What is written from now on is its owner's alone, and sandboxes
    make use of what the configuration says."""
    os.umask(0o077)
    config = loaded.config
    configure_logging(config.log_format, config.log_level, access_log=config.access_log, role=role)
    user_code.newest_landlock = config.newest_landlock
    return loaded


def end_with_parent() -> None:
    """Let the system end this process gently when its supervisor is gone, however that went."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def check_data_dir(config: Config, *, needs_room: bool = True) -> None:
    """Refuse, in one sentence, a data directory that cannot be used; make the one that is not there.

    A directory that takes ``a`` and ``A`` for one name is told of: nothing of weft's own is in the way of anything else
    there, but workers, and the files of runs, may be.
    """
    folder = config.folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise _unusable(folder, "made", problem) from problem
    if not config.connect and config.database_url.startswith("sqlite:"):
        from weft.db import sqlite_file  # a worker without a database has no use for it

        if (file := sqlite_file.path_of(config.database_url)) is not None:
            sqlite_file.check(file, folder, thorough=needs_room)
    probe = folder / f".weft-probe-{os.getpid()}"
    try:
        if needs_room:
            refuse_full(folder)
        os.close(create(probe))
        one_name = probe.with_name(probe.name.upper()).exists()
        probe.unlink()
    except OSError as problem:
        raise _unusable(folder, "written", problem) from problem
    if one_name:
        log.warning(
            "the file system of the data directory takes names that differ in case alone for one: let the names of "
            "workers, and of the files of a run, differ otherwise",
            extra={"folder": str(folder)},
        )


def _unusable(folder: Path, what: str, problem: OSError) -> Exception:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(folder, 0)
    return Misconfigured(
        f"the data directory {folder} cannot be {what} ({problem.strerror}); name another with --data-dir"
    )


def on_stop(act: Callable[[], None]) -> None:
    """Call ``act`` for each SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)


def freeze_memory() -> None:
    """Look for garbage less often, and not among what was loaded to stay: everybody waits for 100 ms meanwhile.

    What loading has used and freed goes back to the system first.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(FRESH_OBJECTS, 10, 10)
    with suppress(AttributeError):  # only glibc has it, and needs to be told
        ctypes.CDLL(None).malloc_trim(0)


async def open_when_ready(config: Config, *, create: bool = True, is_expected: bool = False) -> App:
    """Open weft; a database that does not answer yet, or that others are to create, is waited for.

    ``is_expected`` where somebody is just doing that, so that there is nothing to tell.
    """
    from weft.app import open_app

    told = False
    while True:
        try:
            return await open_app(config, create=create)
        except DatabaseDamaged:
            raise
        except DatabaseDown as problem:
            log.warning("waiting for the database", extra={"why": str(problem)})
            await asyncio.sleep(1)
        except NoWeft as problem:
            if not told and not is_expected:
                log.warning("waiting for `weft serve` to create the database", extra={"why": str(problem)})
            told = True
            await asyncio.sleep(0.2)
