"""The folder of a run: ``order.json`` says what to do; items/, stats.json and end.json are for its worker.

The project's own files go to files/.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any

from .sandbox import Sandbox

ORDER_FILE = "order.json"


@dataclass(frozen=True)
class Order:
    spider: str
    settings_module: str
    code: str
    run_id: str
    args: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    project: str = ""
    task: str = ""
    correlation_id: str = ""
    traceparent: str = ""
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    isolation: str = "L0"
    must_isolate: bool = False
    """Whether the run is rather not started than with less."""
    read: list[str] = field(default_factory=list)
    write: list[str] = field(default_factory=list)
    pattern_engine: str = ""
    """The folder of weft's own package ``re2``."""
    jobdir: str | None = None
    frontier: bool = False
    """Whether it takes its requests from where other runs do; where not, the project's settings decide."""

    @property
    def environment(self) -> dict[str, str]:
        """What the project finds in its environment: its own variables, and who it runs as."""
        ours = {
            "SCRAPY_JOB": self.run_id,
            "SCRAPY_PROJECT": self.project,
            "SCRAPY_SPIDER": self.spider,
            "TRACEPARENT": self.traceparent,
            "WEFT_ATTEMPT": str(self.attempt),
            "WEFT_CORRELATION_ID": self.correlation_id,
            "WEFT_RUN_ID": self.run_id,
            "WEFT_TASK": self.task,
        }
        return {**self.env, **{name: value for name, value in ours.items() if value}}

    def limit(self, name: str) -> int:
        """The limit of that name, 0 where there is none."""
        return int(self.limits.get(name) or 0)


def take_order(folder: Path) -> Order:
    """Read the order of the run in ``folder`` and delete it, so that its secrets are on disk no longer than needed."""
    path = folder / ORDER_FILE
    words = json.loads(path.read_bytes())
    path.unlink()
    known = {each.name for each in fields(Order)}
    given = {name: value for name, value in words.items() if name in known and value is not None}
    return Order(**{**given, "run_id": str(given["run_id"])})


SEGMENT_BYTES = 4 * 1024 * 1024


class Spool:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._size = SEGMENT_BYTES
        self.count = 0

    def add(self, item: bytes) -> None:
        """Keep one item that is JSON already; what cannot be written whole is not written."""
        line = b'{"at":%d,"item":%b}\n' % (time.time_ns() // 1000, item)
        if self._size >= SEGMENT_BYTES:
            self._begin_segment()
        try:
            write_all(self._file, line)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self.count += 1
        self._size += len(line)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = -1, SEGMENT_BYTES

    def _begin_segment(self) -> None:
        self.close()
        path = self._folder / f"{self.count + 1:012d}.jl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size = 0


def write_all(file: int, data: bytes) -> None:
    """Write it all, also where a signal or a full disk cuts a write short (the next one then says why)."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])


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

    def put_stats(self, stats: Mapping[Any, Any], reached: Sandbox) -> None:
        spent = os.times()
        self._put(
            "stats.json",
            {
                "stats": {str(name): plain(value) for name, value in stats.items()},
                "memory_bytes": memory_bytes(),
                "cpu_seconds": round(spent.user + spent.system + spent.children_user + spent.children_system, 3),
                "isolation": reached.level,
                "isolation_missing": reached.missing,
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
