"""A tenant: submits runs to a gateway at its own pace, whatever it is answered, or reads at a pace.

    python -m experiments.tenant submit --address 127.0.0.1:6800 --name t1 --project t1 --rate 50 --figures FILE
    python -m experiments.tenant read --address 127.0.0.1:6800 --name r1 --rate 20 --figures FILE

Its key is in the environment, as WEFT_EXPERIMENT_KEY. It does not slow down when it is refused: each of its connections
(``--hands``) sends the next request as soon as that is due and the last one is answered. SIGTERM ends it, or
``--seconds``; then it waits for its last answers and writes what it has seen into ``--figures``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from experiments.submitter import KEY, TASK

TICK_SECONDS = 0.005
HUNG_SECONDS = 10.0
"""A request that has no answer for longer hangs."""

READS = ("/v1/runs?limit=50", "/healthz")


class Figures(msgspec.Struct):
    """What a tenant has seen."""

    sent: int = 0
    seconds: float = 0.0
    answers: dict[str, int] = {}
    """How many of each: the status, and the code of a problem."""
    curt: int = 0
    """Refusals without a Retry-After."""
    hung: int = 0
    broken: int = 0
    """Connections that ended before an answer."""
    latencies: list[float] = []
    """Of all answers, in seconds."""

    @property
    def rate(self) -> float:
        return self.sent / self.seconds if self.seconds else 0.0

    def share(self, part: float) -> float:
        """The latency that ``part`` of the answers do not exceed."""
        return percentile(self.latencies, part)


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


class Told(msgspec.Struct):
    """What is read of an answer."""

    run_id: int = 0
    code: str = ""


@dataclass(slots=True)
class Notes:
    """All that is noted while it goes on."""

    lines: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    curt: int = 0
    hung: int = 0
    broken: int = 0


class Hand(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, notes: Notes, is_free: Callable[[Hand], None]) -> None:
        self._notes, self._is_free = notes, is_free
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self.key, self.sent_at = "", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, key: str, request: bytes) -> None:
        assert self._transport is not None
        self.key, self.sent_at = key, time.monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(body) < length:
            return
        self._data = b""
        self._note(int(head[9:12]), lower, body[:length])
        self._is_free(self)

    def connection_lost(self, problem: Exception | None) -> None:
        if self.key:
            self._notes.broken += 1
            self.key = ""
        self._is_free(self)

    def hang_up(self) -> None:
        """Note a request that nobody answers."""
        self._notes.hung += bool(self.key)
        self.key = ""
        if self._transport is not None:
            self._transport.abort()

    def _note(self, status: int, head: bytes, body: bytes) -> None:
        self._notes.latencies.append(time.monotonic() - self.sent_at)
        told = msgspec.json.decode(body, type=Told) if body.startswith(b"{") else Told()
        unasked = "" if self.key else " unasked"
        self._notes.answers[f"{status} {told.code}".strip() + unasked] += 1
        self._notes.curt += status in (429, 503) and b"retry-after:" not in head
        if status == 202:
            self._notes.lines.append(f"ack {self.key} {told.run_id}")
        self.key = ""


class Tenant:
    """Sends what is due on whichever connection is free."""

    def __init__(self, options: argparse.Namespace, token: str) -> None:
        self._options, self._token = options, token
        self._host, _, port = options.address.partition(":")
        self._port = int(port)
        self.notes = Notes()
        self._hands: set[Hand] = set()
        self._free: deque[Hand] = deque()
        """The one that has rested longest comes first, so that none rests until the gateway ends it."""
        self.sent = 0
        self._life = f"{options.name}-{os.urandom(4).hex()}"

    async def go_on(self, stopped: asyncio.Event) -> float:
        """Send at the pace until it is stopped; return how long that was."""
        for _ in range(self._options.hands):
            await self._connect()
        began = time.monotonic()
        while not stopped.is_set() and (passed := time.monotonic() - began) < (self._options.seconds or float("inf")):
            await self._catch_up(int(passed * self._options.rate) + 1)
            self._let_go_of_the_hung()
            await asyncio.sleep(TICK_SECONDS)
        took = time.monotonic() - began
        while any(hand.key for hand in self._hands):
            self._let_go_of_the_hung()
            await asyncio.sleep(TICK_SECONDS)
        return took

    async def _catch_up(self, due: int) -> None:
        """What could not be sent in time, for lack of a free connection, is left out."""
        for _ in range(self.sent, due):
            if not self._free and len(self._hands) < self._options.hands:
                await self._connect()
            if not self._free:
                break
            hand = self._free.popleft()
            if hand.is_open:
                key = f"{self._life}-{self.sent}"
                hand.send(key, self._request(key))
                self.sent += 1

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, hand = await loop.create_connection(lambda: Hand(self.notes, self._freed), self._host, self._port)
        except OSError:
            self.notes.broken += 1
            return
        self._hands.add(hand)
        self._free.append(hand)

    def _freed(self, hand: Hand) -> None:
        if hand.is_open:
            self._free.append(hand)
        else:
            self._hands.discard(hand)

    def _let_go_of_the_hung(self) -> None:
        too_old = time.monotonic() - HUNG_SECONDS
        for hand in [hand for hand in self._hands if hand.key and hand.sent_at < too_old]:
            hand.hang_up()

    def _request(self, key: str) -> bytes:
        head = f"Host: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
        if self._options.what == "read":
            return f"GET {READS[self.sent % len(READS)]} HTTP/1.1\r\n{head}\r\n".encode()
        self.notes.lines.append(f"try {key}")
        spec = {"sleep_seconds": self._options.sleep} if self._options.sleep else {}
        run = {"project": self._options.project, "kind": "noop", "name": TASK, "spec": spec, "correlation_id": key}
        body = msgspec.json.encode(run)
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"POST /v1/runs HTTP/1.1\r\n{head}\r\n".encode() + body

    def figures(self, took: float) -> Figures:
        notes = self.notes
        return Figures(
            sent=self.sent,
            seconds=took,
            answers=dict(notes.answers),
            curt=notes.curt,
            hung=notes.hung,
            broken=notes.broken,
            latencies=notes.latencies,
        )


async def main(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    tenant = Tenant(options, os.environ[KEY])
    took = await tenant.go_on(stopped)
    if options.history:
        options.history.write_text("".join(f"{line}\n" for line in tenant.notes.lines))
    options.figures.write_bytes(msgspec.json.encode(tenant.figures(took)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="experiments.tenant", description=__doc__)
    parser.add_argument("what", choices=("submit", "read"))
    parser.add_argument("--address", required=True, help="host and port of a gateway")
    parser.add_argument("--name", required=True, help="a word that no other tenant has")
    parser.add_argument("--project", default="default", help="the project whose runs it submits")
    parser.add_argument("--rate", type=float, required=True, help="requests a second")
    parser.add_argument("--seconds", type=float, default=0.0, help="for how long; 0: until SIGTERM")
    parser.add_argument("--hands", type=int, default=64, help="connections")
    parser.add_argument("--sleep", type=float, default=0.0, help="how long each run takes, in seconds")
    parser.add_argument("--history", type=Path, help="the file to write down what was answered")
    parser.add_argument("--figures", type=Path, required=True, help="the file to write the figures to")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
