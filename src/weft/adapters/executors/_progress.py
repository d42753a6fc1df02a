"""Whether a crawl still gets anywhere: by what it has counted and the items that it has written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST = 2**20
"""Bytes that are read of the statistics."""

IDLE = ("elapsed", "memusage/", "log_count/", "start_time", "finish_time", "periodic_log/")
"""Statistics that change by themselves; the rest changes when something happens."""


class Progress:
    """Compares each look with the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: object = None
        self._since = time.monotonic()

    def silent_seconds(self) -> float:
        """For how long nothing has changed."""
        now, found = time.monotonic(), (self._counted(), self._written())
        if found != self._last:
            self._last, self._since = found, now
        return now - self._since

    def _counted(self) -> Mapping[str, Any]:
        try:
            said = json.loads(_beginning(self._folder / "stats.json"))["stats"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return {}
        if not isinstance(said, dict):
            return {}
        return {name: value for name, value in said.items() if not name.startswith(IDLE)}

    def _written(self) -> list[tuple[str, int]]:
        """The segments of the spool: the worker takes away those that are full, which is a change too."""
        try:
            with os.scandir(self._folder / "items") as found:
                return sorted((each.name, each.stat(follow_symlinks=False).st_size) for each in found)
        except OSError:
            return []


def _beginning(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)
