"""R25: slow is handled like down: every call ends by its deadline, nothing piles up, and weft returns by itself.

A proxy stands between weft and each thing that it depends on: the database, the broker, the gateway of a remote worker,
the receiver of webhooks, a site that is fetched from. In turn each becomes slow, thin, silent or broken while runs are
submitted over HTTP. Red control: transactions without a deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.engine import make_url

from experiments import checker
from experiments.callers import Callers
from experiments.cluster import Cluster
from experiments.fetching import AT_ONCE, Fetcher, give_pages
from experiments.gauges import Gauges, Use
from experiments.meanwhile import meanwhile
from experiments.proxy import Fault, Proxy
from experiments.report import Report
from tests import servers
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.access.model import Role as Grant
from weft.app import App
from weft.workers.remote.client import RemoteWorkerClient

RED, HURRIED = "r25:without_deadlines", "r25:hurry"
NEAR, FAR = "near", "far"
SETTINGS: dict[str, Any] = {"lease_seconds": 15.0, "heartbeat_seconds": 1.0, "poll_seconds": 0.5}

DATABASE, BROKER, GATEWAY, RECEIVER, SITE = "database", "broker", "gateway", "receiver", "site"
DEADLINES = {DATABASE: 21.0, BROKER: 30.0, GATEWAY: 60.0, RECEIVER: 10.0, SITE: 10.0}
"""When a call that nobody answers has ended, in seconds: a transaction, and the watch looks once a second; what a
listener reads, by the heartbeat of RabbitMQ; logs and results of a remote worker; a delivery; a fetch."""
HURRIED_SECONDS = 2.0

LOOK_SECONDS = 2.0
"""How long a run may take before another is tried to see whether all is well."""

MORE_MEGABYTES, MORE_THREADS, MORE_FILES = 200.0, 12, 64
"""How much more than before each process may use while it waits."""
LEFT_THREADS, LEFT_FILES = 6, 16
"""And afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    strikes: tuple[tuple[str, Fault], ...]
    fault_seconds: float
    broker: Callable[[], servers.Server] = servers.redis
    patch: str | None = None
    deadlines: dict[str, float] = field(default_factory=lambda: DEADLINES)
    health_seconds: float = 1.0
    spare_seconds: float = 5.0
    """How much later than its deadline a call may be seen to end."""
    back_seconds: float = 5.0
    """How much later than the deadline of a call weft may be back."""
    patience_seconds: float = 120.0


EACH = tuple((dependency, fault) for dependency in DEADLINES for fault in Fault)
FULL = (Size(strikes=EACH, fault_seconds=30.0), Size(strikes=EACH, fault_seconds=30.0, broker=servers.rabbitmq))
REDUCED = Size(
    strikes=(
        (DATABASE, Fault.SILENT),
        (DATABASE, Fault.SLOW),
        (DATABASE, Fault.BROKEN),
        (BROKER, Fault.SILENT),
        (GATEWAY, Fault.SILENT),
        (RECEIVER, Fault.SILENT),
        (SITE, Fault.SILENT),
    ),
    fault_seconds=1.0,
    patch=HURRIED,
    deadlines={
        DATABASE: HURRIED_SECONDS + 1,
        BROKER: 7.0,
        GATEWAY: HURRIED_SECONDS,
        RECEIVER: HURRIED_SECONDS,
        SITE: HURRIED_SECONDS,
    },
    health_seconds=3.0,  # the machine may be busy with other tests
    spare_seconds=10.0,
    back_seconds=40.0,  # runs are started for that, beside other tests
)
SHOWING = replace(
    REDUCED, strikes=((DATABASE, Fault.SILENT),), patch=RED, spare_seconds=3.0, back_seconds=3.0, patience_seconds=1.0
)


def hurry() -> None:
    """Shorter deadlines, so that what takes a minute takes seconds."""
    from weft.db import server
    from weft.webhooks import sender

    once: Any = RemoteWorkerClient._once

    async def soon(self: RemoteWorkerClient, *words: Any) -> Any:
        return await once(self, *words[:-1], min(words[-1], HURRIED_SECONDS))

    RemoteWorkerClient._once = soon  # type: ignore[method-assign, assignment]
    server.TRANSACTION_SECONDS, sender.ANSWER_SECONDS = HURRIED_SECONDS, HURRIED_SECONDS  # type: ignore[assignment]
    server.CONNECT["postgresql"]["connect_timeout"] = 2


