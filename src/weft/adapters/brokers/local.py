"""Rings between the processes of one machine, without a server: a directory of sockets.

Each process that waits owns one datagram socket in the directory; who rings writes to all of them. The address is
``local:/path/to/directory``, the same for all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from weft.adapters.brokers import wakeups
from weft.adapters.brokers.wakeups import Waiters
from weft.errors import BrokerDown, Invalid, Misconfigured

log = logging.getLogger(__name__)

SUFFIX = ".bell"
LONGEST_PATH = 100
"""Bytes in the address of a unix socket, with some to spare."""

SETTLED_NANOSECONDS = 100_000_000
"""A directory's time is as coarse as the kernel's tick; younger than this it may still change without showing it."""


class LocalBroker:
    """Wakes the waiters of all processes that share its directory."""

    reaches_all = True

    def __init__(self, url: str) -> None:
        path = url.removeprefix("local:")
        if not path.strip("/"):
            raise Misconfigured(f"the broker is {url!r}; it must name a directory, as in local:/var/lib/weft/bells")
        self._folder = Path(path).absolute()
        self._neighbours = Neighbours(self._folder)
        self._waiters = Waiters()
        self._mailbox: Mailbox | None = None
        self._voice: socket.socket | None = None

    async def ring(self, queues: Mapping[str, int]) -> None:
        if self._mailbox is not None:
            self._take(queues)
        try:
            for hint in wakeups.encode_parts(queues):
                self._send(hint)
        except OSError as error:
            raise BrokerDown("local", error) from error

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        try:
            missed = self._listen()
        except OSError as error:
            await self._waiters.wait((), timeout)
            raise BrokerDown("local", error) from error
        return missed or await self._waiters.wait(queues, timeout)

    async def close(self) -> None:
        self._waiters.close()
        mailbox, voice = self._mailbox, self._voice
        self._mailbox = self._voice = None
        if mailbox is not None:
            mailbox.close()
        if voice is not None:
            voice.close()

    def _listen(self) -> bool:
        """Have a mailbox. True where it is new: rings may have been missed, so everyone looks once."""
        if self._waiters.closed or (self._mailbox is not None and self._mailbox.can_be_found()):
            return False
        if self._mailbox is not None:
            self._mailbox.close()
        self._mailbox = Mailbox(self._folder)
        asyncio.get_running_loop().add_reader(self._mailbox.fileno(), self._read, self._mailbox)
        self._waiters.wake_all()
        return True

    def _read(self, mailbox: Mailbox) -> None:
        for hint in mailbox.take():
            try:
                self._take(wakeups.decode(hint))
            except Invalid as error:
                log.debug("hint not understood", extra={"broker": "local", "why": str(error)})

    def _take(self, queues: Mapping[str, int]) -> None:
        for queue, count in queues.items():
            self._waiters.ring(queue, count)
        if not queues:
            self._waiters.wake_all()

    def _send(self, hint: bytes) -> None:
        own = self._mailbox.name if self._mailbox is not None else None
        with reachable(self._folder) as folder:
            for name in self._neighbours.names():
                if name != own:
                    self._send_to(f"{folder}/{name}", name, hint)

    def _send_to(self, address: str, name: str, hint: bytes) -> None:
        try:
            self._open_voice().sendto(hint, address)
        except BlockingIOError:
            pass  # it has rings enough to read already
        except (ConnectionRefusedError, FileNotFoundError):
            self._neighbours.forget(name)

    def _open_voice(self) -> socket.socket:
        if self._voice is None:
            self._voice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._voice.setblocking(False)
        return self._voice


class Mailbox:
    """The socket of this process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = f"{os.getpid()}-{secrets.token_hex(6)}{SUFFIX}"
        self._path = folder / self.name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            with reachable(folder) as prefix:
                self._socket.bind(f"{prefix}/{self.name}")
            self._path.chmod(0o600)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def can_be_found(self) -> bool:
        return self._path.exists()

    def take(self) -> Iterator[bytes]:
        """All that has come in."""
        while True:
            try:
                yield self._socket.recv(wakeups.LARGEST + 1)
            except BlockingIOError:
                return

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)


class Neighbours:
    """The mailboxes in the directory, read again only when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._changed_at: int | None = None

    def names(self) -> list[str]:
        try:
            changed_at = os.stat(self._folder).st_mtime_ns
            if changed_at != self._changed_at:
                self._names = [name for name in os.listdir(self._folder) if name.endswith(SUFFIX)]
                self._changed_at = changed_at if time.time_ns() - changed_at > SETTLED_NANOSECONDS else None
        except FileNotFoundError:
            return []
        return self._names

    def forget(self, name: str) -> None:
        """Remove what a process that ended without a goodbye left behind."""
        (self._folder / name).unlink(missing_ok=True)
        self._changed_at = None


@contextmanager
def reachable(folder: Path) -> Iterator[str]:
    """A way to write the directory that is short enough for the address of a socket."""
    if len(os.fsencode(folder)) + 40 <= LONGEST_PATH:
        yield str(folder)
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield str(folder)  # nobody waits: there is nothing in it to reach
        return
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
