"""Looks at the file of a SQLite database before it is opened: one that is gone, damaged or cannot be written is refused
in one sentence, because SQLite would make a new one, or fail later in its own words."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from weft.errors import Misconfigured

BEGINNING = b"SQLite format 3\0"
"""How every file of SQLite begins."""
SMALL_BYTES = 64 << 20
"""A database of this size is looked through in less than a second."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
HOW = "docs/how-to/backup.md says how"


def path_of(url: str) -> Path | None:
    """The file that a URL names; None where it is not one of SQLite."""
    scheme, _, path = url.partition("sqlite:///")
    return Path(path) if not scheme and path else None


def is_there(path: Path) -> bool:
    """Whether it has anything in it: one that was only just opened for the first time is empty."""
    return path.exists() and path.stat().st_size > 0


def check(path: Path, folder: Path, *, thorough: bool = False) -> None:
    """Refuse a file that is missing where the data directory has data of one, or that cannot be used."""
    try:
        size = path.stat().st_size if path.exists() else None
    except OSError as problem:
        raise Misconfigured(f"the database {path} cannot be read ({problem.strerror})") from problem
    if not size:
        if left := _left(path, folder):
            state = "missing" if size is None else "empty"
            raise Misconfigured(
                f"the database {path} is {state}, but {left} is there, which belongs to one: stop weft and put it back "
                f"from {_backup(path)} ({HOW}), or move {path.parent} away to begin anew"
            )
        return
    _refuse_other(path)
    _refuse_locked_away(path)
    if damage := _damage(path, thorough=thorough and size <= SMALL_BYTES):
        raise damaged(path, damage)


def damaged(path: Path, why: object) -> Misconfigured:
    return Misconfigured(
        f"the database {path} is damaged ({why}): stop weft and put it back from {_backup(path)} ({HOW})"
    )


def remember(path: Path) -> None:
    """Leave word beside the database that there is one, for the day when it is gone."""
    with suppress(OSError):
        lock = Path(f"{path}-queue")
        if lock.exists() and not lock.stat().st_size:
            lock.write_text("a database of weft is beside this file\n", encoding="ascii")


def _left(path: Path, folder: Path) -> str:
    """What is there that only an earlier database can have left."""
    found = [Path(f"{path}{ending}") for ending in ("-queue", "-wal")]
    if path.parent == folder:
        found.append(folder / "keys")
        found += (folder / "blobs").glob("*")
    return next((str(each) for each in found if each.exists() and (each.is_dir() or each.stat().st_size)), "")


def _backup(path: Path) -> str:
    """A copy that lies beside it, if there is one."""
    own = {path, *(Path(f"{path}{ending}") for ending in ("-queue", "-wal", "-shm", "-journal"))}
    copies = [each for each in path.parent.glob(f"{path.name}*") if each not in own and each.is_file()]
    newest = max(copies, key=lambda each: each.stat().st_mtime, default=None)
    return "your backup" if newest is None else f"your backup, such as {newest}"


def _refuse_other(path: Path) -> None:
    try:
        with path.open("rb") as file:
            beginning = file.read(len(BEGINNING))
    except OSError as problem:
        raise Misconfigured(f"the database {path} cannot be read ({problem.strerror})") from problem
    if beginning != BEGINNING:
        raise Misconfigured(
            f"{path} is not a database of SQLite: if weft has made it, it is damaged: stop weft and put it back from "
            f"{_backup(path)} ({HOW}); else name another with WEFT_DATABASE"
        )


def _refuse_locked_away(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        why = "" if os.access(path.parent, os.W_OK) else "its directory is read-only for this user"
    except OSError as problem:
        why = problem.strerror or str(problem)
    if why:
        raise Misconfigured(
            f"the database {path} cannot be written ({why}): let this user write {path.parent}, or if its disk has "
            f"failed, put {_backup(path)} on another and name that with --data-dir ({HOW})"
        )


def _damage(path: Path, *, thorough: bool) -> str:
    """What is wrong with it, as far as a short look tells; nothing where it is only in use."""
    try:
        with closing(sqlite3.connect(path, timeout=1)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not thorough:
                return ""
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            return "" if found == "ok" else " ".join(found.split())
    except sqlite3.DatabaseError as problem:
        return str(problem) if (problem.sqlite_errorcode & 0xFF) in DAMAGED else ""
