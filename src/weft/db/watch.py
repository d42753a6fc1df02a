"""Ends what a server neither answers nor hangs up on: a transaction has a deadline, whatever the network does."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

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