def without_deadlines() -> None:
    """Red control: who waits for the database waits for ever."""
    from weft.db import server
    from weft.db.server import Watch

    hurry()
    Watch._shut_down = lambda self, connection: None  # type: ignore[method-assign]
    server.CONNECT["postgresql"]["connect_timeout"] = 3600


@dataclass(slots=True)
class Scene:
    """Weft with a proxy before each thing that it depends on."""

    cluster: Cluster
    app: App
    size: Size
    proxies: dict[str, Proxy]
    callers: Callers
    gauges: Gauges
    heard: list[float]
    """When the receiver of webhooks was called."""
    fetcher: Fetcher
    back: dict[str, float] = field(default_factory=dict)
    """How long after each fault all was well again."""

    async def strike_all(self, report: Report) -> None:
        for dependency, fault in self.size.strikes:
            proxy = self.proxies[dependency]
            proxy.strike(fault)
            await asyncio.sleep(self.size.fault_seconds)
            proxy.mend()
            began, name = time.monotonic(), f"{dependency} {fault}"
            allowed = self.size.deadlines[dependency] + self.size.back_seconds
            try:
                await eventually(lambda: self._all_is_well(began), allowed)  # noqa: B023
            except AssertionError:
                report.expect(False, f"{name}: not back within {allowed:g} s")
            self.back[name] = time.monotonic() - began

    async def _all_is_well(self, since: float) -> bool:
        """Runs are accepted, run by both workers and told to the receiver; and no call waits on a silent line."""
        until = time.monotonic() + LOOK_SECONDS
        runs = [await self.callers.one(label, until) for label in (NEAR, FAR)]
        try:
            await eventually(lambda: self._have_ended(runs), LOOK_SECONDS)
        except AssertionError:
            return False
        told = any(moment > since for moment in self.heard) and self.fetcher.came_at > since
        return told and not any(proxy.waiting() for proxy in self.proxies.values())

    async def _have_ended(self, runs: list[int | None]) -> bool:
        return all([run is not None and (await self.app.runs.get(run)).state == "succeeded" for run in runs])


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R25")
    sizes = (SHOWING,) if red else FULL if full else (REDUCED,)
    with servers.postgresql() as database:
        for size in sizes:
            with size.broker() as broker:
                await observe(report, size, database, broker)
    return report


async def observe(report: Report, size: Size, database: servers.Server, broker: servers.Server) -> None:
    began = time.monotonic()
    async with opened(size, database, broker) as scene:
        gauges = (scene.gauges.look_forever, scene.gauges.probe_forever)
        async with meanwhile(scene.callers.call_forever, scene.fetcher.fetch_forever, *gauges):
            await eventually(lambda: scene._all_is_well(0.0), 30)
            scene.gauges.take_as_normal()
            await scene.strike_all(report)
        more = {"kills": len(size.strikes), "seconds": time.monotonic() - began}
        name, patience = broker.kind.name, size.patience_seconds
        await checker.check(report, name, scene.app, lambda: scene.callers.story, patience=patience, **more)
        judge(report, scene)


@asynccontextmanager
async def opened(size: Size, database: servers.Server, broker: servers.Server) -> AsyncIterator[Scene]:
    """Everything started, with the workers joined."""
    heard: list[float] = []
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(await asyncio.start_server(listener(heard), "127.0.0.1", 0))
        gateway = free_port()
        targets = {DATABASE: database.port, BROKER: broker.port, GATEWAY: gateway}
        site = await stack.enter_async_context(await asyncio.start_server(give_pages, "127.0.0.1", 0))
        targets[RECEIVER] = int(receiver.sockets[0].getsockname()[1])
        targets[SITE] = int(site.sockets[0].getsockname()[1])
        proxies = {name: await stack.enter_async_context(Proxy(port)) for name, port in targets.items()}
        cluster = stack.enter_context(Cluster(database=database.new_database(), broker="polling:", **SETTINGS))
        app = await stack.enter_async_context(cluster.app())
        await start(cluster, app, size, proxies, broker)
        await app.webhooks.create(f"http://127.0.0.1:{proxies[RECEIVER].port}/", by="r25", kinds=["run_finished"])
        _, token = await app.keys.create("r25", {"default": Grant.DEVELOPER}, by="r25")
        address = f"http://127.0.0.1:{gateway}"
        gauges = Gauges(cluster.roles, f"{address}/healthz")
        page = f"http://127.0.0.1:{proxies[SITE].port}/"
        fetcher = await stack.enter_async_context(Fetcher(page, size.deadlines[SITE]))
        yield Scene(cluster, app, size, proxies, Callers(address, token, (NEAR, FAR)), gauges, heard, fetcher)


