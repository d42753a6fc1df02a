"""Many clients that ask over HTTP/1.1, each its next request as soon as it has its answer.

They share a process of their own, ``python -m bench.load``, and cost little: requests are made beforehand, and of an
answer only the status and the length are read.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from bench.latencies import Latencies
from bench.peers.peer import PeerFailed

WARM_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
LONGEST_SAID = 500
END = b"\r\n\r\n"
LENGTH = b"content-length:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of whom. Each client goes through the requests in turn, and each begins at another one."""

    port: int
    requests: Sequence[str]
    expected: int = 200
    clients: int = 64
    seconds: float = 5.0
    warm_seconds: float = WARM_SECONDS
    """What is asked before this is over is counted, and not timed."""
    calls: int = 0
    """So many requests in all, and then the time is over; 0 for as many as there is time for."""


@dataclass(slots=True, kw_only=True)
class Answers:
    """What came of a load."""

    expected: int
    """How many answers had the expected status, from the first request to the last."""
    timed: int
    """How many of them came while it was timed."""
    seconds: float
    milliseconds: list[list[float]]
    """What each request took, every time."""
    others: dict[str, int] = field(default_factory=dict)
    """What came instead, and how often."""
    said: str = ""
    """The body of the first answer that came instead."""
    cpu_seconds: float = 0.0
    """What the clients themselves took of a processor."""

    @property
    def rate(self) -> float:
        return self.timed / self.seconds

    @property
    def latencies(self) -> Latencies:
        return self.latencies_of(range(len(self.milliseconds)))

    def latencies_of(self, requests: Iterable[int]) -> Latencies:
        """Of some of the requests, by their places in the load."""
        return Latencies(took for place in requests for took in self.milliseconds[place])


def request(method: str, path: str, *, body: str = "", headers: Mapping[str, str] | None = None) -> str:
    """A request as it goes over the wire, on a connection that stays open."""
    lines = {"Host": "127.0.0.1", "Connection": "keep-alive"} | dict(headers or {})
    if body:
        lines["Content-Length"] = str(len(body.encode()))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}"


def ask(load: Load) -> Answers:
    """Put the load on, in a process of its own, and return what came of it."""
    process = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        timeout=load.warm_seconds + load.seconds + 2 * PATIENCE_SECONDS,
        check=False,
    )
    if process.returncode or process.stderr:
        raise PeerFailed("the load", "did not get to its end", process.stderr)
    found = Answers(**json.loads(process.stdout))
    if not found.timed:
        raise PeerFailed("the load", f"never had the answer {load.expected}", f"{found.others} {found.said}")
    return found


class Tally:
    """What all clients of a process have seen together."""

    def __init__(self, load: Load, began: float) -> None:
        self._wanted = f"HTTP/1.1 {load.expected} ".encode()
        self.timed_from = began + load.warm_seconds
        self.timed_until = self.timed_from + load.seconds
        self.expected = self.timed = 0
        self.last = began
        """When the last answer came."""
        self._calls, self._asked = load.calls, 0
        self.milliseconds: list[list[float]] = [[] for _ in load.requests]
        self.others: Counter[str] = Counter()
        self.said = ""

    def may_ask(self, now: float) -> bool:
        """Whether there is time for one more request, which then counts as asked."""
        self._asked += 1
        return now < self.timed_until and (not self._calls or self._asked <= self._calls)

    def note(self, place: int, answer: bytearray, sent: float, came: float) -> None:
        """The answer to the request at a place in the load."""
        self.last = came
        if not answer.startswith(self._wanted):
            self.others[answer.partition(b"\r\n")[0].decode(errors="replace")] += 1
            self.said = self.said or answer.partition(END)[2][:LONGEST_SAID].decode(errors="replace")
            return
        self.expected += 1
        self.timed += self.timed_from <= came < self.timed_until
        if sent >= self.timed_from:
            self.milliseconds[place].append((came - sent) * 1000)


class Client(asyncio.Protocol):
    """One connection: a request, its answer, the next request, until the time is over."""

    def __init__(self, requests: Sequence[bytes], first: int, tally: Tally, over: "asyncio.Future[None]") -> None:
        self._requests, self._place, self._tally, self.over = requests, first, tally, over
        self._answer = bytearray()
        self._missing = 0
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if self._missing:
            self._missing -= len(data)
        elif (head := self._answer.find(END)) >= 0:
            self._missing = head + len(END) + length(self._answer[:head]) - len(self._answer)
        else:
            return
        if self._missing <= 0:
            self._answered()

    def connection_lost(self, problem: Exception | None) -> None:
        if not self.over.done():
            self._tally.others[f"connection lost: {problem}"] += 1
            self.over.set_result(None)

    def _go_on(self) -> None:
        """Ask the next question, or leave."""
        self._sent = time.perf_counter()
        if self._tally.may_ask(self._sent):
            self._transport.write(self._requests[self._place])
        else:
            self.over.set_result(None)
            self._transport.close()

    def _answered(self) -> None:
        came = time.perf_counter()
        self._tally.note(self._place, self._answer, self._sent, came)
        self._answer.clear()
        self._missing = 0
        self._place = (self._place + 1) % len(self._requests)
        self._go_on()


def length(head: bytearray) -> int:
    """The length of a body; one whose end is not announced by its length cannot be read here."""
    found = head.lower().partition(LENGTH)[2].partition(b"\r\n")[0]
    if not found:
        raise ValueError(f"an answer says no Content-Length: {head[:200]!r}")
    return int(found)


async def put_on(load: Load) -> Answers:
    """The load in this process."""
    loop = asyncio.get_running_loop()
    requests = [each.encode() for each in load.requests]
    began, cpu = time.perf_counter(), time.process_time()
    tally = Tally(load, began)
    clients: list[asyncio.Future[None]] = []
    for number in range(load.clients):
        over = loop.create_future()
        first = number * len(requests) // load.clients
        await loop.create_connection(lambda f=first, o=over: Client(requests, f, tally, o), "127.0.0.1", load.port)  # type: ignore[misc]
        clients.append(over)
    left = tally.timed_until - time.perf_counter() + PATIENCE_SECONDS
    _, silent = await asyncio.wait(clients, timeout=left)
    if silent:
        tally.others["no answer"] += len(silent)
    return Answers(
        expected=tally.expected,
        timed=tally.timed,
        seconds=tally.last - began if load.calls else load.seconds,
        milliseconds=tally.milliseconds,
        others=dict(tally.others),
        said=tally.said,
        cpu_seconds=time.process_time() - cpu,
    )


if __name__ == "__main__":
    asked = Load(**json.load(sys.stdin))
    print(json.dumps(asdict(uvloop.run(put_on(asked)))))
