"""R30: overload degrades in order: what is too much is refused clearly, the rest is done, and nobody else pays for it.

A ramp finds the rate of submits that one gateway and its worker sustain. Then three tenants offer ten times as much,
almost all of it from one of them, while somebody reads. What is refused must be told so with a time to come back; what
was accepted must be done; the other tenants must hardly notice. Red control: a gateway without limits.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from experiments import checker, tenant
from experiments.clients import history_of, story
from experiments.cluster import Cluster, Role
from experiments.report import Report
from experiments.tenant import Figures, percentile
from experiments.vitals import Vitals, waiting, waits
from tests import servers
from tests.waiting import eventually
from weft.access.model import Role as Grant
from weft.app import App
from weft.clock import Moment, now, seconds
from weft.tasks.changes import DesiredState
from weft.tasks.model import ProjectSettings

RED = "r30:without_limits"
ABUSER, OTHERS = "greedy", ("modest", "humble")
TIMES = 10
RUN_SECONDS = 0.1
"""How long a run takes: what is sustained depends on the places of the worker, as it does in life."""
MOST_QUEUED = 200
HANDS = 512
REFUSALS = {"429 queue_full", "429 too_many_requests", "503 overloaded"}
FLAT_BYTES = 48 << 20
"""By how much the gateway may grow: the buffers of some hundred connections, and what an allocator keeps."""
STILL_BYTES = 16 << 20
"""By how much of that in the last third of the flood, when all connections are open."""
RECOVERY_SECONDS = 60.0
SETTINGS: dict[str, Any] = {"lease_seconds": 15.0, "heartbeat_seconds": 1.0, "poll_seconds": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it."""

    capacity: int
    """Places of the worker: ten times as many runs as these are done in a second."""
    ramp: tuple[int, ...]
    step_seconds: float
    quiet_seconds: float
    overload_seconds: float
    floor_seconds: float
    """Waits of others up to this are fine even where a quiet system is more than twice as fast: its waits are a few
    milliseconds, and all the processes of the experiment share the cores with the gateway."""
    read_seconds: float


# A machine that tests may have much else to do.
REDUCED = Size(
    capacity=8,
    ramp=(30, 60),
    step_seconds=1.0,
    quiet_seconds=1.5,
    overload_seconds=4.0,
    floor_seconds=1.5,
    read_seconds=2.0,
)
FULL = Size(
    capacity=10,
    ramp=(20, 40, 60, 70, 80, 90, 100),
    step_seconds=10.0,
    quiet_seconds=30.0,
    overload_seconds=300.0,
    floor_seconds=0.25,
    read_seconds=1.0,
)
SHOWING = Size(
    capacity=8,
    ramp=(60,),
    step_seconds=0.5,
    quiet_seconds=0.5,
    overload_seconds=3.0,
    floor_seconds=1.5,
    read_seconds=2.0,
)


class Scene:
    """One gateway, one worker, and the tenants."""

    def __init__(self, cluster: Cluster, app: App, gateway: Role, keys: dict[str, str], size: Size) -> None:
        self._cluster, self.app, self.gateway, self._keys, self.size = cluster, app, gateway, keys, size
        self.vitals = Vitals()

    def tenant(self, name: str, project: str, rate: float, *, what: str = "submit", **flags: Any) -> Role:
        """Start a process that submits runs of a project, or reads, at a rate."""
        words: dict[str, Any] = {"address": f"127.0.0.1:{self._cluster.ports['serve']}", "name": name}
        words |= {"project": project, "rate": rate, "figures": self._figures_of(name)} | flags
        if what == "submit":
            words |= {"sleep": RUN_SECONDS, "history": history_of(self._cluster, name)}
        command = ["experiments.tenant", what, *(f"--{word}={value}" for word, value in words.items())]
        return self._cluster.start(name, command, experiment_key=self._keys[project])

    async def figures(self, role: Role) -> Figures:
        """What a tenant has seen, once it has ended."""
        code = await role.ended(self.size.overload_seconds + tenant.HUNG_SECONDS + 60)
        if code:
            raise RuntimeError(f"{role.name} ended with {code}: {role.output()[-500:]}")
        return msgspec.json.decode(self._figures_of(role.name).read_bytes(), type=Figures)

    def _figures_of(self, name: str) -> Path:
        return self._cluster.folder / f"{name}.figures"

    async def sustainable(self) -> int:
        """The highest rate of the ramp at which everything is accepted and nothing piles up."""
        found = 0
        for rate in self.size.ramp:
            role = self.tenant(f"ramp{rate}", ABUSER, rate, seconds=self.size.step_seconds, hands=64)
            seen = await self.figures(role)
            waiting = sum((await self.app.runs.counts()).values())
            if set(seen.answers) != {"202"} or seen.rate < 0.9 * rate or waiting > rate / 4 + 10:
                break
            found = rate
        await checker.drained(self.app, 60)
        return found

    async def waits(self, since: Moment, until: Moment) -> list[float]:
        """How long the runs of the others that were accepted meanwhile have waited for their start."""
        return await self.app.db.read(lambda tx: waits(tx, OTHERS, since, until))


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R30")
    size = SHOWING if red else FULL if full else REDUCED
    await overload(report, "SQLite", "", size, red=red)
    if full and not red:
        with servers.postgresql() as server:
            await overload(report, "PostgreSQL", server.new_database(), size, red=False)
    return report


