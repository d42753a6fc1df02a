"""A network of its own for a process: one link to this machine, and nothing beyond.

Needs root. What listens on ``host`` can be reached from inside; what listens on 127.0.0.1 cannot, nor can any other
machine, since there is no route to it.
"""

from __future__ import annotations

import random
import secrets
import subprocess
from types import TracebackType

NOWHERE = "02:00:00:00:00:01"
"""An address that no card has: what is sent there is dropped by whoever gets it."""


class Namespace:
    """Two ends of a link: one here, one where the commands run that begin with ``prefix``."""

    def __init__(self) -> None:
        self._name = f"weft{secrets.token_hex(4)}"
        self._subnet, self._first = (
            f"10.{random.randrange(200, 250)}.{random.randrange(256)}",
            random.randrange(0, 256, 4),
        )

    @property
    def host(self) -> str:
        """The address of this machine, as seen from inside."""
        return f"{self._subnet}.{self._first + 1}"

    @property
    def guest(self) -> str:
        """The address of those inside."""
        return f"{self._subnet}.{self._first + 2}"

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs inside."""
        return ["ip", "netns", "exec", self._name]

    def __enter__(self) -> Namespace:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        _ip("address", "add", f"{self.host}/30", "dev", self._name)
        _ip("link", "set", self._name, "up")
        _ip("-n", self._name, "address", "add", f"{self.guest}/30", "dev", "eth0")
        _ip("-n", self._name, "link", "set", "lo", "up")
        _ip("-n", self._name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ip("netns", "delete", self._name)

    def unplug(self) -> None:
        """Take this end down: at the other the line is dead."""
        _ip("link", "set", self._name, "down")

    def switch_off(self) -> None:
        """Take the other end down: those inside are told that there is no network."""
        _ip("-n", self._name, "link", "set", "eth0", "down")

    def swallow_answers(self) -> None:
        """Drop all that goes in, silently; what comes out arrives."""
        _ip("neighbour", "replace", self.guest, "lladdr", NOWHERE, "dev", self._name, "nud", "permanent")

    def swallow_requests(self) -> None:
        """Drop all that comes out, silently; what goes in arrives."""
        inside = ("-n", self._name, "neighbour", "replace", self.host)
        _ip(*inside, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def mend(self) -> None:
        """Undo each of these."""
        _ip("link", "set", self._name, "up")
        _ip("-n", self._name, "link", "set", "eth0", "up")
        _ip("neighbour", "flush", "dev", self._name, "nud", "permanent")
        _ip("-n", self._name, "neighbour", "flush", "dev", "eth0", "nud", "permanent")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL)
