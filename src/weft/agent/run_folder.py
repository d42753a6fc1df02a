"""The folder of a run, as its worker reads it: items/, stats.json, end.json; the project's own files go to files/."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from .spool import Spool

PAGE_BYTES = resource.getpagesize()


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = path / "files"
        items = path / "items"
        for folder in (self.files, items):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.spool = Spool(items)
        self._spare = _spare()

    def put_stats(self, stats: Mapping[Any, Any], isolation: str) -> None:
        spent = os.times()
        self._put(
            "stats.json",
            {
                "stats": {str(name): plain(value) for name, value in stats.items()},
                "memory_bytes": memory_bytes(),
                "cpu_seconds": round(spent.user + spent.system + spent.children_user + spent.children_system, 3),
                "isolation": isolation,
                "at": time.time_ns() // 1000,
            },
        )

    def put_end(self, reason: str, outcome: str = "", message: str = "") -> None:
        self._put("end.json", {"reason": reason, "outcome": outcome, "message": message})

    def _put(self, name: str, value: dict[str, Any]) -> None:
        """Replace a file at once: a reader sees the old one or the new one.

        A spider may have as many files open as it may; so a descriptor is kept for this.
        """
        fresh = self.path / f".{name}"
        if self._spare >= 0:
            os.close(self._spare)
        try:
            fresh.write_text(json.dumps(value), encoding="utf-8")
        finally:
            self._spare = _spare()
        os.replace(fresh, self.path / name)


def _spare() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:  # another thread was faster
        return -1


def plain(value: Any) -> Any:
    """What JSON can say of a value that a spider put into its stats."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # nan and the infinities are not JSON
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    return str(value)


def memory_bytes() -> int:
    """What this process holds in memory now; where the system does not say, the most it ever held."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
