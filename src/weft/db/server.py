"""PostgreSQL and MariaDB: a small pool of threads with a connection each, deadlines, and shared short reads."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from traceback import clear_frames
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from weft.db.database import Raced, Transaction, Unit, run_effects
from weft.errors import AdapterMissing, DatabaseDown, Invalid

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class Watch:
    """Shuts down a connection that is in use for longer than allowed; who waits on it then finds it lost.

    No driver has such a deadline: a statement's limit is kept by the server, which may be out of reach, and the
    system's own find a peer that is gone, but not one that acknowledges packets and never answers.
    """

    def __init__(self, engine: Engine, line_of: Callable[[Any], int], seconds: float) -> None:
        """``line_of`` tells the file of a driver's connection; ``seconds`` count for threads that ``hurry``."""
        self._line_of, self._seconds = line_of, seconds
        self._in_use: dict[int, tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._hurried = threading.local()
        self._closed = threading.Event()
        event.listen(engine, "connect", self._begin, insert=True)  # what prepares the connection talks to it
        event.listen(engine, "checkout", self._begin)
        event.listen(engine, "checkin", self._end)
        event.listen(engine, "close", self._end)
        threading.Thread(target=self._look_forever, name="weft-db-watch", daemon=True).start()

    def hurry(self) -> None:
        """From now on what this thread does has the deadline. Other threads may be changing the schema."""
        self._hurried.now = True

    def close(self) -> None:
        self._closed.set()

    def _begin(self, connection: Any, *_: Any) -> None:
        if getattr(self._hurried, "now", False):
            with self._lock:
                self._in_use[threading.get_ident()] = (time.monotonic() + self._seconds, connection)

    def _end(self, *_: Any) -> None:
        with self._lock:
            self._in_use.pop(threading.get_ident(), None)

    def _look_forever(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                overdue = [thread for thread, (deadline, _) in self._in_use.items() if deadline < now]
                for thread in overdue:
                    self._shut_down(self._in_use.pop(thread)[1])

    def _shut_down(self, connection: Any) -> None:
        log.warning("the database did not answer in time", extra={"seconds": self._seconds})
        try:
            with socket.socket(fileno=os.dup(self._line_of(connection))) as line:
                line.shutdown(socket.SHUT_RDWR)
        except Exception as problem:  # it was closed meanwhile, and each driver says so in its own way
            log.debug("its connection is closed already", extra={"why": str(problem)})


T = TypeVar("T")

MOST_AT_ONCE = 2
"""How many threads read, so that others stay free for what takes longer."""
MOST_TOGETHER = 32

Waiting = tuple[Unit[Any], "Future[Any]"]
Look = Callable[[Unit[None]], None]


class ShortReads:
    """What waits to be read; ``look`` runs a unit of work on a connection, once more where that was lost."""

    def __init__(self, threads: ThreadPoolExecutor, look: Look) -> None:
        self._threads, self._look = threads, look
        self._waiting: deque[Waiting] = deque()
        self._lock, self._reading = threading.Lock(), 0

    def submit(self, work: Unit[T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((work, future))
            begin = self._reading < MOST_AT_ONCE
            self._reading += begin
        if begin:
            self._threads.submit(self._read_all)
        return future

    def _read_all(self) -> None:
        while lot := self._next():
            try:
                self._look(lambda tx, lot=lot: _read(tx, lot))  # type: ignore[misc]
            except Exception as problem:
                for _, future in lot:
                    if not future.done():
                        future.set_exception(problem)

    def _next(self) -> list[Waiting]:
        with self._lock:
            lot = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))]
            self._reading -= not lot
        return lot


def _read(tx: Transaction, lot: Sequence[Waiting]) -> None:
    """Read for each that has no answer yet; what is wrong with the connection is wrong for all of them."""
    for work, future in lot:
        if future.done() or not (future.running() or future.set_running_or_notify_cancel()):
            continue
        try:
            found = work(tx)
        except DBAPIError:
            raise
        except Exception as problem:
            future.set_exception(problem)
        else:
            future.set_result(found)


DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mariadb+pymysql", "mariadb": "mariadb+pymysql"}
EXTRAS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}

MOST_TRIES = 8
"""How often a transaction is run from its start when others got in its way."""