async def start(cluster: Cluster, app: App, size: Size, proxies: dict[str, Proxy], broker: servers.Server) -> None:
    """A control process and a worker that reach the servers through proxies, and one that reaches the gateway so."""
    through = {
        "database": at_port(cluster.config.database, proxies[DATABASE].port),
        "broker": at_port(broker.url, proxies[BROKER].port),
    }
    port = proxies[GATEWAY].target
    cluster.start("serve", ["weft", "serve", "--port", str(port)], red=size.patch, **through)
    cluster.start(NEAR, ["weft", "worker", "--name", NEAR, "--label", NEAR], red=size.patch, **through)
    _, token = await app.keys.create("join", {}, by="r25", kind="join")
    address = ["--connect", f"http://127.0.0.1:{proxies[GATEWAY].port}", "--token", token]
    nothing_else: dict[str, Any] = {"database": None, "broker": None, "data_dir": cluster.folder / FAR}
    words = ["weft", "worker", "--name", FAR, "--label", FAR, *address]
    cluster.start(FAR, words, red=size.patch, **nothing_else)

    async def have_joined() -> bool:
        return {NEAR, FAR} <= {one.name for one in await app.workers.all() if one.state != "offline"}

    await eventually(have_joined, 60)


def at_port(url: str, port: int) -> str:
    return make_url(url).set(port=port).render_as_string(hide_password=False)


def listener(heard: list[float]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A receiver of webhooks that notes when it was called."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                heard.append(time.monotonic())
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    return listen


def judge(report: Report, scene: Scene) -> None:
    size, gauges = scene.size, scene.gauges
    report.note("seconds to return: " + ", ".join(f"{name} {took:.1f}" for name, took in scene.back.items()))
    for name, proxy in scene.proxies.items():
        ended, waiting = max(proxy.given_up, default=0.0), proxy.waiting()
        report.note(f"{name}: {len(proxy.given_up)} calls without an answer ended after at most {ended:.1f} s")
        limit = size.deadlines[name] + size.spare_seconds
        report.expect(
            ended <= limit, f"{name}: a call ended after {ended:.1f} s, {size.deadlines[name]:g} s are allowed"
        )
        report.expect(not waiting, f"{name}: {len(waiting)} calls have not ended")
    fetcher, limit = scene.fetcher, size.deadlines[SITE] + size.spare_seconds
    report.note(f"fetches took {fetcher.slowest:.1f} s at most; without an answer: {fetcher.failures}")
    report.expect(
        fetcher.slowest <= limit, f"a fetch took {fetcher.slowest:.1f} s, {size.deadlines[SITE]:g} are allowed"
    )
    most = fetcher.most_connections
    report.expect(most <= AT_ONCE, f"there were {most} connections to a site, {AT_ONCE} are allowed")
    health = gauges.slowest_but_one_in_a_hundred
    report.note(f"/healthz: 99 % of {len(gauges.answers)} answers within {health * 1000:.0f} ms")
    report.expect(health <= size.health_seconds, f"/healthz took {health:.2f} s, {size.health_seconds:g} s are allowed")
    after = gauges.now()
    for name, before in gauges.before.items():
        report.note(f"{name}: before {before}; at most {gauges.peak[name]}; after {after.get(name, Use())}")
        judge_use(report, name, before, gauges.peak[name], after.get(name, Use()))
    report.note(
        f"{scene.callers.story.down} submits were told to come back, {scene.callers.hung} had no answer in time"
    )
    report.expect(not scene.cluster.fallen(), f"{scene.cluster.fallen()}")


def judge_use(report: Report, name: str, before: Use, peak: Use, after: Use) -> None:
    grown = peak.megabytes - before.megabytes
    report.expect(grown <= MORE_MEGABYTES, f"{name} has grown by {grown:.0f} MB, {MORE_MEGABYTES:g} are allowed")
    threads, files = peak.threads - before.threads, peak.files - before.files
    report.expect(threads <= MORE_THREADS, f"{name} had {threads} threads more, {MORE_THREADS} are allowed")
    report.expect(files <= MORE_FILES, f"{name} had {files} files more, {MORE_FILES} are allowed")
    threads, files = after.threads - before.threads, after.files - before.files
    report.expect(threads <= LEFT_THREADS, f"{name} has kept {threads} threads, {LEFT_THREADS} are allowed")
    report.expect(files <= LEFT_FILES, f"{name} has kept {files} files, {LEFT_FILES} are allowed")
