"""SQLite as a database for several processes: durable, and one writer at a time without sleeping.

Each process has one writer thread. It takes all transactions that wait and makes them one commit, so that one flush to
disk serves many (group commit). Processes queue on a file lock beside the database: the kernel wakes the next one at
once, where SQLite's own busy handler would sleep in steps of up to 100 ms.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, pool
from sqlalchemy.exc import DBAPIError

from weft.db.database import Transaction, Unit, run_effects
from weft.errors import DatabaseDown, Invalid

T = TypeVar("T")

MOST_JOINED = 500
"""How many transactions one commit may join, so that none waits for long."""

LONGEST_COMMIT_SECONDS = 0.05

Waiting = tuple[Unit[Any], "Future[Any]"]


class SqliteEngines:
    """One writer thread and a few readers on one file."""

    def __init__(self, url: str) -> None:
        path = sqlite_path(url)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create_private(path)
        self.engine = _engine(path)
        self._lock_file = os.open(f"{path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="weft-db-read")
        self._writer = threading.Thread(target=self._write_forever, name="weft-db-write", daemon=True)
        self._writer.start()

    def submit(self, work: Unit[T], *, urgent: bool = False) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.put((work, future))
        return future

    def submit_read(self, work: Unit[T]) -> Future[T]:
        return self._readers.submit(self._read, work)

    def close(self) -> None:
        self._waiting.put(None)
        self._writer.join()
        self._readers.shutdown()
        self.engine.dispose()
        os.close(self._lock_file)

    def _read(self, work: Unit[T]) -> T:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            try:
                return work(Transaction(connection))
            finally:
                connection.exec_driver_sql("ROLLBACK")

    def _write_forever(self) -> None:
        connection = self.engine.connect()
        while (first := self._waiting.get()) is not None:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                settle = self._commit_together(connection, first)
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)
            for resolve in settle:
                resolve()
        connection.close()

    def _commit_together(self, connection: Connection, first: Waiting) -> list[Callable[[], None]]:
        """Run ``first`` and whoever else waits in one commit; return how to tell each its outcome."""
        done: list[tuple[Future[Any], Any, Transaction]] = []
        failed: list[Callable[[], None]] = []
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            self._run_waiting(connection, first, done, failed)
            connection.exec_driver_sql("COMMIT")
        except Exception as problem:
            _roll_back(connection)
            down = DatabaseDown(getattr(problem, "orig", problem))
            pending = [future for future, _, _ in done] or [first[1]]
            return [*failed, *(_fail(future, down) for future in pending if not future.done())]
        return [*failed, *(_succeed(future, value, tx) for future, value, tx in done)]

    def _run_waiting(
        self,
        connection: Connection,
        first: Waiting,
        done: list[tuple[Future[Any], Any, Transaction]],
        failed: list[Callable[[], None]],
    ) -> None:
        deadline = time.monotonic() + LONGEST_COMMIT_SECONDS
        turn: Waiting | None = first
        while turn is not None:
            work, future = turn
            tx = Transaction(connection)
            connection.exec_driver_sql("SAVEPOINT one")
            try:
                done.append((future, work(tx), tx))
                connection.exec_driver_sql("RELEASE one")
            except Exception as problem:
                connection.exec_driver_sql("ROLLBACK TO one")
                connection.exec_driver_sql("RELEASE one")
                failed.append(_fail(future, problem))
            turn = self._next() if len(done) < MOST_JOINED and time.monotonic() < deadline else None

    def _next(self) -> Waiting | None:
        try:
            taken = self._waiting.get_nowait()
        except queue.Empty:
            return None
        if taken is None:  # closing: leave the mark for the loop
            self._waiting.put(None)
        return taken


def sqlite_path(url: str) -> Path:
    """The file that a ``sqlite:///`` URL names; three slashes are relative, four absolute."""
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise Invalid("database", url, "a SQLite URL is sqlite:/// and the path of a file")
    return Path(url.removeprefix("sqlite:///"))


def _create_private(path: Path) -> None:
    """The file holds everything, so only its owner may read it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as problem:
        raise Invalid("database", str(path), f"the file cannot be opened: {problem.strerror}") from problem


def _engine(path: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=pool.QueuePool,
        pool_size=4,
        connect_args={"check_same_thread": False, "isolation_level": None, "cached_statements": 512},
        skip_autocommit_rollback=True,
    ).execution_options(isolation_level="AUTOCOMMIT")

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


def _fail(future: Future[Any], problem: BaseException) -> Callable[[], None]:
    def tell() -> None:
        if future.set_running_or_notify_cancel():
            future.set_exception(problem)

    return tell


def _succeed(future: Future[Any], value: Any, tx: Transaction) -> Callable[[], None]:
    def tell() -> None:
        run_effects(tx.effects)
        if future.set_running_or_notify_cancel():
            future.set_result(value)

    return tell
