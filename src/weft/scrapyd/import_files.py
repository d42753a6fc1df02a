"""Read the eggs, logs, items and queue databases of a Scrapyd, without ever writing to them."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from weft.access.model import NAME
from weft.clock import Moment, moment
from weft.errors import Invalid
from weft.projects.model import version_key
from weft.scrapyd.model import FinishedJob, ImportKind, ImportReport, JobKey, ParsedLog, QueuedJob, check_id
from weft.untrusted_files import file_at, folder_at

HEAD, TAIL = 64 << 10, 512 << 10
OPENED, CLOSING, DUMPED = "Spider opened", "Spider closed (", "Dumping Scrapy stats:"
CLOSED = re.compile(r"Spider closed \(([^()\n]{1,200})\)")
LOG_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? \[", re.MULTILINE | re.ASCII)
STAT = re.compile(r"^[ {]\s{0,8}'([^'\\\n]{1,200})': (.{1,500}?)[,}]$", re.MULTILINE)
NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,20})?", re.ASCII)
WORD = re.compile(r"'([^'\\]*)'")
TIME = re.compile(r"datetime\.datetime\((\d{1,4}(?:, \d{1,6}){2,6})(?:, tzinfo=datetime\.timezone\.utc)?\)", re.ASCII)


def parse_log(file: int) -> ParsedLog:
    """What the log that is open as ``file`` tells."""
    found = os.fstat(file)
    head = os.pread(file, HEAD, 0).decode("utf-8", "replace")
    tail = os.pread(file, TAIL, max(0, found.st_size - TAIL)).decode("utf-8", "replace")
    stats = _stats(tail)
    first, last = LOG_LINE.search(head), _last(tail)
    return ParsedLog(
        size=found.st_size,
        changed_at=found.st_mtime_ns // 1000,
        started_at=_utc(stats.get("start_time")) or (local_moment(first[1]) if first else None),
        ended_at=_utc(stats.get("finish_time")) or (local_moment(last) if last else None),
        finish_reason=_reason(tail, stats),
        stats=stats,
    )


def _reason(tail: str, stats: dict[str, Any]) -> str | None:
    """Why the spider was closed; None where it was not, or was opened again since under the same name."""
    if tail.rfind(OPENED) > max(tail.rfind(CLOSING), tail.rfind(DUMPED)):
        return None
    closed, dumped = CLOSED.findall(tail), stats.get("finish_reason")
    return str(closed[-1]) if closed else dumped if isinstance(dumped, str) else None


def _last(tail: str) -> str | None:
    found = None
    for match in LOG_LINE.finditer(tail):
        found = match[1]
    return found


def _stats(tail: str) -> dict[str, Any]:
    """What Scrapy has dumped last: one value a line, of which those are read that JSON can say."""
    _, dumped, text = tail.rpartition(DUMPED)
    if not dumped:
        return {}
    after = LOG_LINE.search(text)
    text = text[: after.start()] if after else text
    read = ((name, _value(value)) for name, value in STAT.findall(text))
    return {name: value for name, value in read if value is not None}


def _value(text: str) -> int | float | str | None:
    if number := NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    if word := WORD.fullmatch(text):
        return word[1].replace("\0", "")
    if time := TIME.fullmatch(text):
        return _iso([int(each) for each in time[1].split(", ")])
    return None


def _iso(parts: list[int]) -> str | None:
    """Scrapy tells times in UTC."""
    try:
        return datetime(*parts, tzinfo=UTC).isoformat()  # type: ignore[arg-type,misc]
    except ValueError:
        return None


def _utc(text: object) -> Moment | None:
    try:
        return _is_plausible(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def local_moment(text: str) -> Moment | None:
    """The moment of a time without a zone, which is that of this machine: as Scrapy and Scrapyd write it."""
    try:
        return _is_plausible(datetime.fromisoformat(text).astimezone())
    except (ValueError, OverflowError, OSError):
        return None


def _is_plausible(when: datetime) -> Moment | None:
    return moment(when) if 1990 <= when.year <= 2200 else None


QUEUE, FINISHED = "spider_queue", "finished_jobs"
JOBS = "jobs.db"
LARGEST_MESSAGE = 1_000_000
BUSY_SECONDS = 5.0
LEFT_OUT = ("", "-journal", "-wal")
"""A database and what its writer leaves beside it in the midst of a change."""
Text = str | int | float | bool
"""Values that a message may have; Scrapyd writes texts."""


def queues(folder: Path) -> list[str]:
    """The files of queues, one for each project."""
    with folder_at(folder) as opened:
        names = [] if opened is None else os.listdir(opened)
    return sorted(name for name in names if name.endswith(".db") and name != JOBS)


def queued_jobs(folder: Path, name: str, report: ImportReport) -> list[QueuedJob]:
    """What waits in the queue of a project: highest priority first, in the order in which it came."""
    project = name.removesuffix(".db")
    message = f"CASE WHEN length(message) <= {LARGEST_MESSAGE} THEN message END"
    query = f"SELECT id, priority, {message} FROM {QUEUE} ORDER BY priority DESC, id"  # noqa: S608 - names of our own
    found = []
    for row, priority, said in _rows(folder, name, QUEUE, query, ImportKind.PENDING, report):
        try:
            found.append(_queued_job(project, row, priority, said))
        except ValueError as problem:
            report.refuse(ImportKind.PENDING, f"{name} row {row}", problem)
    return found


def finished_jobs(folder: Path, report: ImportReport) -> list[FinishedJob]:
    """What a Scrapyd with ``SqliteJobStorage`` remembers to have ended."""
    shown = ", ".join(f"substr({each}, 1, 300)" for each in ("project", "spider", "job", "start_time", "end_time"))
    query = f"SELECT id, {shown} FROM {FINISHED} ORDER BY id"  # noqa: S608 - names of our own
    found = []
    for row, project, spider, job, start, end in _rows(folder, JOBS, FINISHED, query, ImportKind.FINISHED, report):
        if not all(isinstance(each, str) for each in (project, spider, job)):
            report.refuse(ImportKind.FINISHED, f"{JOBS} row {row}", "it has no project, spider or job")
            continue
        times = [local_moment(each) if isinstance(each, str) else None for each in (start, end)]
        found.append(FinishedJob(key=(project, spider, job), started_at=times[0], ended_at=times[1]))
    return found


def lock_holder(folder: Path, name: str) -> int | None:
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


def _rows(
    folder: Path, name: str, table: str, query: str, kind: ImportKind, report: ImportReport
) -> Iterator[tuple[Any, ...]]:
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
            left = [each for each in LEFT_OUT if _copied(opened, name + each, Path(place) / (name + each))]
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


def _queued_job(project: str, row: int, priority: Any, message: Any) -> QueuedJob:
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
    return QueuedJob(row=row, project=project, spider=spider, job=job, priority=priority, version=version, **texts)


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


LONGEST_SPIDER = 200
ENDINGS = {ImportKind.EGG: ".egg", ImportKind.LOG: ".log", ImportKind.ITEMS: ".jl"}
PASSED_OVER = (".json",)
"""Endings of files that other tools write beside logs."""
ALLOWED = "it must be letters, digits, '.', '_' or '-', at most 100"
NOT_PLAIN = "it is no plain file: links are not followed"

FolderEntry = tuple[str, int, Moment]
"""Name, mode and when it was last written to."""


def egg_files(top: Path, only: str | None, report: ImportReport) -> dict[str, list[str]]:
    """The versions of each project, or of one, the oldest first."""
    found: dict[str, list[str]] = {}
    with folder_at(top) as folder:
        for project in _projects(folder, only, ImportKind.EGG, report):
            with folder_at(project, folder) as inner:
                files = [name for name, _ in _files(inner, project, ImportKind.EGG, report)]
            if files:
                found[project] = sorted((each.removesuffix(".egg") for each in files), key=version_key)
    return found


def job_files(top: Path, only: str | None, kind: ImportKind, report: ImportReport) -> Iterator[tuple[JobKey, Moment]]:
    """The logs or items of jobs, of all projects or of one, with when each was last written to."""
    with folder_at(top) as folder:
        for project in _projects(folder, only, kind, report):
            with folder_at(project, folder) as middle:
                for spider in _folders(_folder_entries(middle), project, kind, report):
                    with folder_at(spider, middle) as inner:
                        for name, changed_at in _files(inner, f"{project}/{spider}", kind, report):
                            yield (project, spider, name.removesuffix(ENDINGS[kind])), changed_at


@contextmanager
def open_plain_file(top: Path | None, kind: ImportKind, *names: str) -> Iterator[int | None]:
    """A descriptor of the file of that name in these folders; None where it is not there any more."""
    *folders, name = names
    with ExitStack() as stack:
        place = None if top is None else stack.enter_context(folder_at(top))
        for each in folders:
            place = None if place is None else stack.enter_context(folder_at(each, place))
        yield None if place is None else stack.enter_context(file_at(name + ENDINGS[kind], place))


def problem_of(key: JobKey) -> str | None:
    """Why a job of this project, spider and name cannot be one of weft's; None where it can."""
    project, spider, job = key
    if not NAME.fullmatch(project):
        return f"its project has a name that is not allowed: {ALLOWED}"
    if not 0 < len(spider) <= LONGEST_SPIDER or not spider.isprintable():
        return f"the name of its spider must be 1 to {LONGEST_SPIDER} characters that print"
    try:
        check_id(job)
        job.encode()
    except (Invalid, UnicodeEncodeError) as problem:
        return str(problem)
    return None