async def overload(report: Report, name: str, database: str, size: Size, *, red: bool) -> None:
    began = time.monotonic()
    with Cluster(database=database, capacity=size.capacity, **SETTINGS) as cluster:
        gateway, worker = cluster.serve(red=RED if red else None), cluster.worker("w1")
        async with cluster.app() as app:
            await cluster.ready(app)
            scene = Scene(cluster, app, gateway, await invite(app), size)
            sustained = await scene.sustainable()
            report.expect(sustained > 0, f"{name}: not even {size.ramp[0]} submits a second were sustained")
            report.note(f"{name}: {sustained} submits a second are sustained")
            await offer(report, name, scene, sustained or size.ramp[0], red=red)
            if not red:
                more = {"seconds": time.monotonic() - began}
                tally = await checker.check(report, name, app, lambda: story(cluster), patience=60, **more)
                report.expect(not tally.recovered, f"{name}: {tally.recovered} runs are there that were refused")
            report.expect(gateway.alive and worker.alive, f"{name}: {cluster.fallen()}")


async def invite(app: App) -> dict[str, str]:
    """A project with a bounded queue for each tenant, and a key that is good for it alone."""
    projects = (ABUSER, *OTHERS)
    await app.tasks.apply(DesiredState((), {each: ProjectSettings(max_queued=MOST_QUEUED) for each in projects}))
    return {each: (await app.keys.create(each, {each: Grant.DEVELOPER}, by="experiment"))[1] for each in projects}


async def offer(report: Report, name: str, scene: Scene, sustained: int, *, red: bool) -> None:
    """Quiet, too much, and quiet again; two tenants do the same all the time."""
    size, rate = scene.size, max(10.0, sustained / 10)  # enough for a percentile
    others = [scene.tenant(each, each, rate, hands=32) for each in OTHERS]
    await eventually(lambda: enough(scene, 10), 60)
    quiet_at = now()
    async with scene.vitals.watching(scene.app, scene.gateway.pid):
        await asyncio.sleep(size.quiet_seconds)
        quiet = percentile(await scene.waits(quiet_at, now()), 0.95)
        memory = scene.vitals.memory[-1]
        reader = scene.tenant("reader", OTHERS[0], 20, what="read", seconds=size.overload_seconds, hands=16)
        flood = scene.tenant("flood", ABUSER, TIMES * sustained * 1.1, seconds=size.overload_seconds, hands=HANDS)
        flooded_at = now()
        greedy, reads = await asyncio.gather(scene.figures(flood), scene.figures(reader))
    over_at, ended = now(), time.monotonic()
    allowed = max(2 * quiet, size.floor_seconds)
    loud = percentile(await scene.waits(flooded_at, over_at), 0.95)
    report.note(f"{name}: others waited {quiet * 1000:.0f} ms in the quiet, {loud * 1000:.0f} ms in the flood (p95)")
    report.expect(loud <= allowed, f"{name}: others waited {loud:.2f} s (p95), {allowed:.2f} s are allowed")
    judge_memory(report, name, scene.vitals, memory)
    judge_greedy(report, name, greedy, sustained * TIMES)
    judge_reads(report, name, reads, size.read_seconds)
    if not red:
        await recover(report, name, scene, allowed, ended)
    for role in others:
        role.ask_to_stop()
    judge_others(report, name, [await scene.figures(role) for role in others])


