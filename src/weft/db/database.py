"""One URL, and a transaction that is one function.

``await db.transact(work)`` runs ``work(tx)`` whole on a database thread and returns after the commit. SQLite joins the
transactions that wait into one commit (``db/sqlite.py``); PostgreSQL and MariaDB run them side by side on a small pool
(``db/server.py``). A transaction may be run again from its start where the database asks for that (deadlock, lost race,
lost connection), so ``work`` has no effect of its own outside of ``tx``: those go through ``tx.after_commit``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Executable, delete, insert
from sqlalchemy.engine import CursorResult

from weft.db import schema
from weft.errors import DatabaseDown, Invalid

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_TURN_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others wait for it. A database thread gives it up at each question
to the database, several times in a transaction; with the usual 5 ms a busy event loop would make that the longest part.
"""


class Raced(Exception):
    """What was read has changed before it could be written: the transaction is run again from its start."""


class Transaction:
    """A connection with an open transaction, and what to do once it is committed."""

    __slots__ = ("connection", "effects")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.effects: list[Callable[[], None]] = []

    def execute(
        self, statement: Executable, values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[Any]:
        return self.connection.execute(statement, values)

    def rows(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return self.connection.execute(statement, values).fetchall()

    def value(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Any:
        """The first column of the first row, or None."""
        row = self.connection.execute(statement, values).first()
        return None if row is None else row[0]

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Call ``effect`` once this is durable; never for what was rolled back. It must not wait."""
        self.effects.append(effect)


Unit = Callable[[Transaction], T]


class Engines(Protocol):
    """How one kind of database runs units of work."""

    engine: Engine

    def submit(self, work: Unit[T], *, urgent: bool = False) -> Future[T]: ...

    def submit_read(self, work: Unit[T]) -> Future[T]: ...

    def glance(self, work: Unit[T]) -> T | Future[T]: ...

    def check_room(self) -> None:
        """Raise ``DatabaseDown`` where the disk under it is known to be full."""

    def close(self) -> None: ...


class Database:
    """Where everything is kept."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._closed = False

    @property
    def engine(self) -> Engine:
        return self._engines.engine

    async def transact(self, work: Unit[T], *, urgent: bool = False) -> T:
        """Run ``work`` in one transaction; return once it is committed.

        An ``urgent`` one (a heartbeat) does not stand in line behind the others where the database allows it. ``work``
        sees the context of who calls this (``contextvars``), such as who asked for the change.
        """
        self._check_open()
        context = copy_context()
        return await asyncio.wrap_future(self._engines.submit(lambda tx: context.run(work, tx), urgent=urgent))

    async def read(self, work: Unit[T]) -> T:
        """Run ``work`` on one consistent state of the database; it must not write."""
        self._check_open()
        return await asyncio.wrap_future(self._engines.submit_read(work))

    async def glance(self, work: Unit[T]) -> T:
        """A read that is short whatever the database holds: SQLite does it at once, sooner than a thread would begin.

        Nothing else happens meanwhile, so it must look at no more than a few pages. A server may answer each statement
        from another state.
        """
        self._check_open()
        seen = self._engines.glance(work)
        return await asyncio.wrap_future(seen) if isinstance(seen, Future) else seen

    async def check_writable(self) -> None:
        """Raise ``DatabaseDown`` where nothing can be written, as on a full disk. What this writes is gone after it."""
        await asyncio.to_thread(self._engines.check_room)
        await self.transact(_write_something)

    def close(self) -> None:
        """Finish what was begun and give back every connection. May be called twice."""
        if not self._closed:
            self._closed = True
            self._engines.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseDown("this process has closed it")


def open_database(url: str, *, pool: int = 4) -> Database:
    """Open by URL; the scheme picks the kind. Nothing is created or migrated yet."""
    sys.setswitchinterval(LONGEST_TURN_SECONDS)
    scheme = url.split(":", 1)[0]
    if scheme == "sqlite":
        from weft.db.sqlite import SqliteEngines

        return Database(SqliteEngines(url))
    if scheme in ("postgresql", "mysql", "mariadb"):
        from weft.db.server import ServerEngines

        return Database(ServerEngines(url, pool=pool))
    raise Invalid("database", url, "it must start with sqlite:///, postgresql:// or mysql://")


def _write_something(tx: Transaction) -> None:
    """A row that nobody sees; the commit is written and flushed as any other."""
    row = {"reader": f"probe:{os.urandom(8).hex()}", "position": ""}
    tx.execute(insert(schema.cursors).values(row))
    tx.execute(delete(schema.cursors).where(schema.cursors.c.reader == row["reader"]))


def run_effects(effects: Iterable[Callable[[], None]]) -> None:
    """Call each; what is committed stays so, and nobody may take it for failed because a bell did not ring."""
    for effect in effects:
        try:
            effect()
        except Exception:
            log.exception("an effect of a committed transaction failed")
