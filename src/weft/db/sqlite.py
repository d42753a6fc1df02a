"""SQLite as a database for several processes: durable, and one writer at a time without sleeping.

Each process has one writer thread. It takes all transactions that wait and makes them one commit, so that one flush to
disk serves many (group commit). Processes queue on a file lock beside the database: the kernel wakes the next one at
once, where SQLite's own busy handler would sleep in steps of up to 100 ms.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, pool
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from weft.db.database import Transaction, Unit, run_effects
from weft.db.sqlite_file import DAMAGED
from weft.errors import DatabaseDamaged, DatabaseDown, Invalid, Misconfigured

T = TypeVar("T")

MOST_JOINED = 500
"""How many transactions one commit may join, so that none waits for long."""

LONGEST_COMMIT_SECONDS = 0.05
LEAST_FREE_BYTES = 2 << 20
"""With less room on its disk than that, the next large submit cannot be written."""

Waiting = tuple[Unit[Any], "Future[Any]"]


class Spoiled(Exception):
    """One unit of work has ended the transaction that it shared with others."""


class Batch:
    """The units of work of one commit, and what became of each."""

    def __init__(self) -> None:
        self.taken: list[Waiting] = []
        self.done: dict[Future[Any], tuple[Any, Transaction]] = {}
        self.failed: dict[Future[Any], Exception] = {}

    def fail(self, problem: Exception) -> None:
        self.done.clear()
        self.failed = {future: self.failed.get(future, problem) for _, future in self.taken}

    def undone(self) -> list[Waiting]:
        """Take out all that has not failed by itself, to be run again."""
        self.done.clear()
        return [each for each in self.taken if each[1] not in self.failed]

    def settle(self) -> None:
        """Tell everybody. Effects come first, so that who learns of a commit finds them under way."""
        for _, tx in self.done.values():
            run_effects(tx.effects)
        for future, (value, _) in self.done.items():
            if future.set_running_or_notify_cancel():
                future.set_result(value)
        for future, problem in self.failed.items():
            if future.set_running_or_notify_cancel():
                future.set_exception(_translated(problem))


class SqliteEngines:
    """One writer thread and a few readers on one file."""

    def __init__(self, url: str) -> None:
        path = sqlite_path(url)
        self._lock_file, self._folder = _create_private(path), path.parent
        self.engine = _engine(path)
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="weft-db-read")
        self._glancing, self._glances = threading.Lock(), ExitStack()
        self._window: Connection | None = None
        self._writer = threading.Thread(target=self._write_forever, name="weft-db-write", daemon=True)
        self._writer.start()

    def submit(self, work: Unit[T], *, urgent: bool = False) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.put((work, future))
        return future

    def submit_read(self, work: Unit[T]) -> Future[T]:
        return self._readers.submit(self._read, work)

    def glance(self, work: Unit[T]) -> T:
        """In the caller's thread, on a connection that is kept open."""
        with self._glancing:
            try:
                if self._window is None:
                    self._window = self._glances.enter_context(self.engine.connect())
                return _looked(self._window, work)
            except DatabaseError as problem:
                raise _translated(problem) from problem

    def check_room(self) -> None:
        """What is small may fit into the file that is there when nothing else does, so room is counted besides."""
        room = os.statvfs(self._folder)
        free = room.f_frsize * (room.f_bfree if os.geteuid() == 0 else room.f_bavail)
        if room.f_blocks and free < LEAST_FREE_BYTES:
            raise DatabaseDown(f"its disk is full: {free >> 10} KiB are left", is_full=True)

    def close(self) -> None:
        self._waiting.put(None)
        self._writer.join()
        self._readers.shutdown()
        self._glances.close()
        self.engine.dispose()
        os.close(self._lock_file)

    def _read(self, work: Unit[T]) -> T:
        try:
            with self.engine.connect() as connection:
                return _looked(connection, work)
        except DatabaseError as problem:
            raise _translated(problem) from problem

    def _write_forever(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = Batch()
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                self._commit_together(batch, first)
            except Spoiled:
                for each in batch.undone():
                    self._waiting.put(each)
            except Exception as problem:  # the commit itself failed: nobody's work is kept
                batch.fail(problem)
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)
            batch.settle()
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Answer whoever came too late, so that nobody waits for ever."""
        batch = Batch()
        while (late := self._next()) is not None:
            batch.taken.append(late)
        batch.fail(DatabaseDown("this process has closed it"))
        batch.settle()

    def _commit_together(self, batch: Batch, first: Waiting) -> None:
        """Run ``first`` and whoever else waits in one commit."""
        batch.taken.append(first)
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                self._run_waiting(batch, connection, first)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    def _run_waiting(self, batch: Batch, connection: Connection, first: Waiting) -> None:
        deadline = time.monotonic() + LONGEST_COMMIT_SECONDS
        turn: Waiting | None = first
        while turn is not None:
            work, future = turn
            tx = Transaction(connection)
            connection.exec_driver_sql("SAVEPOINT one")
            try:
                value = work(tx)
            except Exception as problem:  # this one is rolled back alone
                batch.failed[future] = problem
                _roll_back_one(connection)
            else:
                batch.done[future] = (value, tx)
            connection.exec_driver_sql("RELEASE one")
            turn = self._next() if len(batch.taken) < MOST_JOINED and time.monotonic() < deadline else None
            if turn is not None:
                batch.taken.append(turn)

    def _next(self) -> Waiting | None:
        try:
            taken = self._waiting.get_nowait()
        except queue.Empty:
            return None
        if taken is None:  # closing: leave the mark for the loop
            self._waiting.put(None)
        return taken


def _looked(connection: Connection, work: Unit[T]) -> T:
    """What ``work`` finds in one state of the database."""
    connection.exec_driver_sql("BEGIN")
    try:
        return work(Transaction(connection))
    finally:
        connection.exec_driver_sql("ROLLBACK")


def sqlite_path(url: str) -> Path:
    """The file that a ``sqlite:///`` URL names; three slashes are relative, four absolute."""
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise Invalid("database", url, "a SQLite URL is sqlite:/// and the path of a file")
    return Path(url.removeprefix("sqlite:///"))