def merge_jobs(
    jobs: dict[JobKey, FinishedJob], kind: ImportKind, found: Iterator[tuple[JobKey, Moment]], report: ImportReport
) -> None:
    """Note at each job that it has a log, or items."""
    for key, changed_at in found:
        if (problem := problem_of(key)) is not None:
            report.refuse(kind, printable("/".join(key) + ENDINGS[kind]), problem)
            continue
        job = jobs.setdefault(key, FinishedJob(key=key))
        job.has_log, job.has_items = job.has_log or kind is ImportKind.LOG, job.has_items or kind is ImportKind.ITEMS
        job.changed_at = max(job.changed_at, changed_at)


def printable(name: str) -> str:
    """A name of a file as a text that can be stored and printed."""
    return name.encode("utf-8", "backslashreplace").decode()


def _projects(folder: int | None, only: str | None, kind: ImportKind, report: ImportReport) -> Iterator[str]:
    """The folders of projects whose names are allowed; those of others than ``only`` are passed over."""
    for project in _folders([each for each in _folder_entries(folder) if only in (None, each[0])], "", kind, report):
        if NAME.fullmatch(project):
            yield project
        else:
            report.refuse(kind, printable(project), f"this name of a project is not allowed: {ALLOWED}")


def _folders(entries: Sequence[FolderEntry], above: str, kind: ImportKind, report: ImportReport) -> list[str]:
    found = []
    for name, mode, _ in entries:
        if stat.S_ISDIR(mode):
            found.append(name)
        elif not name.startswith(".") and not name.endswith(PASSED_OVER):
            report.refuse(kind, printable(f"{above}/{name}".lstrip("/")), "it is no folder: links are not followed")
    return found


def _files(folder: int | None, above: str, kind: ImportKind, report: ImportReport) -> list[tuple[str, Moment]]:
    found = []
    for name, mode, changed_at in _folder_entries(folder):
        if name.startswith(".") or name.endswith(PASSED_OVER):
            continue
        if not stat.S_ISREG(mode):
            report.refuse(kind, printable(f"{above}/{name}"), NOT_PLAIN)
        elif not name.endswith(ENDINGS[kind]):
            report.refuse(kind, printable(f"{above}/{name}"), f"its name does not end with {ENDINGS[kind]}")
        else:
            found.append((name, changed_at))
    return found


def _folder_entries(folder: int | None) -> list[FolderEntry]:
    """What lies in a folder, by name."""
    if folder is None:
        return []
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append((entry.name, seen.st_mode, seen.st_mtime_ns // 1000))
    return sorted(found)