SILENCE_SECONDS = 5
"""How long the server may not acknowledge a packet before its connection is given up and a new one is tried."""

LONGEST_STATEMENT_SECONDS = 15
"""How long MariaDB may take to answer: its driver has no other way to notice a cable that was cut."""

TRANSACTION_SECONDS = 20
"""How long a transaction may take before its connection is given up: none of weft's is that long where all is well."""

IDLE_SECONDS = 10
"""How long a client may be silent in a transaction before the server ends it: a frozen one must not keep its locks."""

CONNECT: dict[str, dict[str, Any]] = {
    "postgresql": {
        "connect_timeout": 5,
        "tcp_user_timeout": SILENCE_SECONDS * 1000,
        "keepalives_idle": 2,
        "keepalives_interval": 1,
        "keepalives_count": SILENCE_SECONDS - 2,
    },
    "mysql": {"connect_timeout": 5, "read_timeout": LONGEST_STATEMENT_SECONDS, "write_timeout": SILENCE_SECONDS},
    "mariadb": {"connect_timeout": 5, "read_timeout": LONGEST_STATEMENT_SECONDS, "write_timeout": SILENCE_SECONDS},
}

# Serialization failure and deadlock (PostgreSQL); deadlock, lock wait timeout and changed-since-read (MariaDB).
RACED = {"40001", "40P01", "1213", "1205", "1020"}