async def enough(scene: Scene, count: int) -> bool:
    return len(await scene.waits(0, now())) >= count


async def recover(report: Report, name: str, scene: Scene, allowed: float, ended: float) -> None:
    """Wait until the queue of the greedy one is empty and the others wait no longer than they did before."""

    async def is_quiet() -> bool:
        latest = await scene.waits(now() - seconds(1), now())
        left = (await scene.app.db.read(waiting)).get(ABUSER, 0)
        return not left and len(latest) >= 5 and percentile(latest, 0.95) <= allowed

    try:
        await eventually(is_quiet, RECOVERY_SECONDS)
    except AssertionError:
        report.expect(False, f"{name}: {RECOVERY_SECONDS:g} s after the flood it was not quiet again")
    report.note(f"{name}: quiet again {time.monotonic() - ended:.1f} s after the flood")


def judge_memory(report: Report, name: str, vitals: Vitals, before: int) -> None:
    grown = max(vitals.memory) - before
    report.note(f"{name}: the gateway had {before >> 20} MB and grew by {grown >> 20} MB")
    report.expect(grown <= FLAT_BYTES, f"{name}: the gateway grew by {grown >> 20} MB, {FLAT_BYTES >> 20} are allowed")
    late = vitals.grown_late
    report.note(f"{name}: in the last third of it by {late / 2**20:.1f} MB")
    report.expect(late <= STILL_BYTES, f"{name}: the gateway still grew by {late >> 20} MB in the last third of it")
    for project, most in vitals.queued.items():
        report.expect(most <= MOST_QUEUED, f"{name}: {most} runs of {project} waited at once, {MOST_QUEUED} may")


def judge_greedy(report: Report, name: str, seen: Figures, wanted: float) -> None:
    report.note(f"{name}: the greedy one offered {seen.rate:.0f} a second and was told {seen.answers}")
    report.expect(seen.rate >= wanted, f"{name}: only {seen.rate:.0f} submits a second were offered of {wanted:.0f}")
    report.expect(bool(set(seen.answers) & REFUSALS), f"{name}: nothing was refused")
    judge_answers(report, name, seen, {"202"} | REFUSALS)


def judge_reads(report: Report, name: str, seen: Figures, allowed: float) -> None:
    slow = seen.share(0.99)
    report.note(f"{name}: p99 of {len(seen.latencies)} reads {slow * 1000:.0f} ms")
    report.expect(slow < allowed, f"{name}: reads took {slow:.2f} s (p99), less than {allowed:g} s is wanted")
    judge_answers(report, name, seen, {"200"})


def judge_others(report: Report, name: str, seen: list[Figures]) -> None:
    for each in seen:
        report.note(f"{name}: another tenant had {each.answers}, p99 {each.share(0.99) * 1000:.0f} ms")
        judge_answers(report, name, each, {"202"})


def judge_answers(report: Report, name: str, seen: Figures, allowed: set[str]) -> None:
    strange = {answer: count for answer, count in seen.answers.items() if answer not in allowed}
    report.expect(not strange, f"{name}: there were answers {strange}")
    report.expect(not seen.curt, f"{name}: {seen.curt} refusals had no Retry-After")
    report.expect(not seen.hung, f"{name}: {seen.hung} requests had no answer")
    report.expect(not seen.broken, f"{name}: {seen.broken} connections broke")


def without_limits() -> None:
    """Let a gateway take whatever comes: no rate, no places, no bound of a queue."""
    from weft.http.limits import ConcurrencyLimit, RateLimit
    from weft.runs.runs import Runs

    take_rates, take_places = RateLimit.__init__, ConcurrencyLimit.__init__

    RateLimit.__init__ = lambda self, *_: take_rates(self, 0.0)  # type: ignore[method-assign]
    ConcurrencyLimit.__init__ = lambda self, _, *more: take_places(self, 0, *more)  # type: ignore[method-assign]
    Runs._check_bounds = lambda *_: None  # type: ignore[method-assign]