def _create_private(path: Path) -> int:
    """The file holds everything, so only its owner may read it. Returns the file beside it that processes queue at."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return os.open(f"{path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise Misconfigured(
            f"the database {path} cannot be opened ({problem.strerror}); name another place with --data-dir"
        ) from problem


def _engine(path: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=pool.QueuePool,
        pool_size=4,
        connect_args={"check_same_thread": False, "isolation_level": None, "cached_statements": 512},
        skip_autocommit_rollback=True,
        isolation_level="AUTOCOMMIT",
    )

    @event.listens_for(engine, "connect")
    def make_durable(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    return engine


def _roll_back(connection: Connection) -> None:
    try:
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        pass  # no transaction was open: BEGIN itself had failed


def _roll_back_one(connection: Connection) -> None:
    try:
        connection.exec_driver_sql("ROLLBACK TO one")
    except DBAPIError as problem:  # on a full disk, for one, SQLite itself ends the whole transaction
        raise Spoiled from problem


def down(problem: DBAPIError) -> DatabaseDown:
    """Why the file cannot be used."""
    code = getattr(problem.orig, "sqlite_errorcode", 0) & 0xFF
    if code in DAMAGED:
        return DatabaseDamaged(problem.orig)
    return DatabaseDown(problem.orig, is_full=code == sqlite3.SQLITE_FULL)


def _translated(problem: Exception) -> Exception:
    """A file that cannot be used is a database that does not answer; a row that is refused is the caller's matter."""
    if isinstance(problem, DatabaseError) and type(problem) in (OperationalError, DatabaseError):
        return down(problem)
    return problem