AS_ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""Said before a read, it counts for that transaction alone."""


class ServerEngines:
    """Threads for ordinary work, and one kept free for what is urgent."""

    def __init__(self, url: str, *, pool: int = 4) -> None:
        self.engine = _engine(url, pool)
        self._watch = Watch(self.engine, _LINE[url.split(":", 1)[0]], TRANSACTION_SECONDS)
        self._without_transactions = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._threads = ThreadPoolExecutor(pool, "weft-db", self._watch.hurry)
        self._glances = ShortReads(self._threads, self._look)
        self._urgent = ThreadPoolExecutor(1, "weft-db-urgent", self._watch.hurry)

    def submit(self, work: Unit[T], *, urgent: bool = False) -> Future[T]:
        return (self._urgent if urgent else self._threads).submit(self._transact, work)

    def submit_read(self, work: Unit[T]) -> Future[T]:
        return self._threads.submit(self._transact, work, AS_ONE_STATE)

    def glance(self, work: Unit[T]) -> Future[T]:
        """Each statement by itself: to begin and to end a transaction would take three times as long as one does."""
        if self.engine.dialect.name != "postgresql":  # elsewhere that has to be told to the server each time
            return self.submit_read(work)
        return self._glances.submit(work)

    def _look(self, work: Unit[None]) -> None:
        self._transact(work, engine=self._without_transactions)

    def check_room(self) -> None:
        """Its disk is on another machine, whose server says so when something is written."""

    def close(self) -> None:
        self._threads.shutdown()
        self._urgent.shutdown()
        self._watch.close()
        self.engine.dispose()

    def _transact(self, work: Unit[T], first: str | None = None, engine: Engine | None = None) -> T:
        deadline = time.monotonic() + TRANSACTION_SECONDS
        for attempt in range(1, MOST_TRIES + 1):
            try:
                return _tried(engine or self.engine, work, first)
            except Raced:
                if attempt == MOST_TRIES:
                    raise
                time.sleep(random.uniform(0, 0.002 * 2**attempt))
            except DBAPIError as problem:
                if attempt == MOST_TRIES or time.monotonic() > deadline or not _may_run_again(problem, attempt):
                    _let_go(problem)
                    raise _translated(problem) from problem
                time.sleep(random.uniform(0, 0.002 * 2**attempt))
        raise AssertionError("unreachable")


def _tried(engine: Engine, work: Unit[T], first: str | None) -> T:
    with engine.connect() as connection:
        if first is not None:
            connection.exec_driver_sql(first)
        tx = Transaction(connection)
        value = work(tx)
        _commit(connection)
    run_effects(tx.effects)
    return value


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DBAPIError as problem:
        if problem.connection_invalidated:
            raise DatabaseDown(problem.orig, outcome_unknown=True) from problem
        raise


def _may_run_again(problem: DBAPIError, attempt: int) -> bool:
    if problem.connection_invalidated:  # nothing was committed; the pool opens a new connection
        return attempt <= 2
    return isinstance(problem, IntegrityError) or _code(problem) in RACED


def _let_go(problem: DBAPIError) -> None:
    """Close what the driver has begun to open: the frames of its error keep that until garbage is collected."""
    if problem.orig is not None:
        clear_frames(problem.orig.__traceback__)


def _code(problem: DBAPIError) -> str:
    original: Any = problem.orig
    return str(getattr(original, "sqlstate", None) or (original.args[0] if original and original.args else ""))


def _translated(problem: DBAPIError) -> Exception:
    from sqlalchemy.exc import InterfaceError, OperationalError

    if problem.connection_invalidated or isinstance(problem, OperationalError | InterfaceError):
        return DatabaseDown(problem.orig)
    return problem


def _engine(url: str, pool: int) -> Engine:
    scheme = url.split(":", 1)[0]
    try:
        parsed = make_url(url).set(drivername=DRIVERS[scheme])
        engine = create_engine(
            parsed,
            pool_size=pool + 1,
            max_overflow=0,
            isolation_level="READ COMMITTED",
            connect_args=CONNECT[scheme],
            use_insertmanyvalues=True,
        )
    except ModuleNotFoundError as problem:
        raise AdapterMissing("database", scheme, EXTRAS[scheme]) from problem
    except (ArgumentError, NoSuchModuleError, ValueError) as problem:
        raise Invalid("database", url.split("@")[-1], "it must be scheme://user:password@host:port/name") from problem
    event.listen(engine, "connect", _PREPARE[scheme])
    if scheme != "postgresql":
        event.listen(engine, "do_connect", _connect_mysql)
    return engine


def _connect_mysql(_: Any, __: Any, arguments: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
    return _mysql_connection()(*arguments, **parameters)


@cache
def _mysql_connection() -> type[Any]:
    """Connections that take TLS where it is offered and share what they know of it.

    The driver would read all authorities that the machine trusts for each of them, though it checks no certificate
    unless the URL names an authority: 25 ms of processor time, where all else takes one.
    """
    from pymysql.connections import Connection

    driver: Any = Connection

    class Shared(driver):  # type: ignore[misc]
        context: Any = None

        def _create_ssl_ctx(self, wanted: Any) -> Any:
            if wanted:
                return super()._create_ssl_ctx(wanted)
            Shared.context = Shared.context or super()._create_ssl_ctx(wanted)
            return Shared.context

    return Shared


def _prepare_postgres(connection: Any, _: Any) -> None:
    """Acknowledge only what is on disk, hold no lock for a client that is gone, and walk the indexes.

    The queue's statistics are always out of date: a backlog comes and goes faster than it is analysed. A planner that
    believes in an empty queue sorts a million runs to lease one; every query of weft has an index that is in order.
    What has to be sorted all the same then looks so dear that it would be compiled first, for a thousand times longer
    than it runs.
    """
    settings = {
        "synchronous_commit": "on",
        "statement_timeout": "'60s'",
        "idle_in_transaction_session_timeout": f"'{IDLE_SECONDS}s'",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_sort": "off",
        "jit": "off",
    }
    if connection.info.server_version >= 140000:  # or it would go on for a client that has given up
        settings["client_connection_check_interval"] = "'2s'"
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
    connection.commit()


def _prepare_mariadb(connection: Any, _: Any) -> None:
    _give_up_silence(connection._sock)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 10, time_zone = '+00:00'")
        cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE_SECONDS}")


def _give_up_silence(line: socket.socket) -> None:
    """Let the system do for PyMySQL, which has no setting for it, what libpq does by ``CONNECT``."""
    if line.family != socket.AF_UNIX and sys.platform == "linux":
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


_LINE: dict[str, Callable[[Any], int]] = {
    "postgresql": lambda connection: int(connection.fileno()),
    "mysql": lambda connection: int(connection._sock.fileno()),
    "mariadb": lambda connection: int(connection._sock.fileno()),
}
_PREPARE: dict[str, Callable[[Any, Any], None]] = {
    "postgresql": _prepare_postgres,
    "mysql": _prepare_mariadb,
    "mariadb": _prepare_mariadb,
}
