"""R20: no host gets more than its limit, with many workers and a failover of Redis.

Worker processes ask hosts as often as limits in Redis let them; the hosts note each arrival. Meanwhile Redis is
emptied, workers are paused, and the primary is cut off together with a third of the workers while a replica that lacks
its last writes takes over. Remote workers ask some of the hosts as well, through two gateways, one on either side, and
lose these for a while. No host may see more than ``rate × time + burst`` in any span, nor more at once than it
allows, and for a full delay after each time at which Redis may have forgotten something nobody may come at all. The
only excess that is allowed is one request for each line of a worker that was paused between its check and its request.
Red controls: a limiter that opens where Redis is away, and a primary that goes on granting beside its successor.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from experiments.limited import LONGEST_TRAVEL_SECONDS, Arrival, Hosts, key_of, rates
from experiments.proxy import Fault, Proxy
from experiments.report import Report, Tally
from tests import servers
from tests.waiting import eventually
from tests.workers.far_away import gateway
from weft.adapters.brokers.resp import Address, Connection
from weft.adapters.limiters.redis import FRESH_SECONDS, PREFIX
from weft.adapters.limiters.redis_script import SETTLE_SECONDS
from weft.adapters.registry import open_limiter
from weft.app import open_app
from weft.config import Config
from weft.ports import Grant, Rate

OPEN = "r20:fail_open"
HELD_UP_SECONDS = 0.1
"""How late a request may be: a place is used up to 0.03 s after its moment, and a busy machine makes processes wait."""
TOLERANCE = 1e-3
"""Of one request: clocks of the kernel and of Python are not read at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    workers: int
    remote: int
    hosts: int
    """The remote workers ask the second half of them."""
    lines: int
    slowest: float
    fastest: float
    paused: int
    calm_seconds: float
    """Between one fault and the next."""
    cut_seconds: float
    requests: int
    """At least so many must have been made."""


FULL = Size(
    workers=100, remote=30, hosts=50, lines=8, slowest=0.2, fastest=20.0, paused=10, calm_seconds=600.0,
    cut_seconds=60.0, requests=100_000,
)  # fmt: skip
REDUCED = Size(
    workers=5,
    remote=3,
    hosts=6,
    lines=8,
    slowest=4.0,
    fastest=20.0,
    paused=1,
    calm_seconds=1.0,
    cut_seconds=1.0,
    requests=40,
)


def fail_open() -> None:
    """Let everybody through while Redis is away."""
    from weft.adapters.limiters.redis import RedisLimiter
    from weft.workers.remote.protocol import RemoteProtocol

    permit = RemoteProtocol.permit

    async def anyhow(self: RemoteProtocol, *asked: Any) -> Grant:
        grant = await permit(self, *asked)
        return Grant(True) if grant.degraded else grant

    async def everything(self: RedisLimiter, *_: object) -> Grant:
        return Grant(True, epoch=self._epoch)

    RedisLimiter._share = everything  # type: ignore[method-assign,assignment]
    RedisLimiter.hold = everything  # type: ignore[method-assign,assignment]
    RedisLimiter.holds = lambda self, grant: True  # type: ignore[method-assign]
    RemoteProtocol.permit = anyhow  # type: ignore[method-assign,assignment]


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report, size = Report("R20"), FULL if full else REDUCED
    if red:
        async with asyncio.TaskGroup() as group:
            opening = Scene(
                report, "a limiter that opens", size, options="?away=stop&replicas=1", red=OPEN, is_red=True
            )
            group.create_task(opening.play())
            group.create_task(Scene(report, "two limiters", size, options="?away=stop", is_red=True).play())
    else:
        await Scene(report, "in all", size, options="?away=stop&replicas=1").play()
    return report


