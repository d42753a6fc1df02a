"""Link: a worker that reaches nothing but the gateway's port loses nothing while its link is cut 20 times.

``weft worker --connect https://…`` runs in a network of its own. A steady stream of commands is submitted, each with a
log; the link is cut for moments and for longer than a lease: unplugged, switched off, or with the packets of one
direction dropped silently. At the end each run has ended well, once, and its log is whole. Red control: a worker that
tells each piece of a log once.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Any

from sqlalchemy import func, select

from experiments import checker
from experiments.certificates import issue
from experiments.cluster import Cluster, Role
from experiments.gate import PATIENT
from experiments.history import Story
from experiments.meanwhile import meanwhile
from experiments.namespace import Namespace
from experiments.report import Report
from experiments.submitter import TASK
from tests import servers
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.errors import GatewayDown
from weft.runs.model import NewRun, RunSpec
from weft.workers.remote.protocol import RemoteBlobs, RemoteProtocol

RED = "link:tell_once"
LINES, LONG_LINES = 5, 100_000
"""How many lines a run prints; and one in eight runs, whose log needs more than one call."""
SCRIPT = """
for line in 1 2 3 4 5; do echo "$PARAM_KEY $line"; sleep 0.1; done
if [ "$PARAM_LONG" = 1 ]; then seq 100000; fi
"""
ONCE_SECONDS = 0.3
RATE = 4.0
"""Runs a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    cuts: int
    lease_seconds: float
    heartbeat_seconds: float
    short_seconds: tuple[float, float] = (0.1, 0.5)
    pause_seconds: tuple[float, float] = (0.2, 0.5)
    every: int = 5
    """Of so many cuts, one lasts longer than a lease."""
    running: int = 0
    """How many runs there must be for a cut to meet."""

    def seconds(self, number: int) -> float:
        """How long cut ``number`` lasts, counted from 1."""
        if number % self.every == 0:
            return self.lease_seconds * random.uniform(1.5, 2.0)
        return random.uniform(*self.short_seconds)


REDUCED = Size(cuts=20, lease_seconds=1.2, heartbeat_seconds=0.25)
FULL = Size(cuts=20, lease_seconds=15.0, heartbeat_seconds=3.0, short_seconds=(0.5, 10.0), pause_seconds=(3.0, 10.0))
SHOWING = Size(cuts=6, lease_seconds=15.0, heartbeat_seconds=3.0, short_seconds=(1.0, 1.5), every=10, running=2)


@dataclass(slots=True)
class Stream:
    """Submits runs one after the other, and remembers what it was told."""

    app: App
    story: Story = field(default_factory=Story)

    async def flow(self) -> None:
        began = time.monotonic()
        for number in count(1):
            key = f"link-{number}"
            self.story.tried.add(key)
            (answer,) = await self.app.runs.submit([new_run(key, is_long=number % 8 == 0)])
            self.story.acked[key] = answer.run_id
            await asyncio.sleep(max(0.0, number / RATE - (time.monotonic() - began)))

    async def torn(self) -> list[str]:
        """The runs whose log is not what they have printed."""
        keys = {key: self.app.runs.log(run_id) for key, run_id in self.story.acked.items()}
        return [key for key, log in keys.items() if await log != printed(key)]


def new_run(key: str, *, is_long: bool) -> NewRun:
    spec = RunSpec(spec={"script": SCRIPT}, params={"key": key, "long": int(is_long)}, retry=PATIENT)
    return NewRun(project="default", task=TASK, kind="shell", spec=spec, correlation_id=key, idempotency_key=key)


def printed(key: str) -> bytes:
    """All that a run prints, whichever attempt it is."""
    short = [f"{key} {line}" for line in range(1, LINES + 1)]
    long = map(str, range(1, LONG_LINES + 1)) if int(key.rpartition("-")[2]) % 8 == 0 else ()
    return "".join(f"{line}\n" for line in [*short, *long]).encode()


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("Link")
    size = SHOWING if red else FULL if full else REDUCED
    beats: dict[str, Any] = {"lease_seconds": size.lease_seconds, "heartbeat_seconds": size.heartbeat_seconds}
    with (
        Namespace() as network,
        servers.postgresql() as server,
        Cluster(database=server.new_database(), **beats) as cluster,
    ):
        async with cluster.app() as app:
            port = free_port()
            await start(cluster, app, network, port, red=RED if red else None)
            await asyncio.to_thread(try_doors, report, network, port, server.port)
            await observe(report, cluster, app, network, size)
    return report


