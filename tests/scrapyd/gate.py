"""A gate at which spiders wait to be ended: they connect to it, say which job they are, and read on."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class Gate:
    """Listens on a port of its own and keeps who has come."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._waiting: list[socket.socket] = []
        self._come: set[str] = set()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._let_in, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def wait_for(self, job: str, seconds: float) -> bool:
        """Whether the job has come, within this time."""
        with self._news:
            return self._news.wait_for(lambda: job in self._come, seconds)

    def _let_in(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            job = connection.makefile().readline().strip()
            with self._news:
                self._waiting.append(connection)
                self._come.add(job)
                self._news.notify_all()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._waiting:
            connection.close()
