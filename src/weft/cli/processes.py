"""What the long-running commands share: their settings, their signals and the end of their parent."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.config import Config
from weft.errors import DatabaseDown
from weft.logs import set_up
from weft.settings import load

if TYPE_CHECKING:
    from weft.app import App

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1

FRESH_OBJECTS = 10_000
"""How many come together before garbage is looked for among them."""


def settings(role: str, file: Path | None = None, **overrides: Any) -> Config:
    """Load the configuration and send log lines where it says. What is written from now on is its owner's alone."""
    os.umask(0o077)
    config = load(overrides, file=file).config
    set_up(config.log_format, config.log_level, role=role)
    return config


def end_with_parent() -> None:
    """Let the system end this process gently when its supervisor is gone, however that went."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def on_stop(act: Callable[[], None]) -> None:
    """Call ``act`` for each SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)


def settle() -> None:
    """Look for garbage less often, and not among what was loaded to stay: everybody waits for 100 ms meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(FRESH_OBJECTS, 10, 10)


async def open_when_ready(config: Config) -> App:
    """Open weft; a database that is not there yet is waited for."""
    from weft.app import open_app

    while True:
        try:
            return await open_app(config)
        except DatabaseDown as problem:
            log.warning("waiting for the database", extra={"why": str(problem)})
            await asyncio.sleep(1)
