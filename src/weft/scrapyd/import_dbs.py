"""Reads the SQLite files of a Scrapyd, without ever writing to them: what waits in its queues, and what has ended."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from weft.foreign_files import file_at, folder_at
from weft.scrapyd.import_logs import local_moment
from weft.scrapyd.import_model import Finished, Kind, Report, Waiting

QUEUE, FINISHED = "spider_queue", "finished_jobs"
JOBS = "jobs.db"
LARGEST_MESSAGE = 1_000_000
BUSY_SECONDS = 5.0
LEFT = ("", "-journal", "-wal")
"""A database and what its writer leaves beside it in the midst of a change."""
Text = str | int | float | bool
"""Values that a message may have; Scrapyd writes texts."""


def queues(folder: Path) -> list[str]:
    """The files of queues, one for each project."""
    with folder_at(folder) as opened:
        names = [] if opened is None else os.listdir(opened)
    return sorted(name for name in names if name.endswith(".db") and name != JOBS)


def waiting(folder: Path, name: str, report: Report) -> list[Waiting]:
    """What waits in the queue of a project: highest priority first, in the order in which it came."""
    project = name.removesuffix(".db")
    message = f"CASE WHEN length(message) <= {LARGEST_MESSAGE} THEN message END"
    query = f"SELECT id, priority, {message} FROM {QUEUE} ORDER BY priority DESC, id"  # noqa: S608 - names of our own
    found = []
    for row, priority, said in _rows(folder, name, QUEUE, query, Kind.PENDING, report):
        try:
            found.append(_waiting(project, row, priority, said))
        except ValueError as problem:
            report.refuse(Kind.PENDING, f"{name} row {row}", problem)
    return found


def finished(folder: Path, report: Report) -> list[Finished]:
    """What a Scrapyd with ``SqliteJobStorage`` remembers to have ended."""
    shown = ", ".join(f"substr({each}, 1, 300)" for each in ("project", "spider", "job", "start_time", "end_time"))
    query = f"SELECT id, {shown} FROM {FINISHED} ORDER BY id"  # noqa: S608 - names of our own
    found = []
    for row, project, spider, job, start, end in _rows(folder, JOBS, FINISHED, query, Kind.FINISHED, report):
        if not all(isinstance(each, str) for each in (project, spider, job)):
            report.refuse(Kind.FINISHED, f"{JOBS} row {row}", "it has no project, spider or job")
            continue
        times = [local_moment(each) if isinstance(each, str) else None for each in (start, end)]
        found.append(Finished(key=(project, spider, job), started_at=times[0], ended_at=times[1]))
    return found


def holder(folder: Path, name: str) -> int | None:
    """A process that has this file open, as a Scrapyd that runs has its queues; None where none can be seen."""
    wanted = os.path.join(os.path.realpath(folder), name)
    for process in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if process.isdecimal() and int(process) != os.getpid() and wanted in _open_files(process):
            return int(process)
    return None


def _open_files(process: str) -> set[str]:
    place, found = f"/proc/{process}/fd", set()
    try:
        for each in os.listdir(place):
            found.add(os.readlink(f"{place}/{each}"))
    except OSError:
        pass  # it has ended, or is not ours to look at
    return found


def _rows(folder: Path, name: str, table: str, query: str, kind: Kind, report: Report) -> Iterator[tuple[Any, ...]]:
    """The rows of a table; what is wrong with the file is told, and what was read before that counts."""
    try:
        with _opened(folder, name) as database:
            if database is None:
                return
            known = database.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if known is None:
                return  # Scrapyd makes the table at its first use
            if known[0] != "table":
                report.refuse(kind, name, f"{table} is no table")
                return
            yield from database.execute(query)
    except sqlite3.Error as problem:
        report.refuse(kind, name, f"it cannot be read ({problem})")


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[sqlite3.Connection | None]:
    """The database, to be read only; None where there is no such file.

    One that its writer has left in the midst of a change can only be read once that is undone: then a copy is.
    """
    if not os.path.lexists(folder / name):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="weft-import-") as place, folder_at(folder) as opened:
        _check_plain(name, opened)
        database = _connected(folder / name, "ro")
        try:
            database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            database.close()
            left = [each for each in LEFT if _copied(opened, name + each, Path(place) / (name + each))]
            if left == [""]:
                raise
            database = _connected(Path(place) / name, "rw")
        with closing(database):
            yield database


def _connected(file: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS)
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _check_plain(name: str, folder: int | None) -> None:
    with file_at(name, folder) as file:
        if file is None:
            raise sqlite3.OperationalError("it is no file of its own: links are not followed")


def _copied(folder: int | None, name: str, target: Path) -> bool:
    """Copy a file, if it is there."""
    with file_at(name, folder) as file:
        if file is None:
            return False
        with open(file, "rb", closefd=False) as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy)
    return True


def _waiting(project: str, row: int, priority: Any, message: Any) -> Waiting:
    said = _message(message)
    spider, job = said.pop("name", None), said.pop("_job", None)
    settings, version = said.pop("settings", {}), said.pop("_version", None)
    if not isinstance(spider, str) or not isinstance(job, str):
        raise ValueError("its message must have name and _job, which are texts")
    if not isinstance(settings, dict) or not isinstance(version, str | None):
        raise ValueError("its message has settings or a _version of another type than Scrapyd's")
    if not isinstance(priority, int | float) or priority != priority:
        raise ValueError("its priority is no number")
    texts = {"settings": _texts(settings), "args": _texts(said)}
    return Waiting(row=row, project=project, spider=spider, job=job, priority=priority, version=version, **texts)


def _message(message: Any) -> dict[str, Any]:
    try:
        return msgspec.json.decode(message, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, TypeError, UnicodeDecodeError):
        raise ValueError(f"its message is no JSON object of {LARGEST_MESSAGE} bytes at most") from None


def _texts(values: dict[str, Any]) -> dict[str, str]:
    for name, value in values.items():
        if not isinstance(value, Text):
            raise ValueError(f"the value of {name[:100]!r} is no text")
    return {name: value if isinstance(value, str) else str(value) for name, value in values.items()}
