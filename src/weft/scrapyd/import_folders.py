"""Finds the eggs, logs and items of a Scrapyd: only plain files in plain folders, whatever else lies there.

Whoever imports may read more than the spiders that could write there, so no link is followed on the way to a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from weft.access.model import NAME
from weft.clock import Moment
from weft.errors import Invalid
from weft.foreign_files import file_at, folder_at
from weft.projects.version_order import version_key
from weft.scrapyd.import_model import Finished, JobKey, Kind, Report
from weft.scrapyd.model import check_id

LONGEST_SPIDER = 200
ENDINGS = {Kind.EGG: ".egg", Kind.LOG: ".log", Kind.ITEMS: ".jl"}
PASSED_OVER = (".json",)
"""Endings of files that other tools write beside logs."""
ALLOWED = "it must be letters, digits, '.', '_' or '-', at most 100"
NOT_PLAIN = "it is no plain file: links are not followed"

Entry = tuple[str, int, Moment]
"""Name, mode and when it was last written to."""


def eggs(top: Path, only: str | None, report: Report) -> dict[str, list[str]]:
    """The versions of each project, or of one, the oldest first."""
    found: dict[str, list[str]] = {}
    with folder_at(top) as folder:
        for project in _projects(folder, only, Kind.EGG, report):
            with folder_at(project, folder) as inner:
                files = [name for name, _ in _files(inner, project, Kind.EGG, report)]
            if files:
                found[project] = sorted((each.removesuffix(".egg") for each in files), key=version_key)
    return found


def files_of_jobs(top: Path, only: str | None, kind: Kind, report: Report) -> Iterator[tuple[JobKey, Moment]]:
    """The logs or items of jobs, of all projects or of one, with when each was last written to."""
    with folder_at(top) as folder:
        for project in _projects(folder, only, kind, report):
            with folder_at(project, folder) as middle:
                for spider in _folders(_entries(middle), project, kind, report):
                    with folder_at(spider, middle) as inner:
                        for name, changed_at in _files(inner, f"{project}/{spider}", kind, report):
                            yield (project, spider, name.removesuffix(ENDINGS[kind])), changed_at


@contextmanager
def opened(top: Path | None, kind: Kind, *names: str) -> Iterator[int | None]:
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


def merged(jobs: dict[JobKey, Finished], kind: Kind, found: Iterator[tuple[JobKey, Moment]], report: Report) -> None:
    """Note at each job that it has a log, or items."""
    for key, changed_at in found:
        if (problem := problem_of(key)) is not None:
            report.refuse(kind, shown("/".join(key) + ENDINGS[kind]), problem)
            continue
        job = jobs.setdefault(key, Finished(key=key))
        job.has_log, job.has_items = job.has_log or kind is Kind.LOG, job.has_items or kind is Kind.ITEMS
        job.changed_at = max(job.changed_at, changed_at)


def shown(name: str) -> str:
    """A name of a file as a text that can be stored and printed."""
    return name.encode("utf-8", "backslashreplace").decode()


def _projects(folder: int | None, only: str | None, kind: Kind, report: Report) -> Iterator[str]:
    """The folders of projects whose names are allowed; those of others than ``only`` are passed over."""
    for project in _folders([each for each in _entries(folder) if only in (None, each[0])], "", kind, report):
        if NAME.fullmatch(project):
            yield project
        else:
            report.refuse(kind, shown(project), f"this name of a project is not allowed: {ALLOWED}")


def _folders(entries: Sequence[Entry], above: str, kind: Kind, report: Report) -> list[str]:
    found = []
    for name, mode, _ in entries:
        if stat.S_ISDIR(mode):
            found.append(name)
        elif not name.startswith(".") and not name.endswith(PASSED_OVER):
            report.refuse(kind, shown(f"{above}/{name}".lstrip("/")), "it is no folder: links are not followed")
    return found


def _files(folder: int | None, above: str, kind: Kind, report: Report) -> list[tuple[str, Moment]]:
    found = []
    for name, mode, changed_at in _entries(folder):
        if name.startswith(".") or name.endswith(PASSED_OVER):
            continue
        if not stat.S_ISREG(mode):
            report.refuse(kind, shown(f"{above}/{name}"), NOT_PLAIN)
        elif not name.endswith(ENDINGS[kind]):
            report.refuse(kind, shown(f"{above}/{name}"), f"its name does not end with {ENDINGS[kind]}")
        else:
            found.append((name, changed_at))
    return found


def _entries(folder: int | None) -> list[Entry]:
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