@dataclass(slots=True)
class Scene:
    report: Report
    name: str
    size: Size
    options: str
    red: str = ""
    is_red: bool = False
    """Only the failover, with a protection switched off."""
    began: list[float] = field(default_factory=list)
    """When Redis last knew everything, again and again."""
    paused: int = 0
    lines: list[Proxy] = field(default_factory=list)
    """Those to the gateways."""
    rates: list[Rate] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    async def play(self) -> None:
        began, size = time.monotonic(), self.size
        self.rates = rates(size.hosts, size.slowest, size.fastest)
        with self.stack:
            primary, heir, second = (self.stack.enter_context(servers.redis(appendonly="no")) for _ in range(3))
            for replica in (heir, second):
                await told(replica, "REPLICAOF", "127.0.0.1", primary.port)
            await eventually(lambda: has_replicas(primary, 2))
            async with (
                Hosts(size.hosts) as hosts,
                Proxy(primary.port) as near,
                Proxy(primary.port) as far,
                self._remote(hosts, near, far) as remote,
            ):
                await self._set(primary)
                workers = [*self._start(hosts, near, far), *remote]
                await self._suffer(workers, (primary, heir, second), near)
                for worker in workers:
                    worker.kill()
                    worker.wait()
            self._judge(hosts.arrivals, time.monotonic() - began)

    async def _set(self, server: servers.Server) -> None:
        limiter = open_limiter(server.url + "?away=stop")
        await limiter.set({key_of(host): rate for host, rate in enumerate(self.rates)})
        await limiter.close()

    def _start(self, hosts: Hosts, near: Proxy, far: Proxy) -> list[subprocess.Popen[bytes]]:
        """Every third worker is far: on another line to Redis, which will be cut off with the old primary."""
        size = self.size
        return [
            self._worker(
                {"limiter": self._limiter((far if place % 3 == 2 else near).port)}, hosts.port, list(range(size.hosts))
            )
            for place in range(size.workers)
        ]

    @asynccontextmanager
    async def _remote(self, hosts: Hosts, near: Proxy, far: Proxy) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
        """Workers that reach a gateway and nothing else: every third the one that will be cut off with the primary."""
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory())
            orders = []
            for redis in (near, far):
                app = await open_app(Config(data_dir=folder, port=0, limiter=self._limiter(redis.port)))
                stack.push_async_callback(app.close)
                address = await stack.enter_async_context(gateway(app))
                self.lines.append(await stack.enter_async_context(Proxy(int(address.rpartition(":")[2]))))
            for number in range(self.size.remote):
                _, key = await app.keys.create(f"far-{number}", {}, by="r20", kind="worker")
                line = self.lines[number % 3 == 2]
                orders.append({"gateway": f"http://127.0.0.1:{line.port}", "key": key, "name": f"far-{number}"})
            shared = list(range(self.size.hosts // 2, self.size.hosts))
            yield [self._worker(order, hosts.port, shared) for order in orders]

    def _limiter(self, redis_port: int) -> str:
        return f"redis://127.0.0.1:{redis_port}/0{self.options}"

    def _worker(self, order: dict[str, str], port: int, hosts: Sequence[int]) -> subprocess.Popen[bytes]:
        told = json.dumps(order | {"port": port, "hosts": hosts, "lines": self.size.lines})
        begin = ["experiments.red", self.red] if self.red else []
        command = [sys.executable, "-m", *begin, "experiments.limited", told]
        return self.stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # they end when we do
        )

    async def _suffer(
        self, workers: Sequence[subprocess.Popen[bytes]], redis: Sequence[servers.Server], near: Proxy
    ) -> None:
        primary, heir, second = redis
        await eventually(lambda: epoch_of(primary), 60.0)
        await self._calm(primary)
        if not self.is_red:
            await self._lesser_faults(primary, workers)
        await self._fail_over(primary, heir, second, near)
        await eventually(lambda: epoch_of(heir), 60.0)
        await self._calm(heir)

    async def _lesser_faults(self, primary: servers.Server, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        await told(primary, "FLUSHALL")
        await self._set(primary)
        await eventually(lambda: epoch_of(primary))
        await self._calm(primary)
        for worker in workers[: self.size.paused]:
            self.paused += 1
            worker.send_signal(signal.SIGSTOP)
        for line in self.lines:
            line.strike(Fault.SILENT)
        await asyncio.sleep(self.size.calm_seconds / 2)
        for line in self.lines:
            line.mend()
            line.hang_up()
        for worker in workers[: self.size.paused]:
            worker.send_signal(signal.SIGCONT)
        await asyncio.sleep(self.size.calm_seconds)

    async def _calm(self, server: servers.Server) -> None:
        """Let the workers work, once each host may be asked again, and note since when this is so."""
        self.began.append(await epoch_of(server) or 0.0)
        longest = SETTLE_SECONDS + 1 / self.size.slowest
        await asyncio.sleep(max(0.0, self.began[-1] + longest - time.time()) + self.size.calm_seconds)

    async def _fail_over(
        self, primary: servers.Server, heir: servers.Server, second: servers.Server, near: Proxy
    ) -> None:
        """The heir is cut off first, so that it lacks the primary's last writes; the far workers stay with that."""
        await told(heir, "REPLICAOF", "NO", "ONE")
        await asyncio.sleep(min(1.0, self.size.calm_seconds))
        await told(second, "REPLICAOF", "127.0.0.1", heir.port)
        near.target = heir.port
        near.hang_up()
        await asyncio.sleep(self.size.cut_seconds + SETTLE_SECONDS + 1 / self.size.slowest)
        primary.kill()

    def _judge(self, arrivals: Sequence[Sequence[Arrival]], seconds: float) -> None:
        asked = sum(len(each) for each in arrivals)
        over = sum(excess(each, rate) for each, rate in zip(arrivals, self.rates, strict=True))
        own = slice(0, self.size.hosts // 2)  # permits of remote workers are not about how many are under way
        crowded = sum(crowding(each, rate) for each, rate in zip(arrivals[own], self.rates[own], strict=True))
        # A remote worker knows the moment of a place as exactly as its question and answer take equally long.
        off = [TOLERANCE] * own.stop + [LONGEST_TRAVEL_SECONDS / 2] * (self.size.hosts - own.stop)
        early = sum(
            too_early(each, rate, began, how_far)
            for each, rate, how_far in zip(arrivals, self.rates, off, strict=True)
            for began in self.began
        )
        tolerated = self.paused * self.size.lines
        report, name = self.report, self.name
        report.add(name, Tally(attempted=asked, acknowledged=asked, ok=asked, kills=len(self.began), seconds=seconds))
        report.note(
            f"{name}: {asked} requests; {over} over a limit, of which {tolerated} would be allowed to the paused"
        )
        report.expect(over <= tolerated, f"{name}: {over} requests over the limit of their host")
        report.expect(crowded <= tolerated, f"{name}: {crowded} requests beside more than their host allows at once")
        report.expect(early == 0, f"{name}: {early} requests while nobody knew what was left")
        remote = sum(arrival.is_remote for each in arrivals for arrival in each)
        report.note(f"{name}: {remote} of them by remote workers")
        report.expect(remote >= self.size.remote, f"{name}: only {remote} requests of remote workers were made")
        report.expect(asked >= self.size.requests, f"{name}: only {asked} requests were made")


def excess(arrivals: Sequence[Arrival], rate: Rate) -> int:
    """Requests beyond ``rate × span + burst``, whatever the span: what does not fit into a bucket that leaks."""
    level, last, over = 0.0, 0.0, 0
    for arrival in sorted(arrivals, key=lambda each: each.at):
        level, last = max(0.0, level - (arrival.at - last) * rate.per_second), arrival.at
        if level + 1 > rate.burst + rate.per_second * HELD_UP_SECONDS + TOLERANCE:
            over += 1
        else:
            level += 1
    return over


def crowding(arrivals: Sequence[Arrival], rate: Rate) -> int:
    """Requests that met as many as may be there at once."""
    there: list[float] = []
    crowded = 0
    for arrival in sorted(arrivals, key=lambda each: each.at):
        there = [left_at for left_at in there if left_at > arrival.at]
        crowded += len(there) >= rate.at_once
        there.append(arrival.left_at or arrival.at)
    return crowded


def too_early(arrivals: Sequence[Arrival], rate: Rate, began: float, off: float = TOLERANCE) -> int:
    """Requests between the moment when every place from before is void and the first that may be granted."""
    since, until = began + FRESH_SECONDS + HELD_UP_SECONDS, began + SETTLE_SECONDS + 1 / rate.per_second
    return sum(since < each.at < until - off for each in arrivals)


async def told(server: servers.Server, *command: str | int) -> object:
    connection = await Connection.open(Address.parse(server.url))
    try:
        return await connection.call(*command)
    finally:
        await connection.close()


async def has_replicas(server: servers.Server, count: int) -> bool:
    info = await told(server, "INFO", "replication")
    assert isinstance(info, bytes)
    return info.count(b"state=online") == count


async def epoch_of(server: servers.Server) -> float | None:
    """When a Redis began to know everything; None where nobody has asked it for a place since it forgot."""
    found = await told(server, "HMGET", PREFIX + "epoch", "server", "began")
    assert isinstance(found, list)
    info = await told(server, "INFO", "server")
    assert isinstance(info, bytes)
    return float(found[1]) / 1e6 if found[0] is not None and found[0] in info else None
