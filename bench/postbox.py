"""Where the spiders of a benchmark tell what they come to: a datagram socket on loopback, whoever runs them.

A datagram says what happened, to which run of the benchmark, and when by the monotonic clock, which all processes of
one machine share. The spider sends it itself, so nobody's log or database is between it and the benchmark.
"""

import socket
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self

from bench.peers.peer import PeerFailed

PATIENCE_SECONDS = 600.0
ROOM = 1 << 20
LARGEST = 200


class Postbox:
    """What spiders have told so far."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        self._socket.bind(("127.0.0.1", 0))
        self._told: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def wait(self, who: str, what: str, numbers: Collection[int], patience: float = PATIENCE_SECONDS) -> dict[int, int]:
        """When it happened to each of ``numbers``, in nanoseconds; ``who`` is to blame if it never does."""
        deadline = time.monotonic() + patience
        while missing := [number for number in numbers if (what, number) not in self._told]:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                word, number, at = self._socket.recv(LARGEST).split()
            except TimeoutError:
                raise PeerFailed(who, f"left {len(missing)} of {len(numbers)} spiders not {what}", "") from None
            self._told.setdefault((word.decode(), int(number)), int(at))
        return {number: self._told[what, number] for number in numbers}