async def start(cluster: Cluster, app: App, network: Namespace, port: int, *, red: str | None) -> Role:
    """Start a gateway on this end of the link and a worker at the other; return when it has joined."""
    ca_file, certificate = issue(cluster.folder, network.host)
    cluster.start("gateway", ["weft", "serve", "--port", str(port)], host=network.host, tls_certificate=certificate)
    _, token = await app.keys.create("join", {}, by="experiment", kind="join")
    address = ["--connect", f"https://{network.host}:{port}", "--token", token, "--ca-file", str(ca_file)]
    nothing_else: dict[str, Any] = {"database": None, "broker": None, "data_dir": cluster.folder / "far"}
    words = ["weft", "worker", "--name", "far", *address]
    role = cluster.start("far", words, red=red, prefix=network.prefix, **nothing_else)

    async def has_joined() -> bool:
        return any(one.name == "far" and one.state != "offline" for one in await app.workers.all())

    await eventually(has_joined, 60)
    return role


def try_doors(report: Report, network: Namespace, gateway: int, database: int) -> None:
    """From inside, the gateway's port is open and nothing else is."""
    doors = {
        "the gateway": (network.host, gateway, "open"),
        "the database": (network.host, database, "ConnectionRefusedError"),
        "the database on its own address": ("127.0.0.1", database, "ConnectionRefusedError"),
        "another machine": ("192.0.2.1", 80, "OSError"),
    }
    for name, (host, port, expected) in doors.items():
        command = [*network.prefix, sys.executable, "-c", KNOCK, host, str(port)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        report.expect(found == expected, f"from inside, {name} is {found}, not {expected}")


KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
    print("open")
except OSError as problem:
    print(type(problem).__name__)
"""


async def observe(report: Report, cluster: Cluster, app: App, network: Namespace, size: Size) -> None:
    began, stream = time.monotonic(), Stream(app)
    async with meanwhile(stream.flow):
        await cut_again_and_again(app, network, size)
    name, patience = f"{size.cuts} cuts", 60 + 4 * size.lease_seconds
    more = {"kills": size.cuts, "seconds": time.monotonic() - began}
    await checker.check(report, name, app, lambda: stream.story, patience=patience, **more)
    torn = await stream.torn()
    report.expect(not torn, f"the logs of {len(torn)} runs are not whole: {torn[:5]}")
    earlier = await app.db.read(lambda tx: dict(tx.rows(EARLIER)))
    report.note(f"attempts that were not the last of their run: {earlier}")
    report.expect(earlier.get("lost", 0) > 0 or size is SHOWING, "no lease was lost, so little was shown")
    strange = earlier.keys() - {"lost", "released"}
    report.expect(not strange, f"attempts have ended as {sorted(strange)}")
    report.expect(not cluster.fallen(), f"{cluster.fallen()}")


EARLIER = (
    select(schema.attempts.c.outcome, func.count())
    .join(schema.runs, schema.runs.c.id == schema.attempts.c.run_id)
    .where(schema.attempts.c.attempt < schema.runs.c.attempt)
    .group_by(schema.attempts.c.outcome)
)
"""How the attempts ended that were followed by others."""


async def cut_again_and_again(app: App, network: Namespace, size: Size) -> None:
    async def is_busy() -> bool:
        return (await app.runs.counts())["running"] >= size.running

    kinds = (network.unplug, network.switch_off, network.swallow_answers, network.swallow_requests)
    for number, cut in enumerate(islice(cycle(kinds), size.cuts), start=1):
        await asyncio.sleep(random.uniform(*size.pause_seconds))
        await eventually(is_busy, 60)
        await asyncio.to_thread(cut)
        await asyncio.sleep(size.seconds(number))
        await asyncio.to_thread(network.mend)


def tell_once() -> None:
    """Red control: what of a log does not come through at once is forgotten."""
    from weft.workers import log_spool

    keep, ship = RemoteBlobs.keep_log, RemoteProtocol.ship

    async def keep_once(self: RemoteBlobs, run_id: int, attempt: int, spool: Any) -> None:
        await _at_once(keep(self, run_id, attempt, spool))

    async def ship_once(self: RemoteProtocol, worker_id: int, chunks: Any) -> None:
        try:
            await _at_once(ship(self, worker_id, chunks))
        except GatewayDown:
            pass

    RemoteBlobs.keep_log = keep_once  # type: ignore[method-assign]
    log_spool.FINAL = (*log_spool.FINAL, GatewayDown)  # type: ignore[assignment]
    RemoteProtocol.ship = ship_once  # type: ignore[method-assign]


async def _at_once(call: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(ONCE_SECONDS):
            return await call
    except TimeoutError as problem:
        raise GatewayDown("the gateway", "no answer at once") from problem
