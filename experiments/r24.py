"""R24: when the database goes away, clients get one clear error, running work goes on, and all is well soon after.

Under steady load over HTTP, PostgreSQL is restarted, shut down without a checkpoint, killed, robbed of its
connections, filled with connections, and made to report deadlocks. Commands that run must run on, also when they end
while nobody can be told.
Red control: a control process whose database layer neither tries again nor says in weft's words what went wrong.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments import breaking, checker
from experiments.clients import acknowledged, clients, door, story
from experiments.cluster import Cluster, Role
from experiments.report import Report
from tests import servers
from tests.waiting import eventually
from weft.app import App
from weft.client.client import Client, connect
from weft.errors import DatabaseDown, GatewayDown, WeftError
from weft.runs.model import NewRun, RunSpec

RED = "r24:speak_as_the_driver_does"
RECOVERY_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
CLIENTS = 2
RATE = 15.0
PROCESSES = 4
MOST_CONNECTIONS = PROCESSES * 7
"""For each process the whole pool, and two of the doorbell."""

Fault = Callable[[servers.Server, str, Callable[[], None]], None]
FAULTS: dict[str, Fault] = {
    "restart": breaking.restart,
    "immediate shutdown": breaking.restart_at_once,
    "kill": breaking.kill,
    "connections ended": breaking.end_connections,
    "connections taken": breaking.take_all_connections,
    "deadlocks": breaking.quarrel,
}
SHOWING = ("connections ended", "deadlocks")
"""Enough for the red control."""
UNSEEN = ("deadlocks",)
"""What clients must not notice at all."""

FAULT = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*(?P<what>.*)", re.MULTILINE)
"""A traceback in a log, and the error at its end."""

COMMAND = 'while [ ! -e "$END" ]; do sleep 0.1; done; echo finished'


@dataclass(slots=True)
class Scene:
    """One cluster on one PostgreSQL, the commands that run through faults, and the worst recovery from each."""

    server: servers.Server
    url: str
    cluster: Cluster
    app: App
    weft: Client
    entrance: dict[str, str]
    passing: tuple[type[WeftError], ...]
    """What a probe tries again after; clients tell of all but the first."""
    recovered: dict[str, float] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)

    async def start_command(self, name: str) -> None:
        """Start a command that runs until ``end`` is called, and wait until it runs."""
        spec = RunSpec(spec={"script": COMMAND, "env": {"END": str(self._end(name))}})
        new = NewRun(project="default", task="command", kind="shell", spec=spec, idempotency_key=f"command {name}")
        run_id = self.commands[name] = await self._submit(new)
        await eventually(lambda: self._is(run_id, "running"))

    def end(self, name: str) -> None:
        self._end(name).touch()

    async def suffer(self, number: int, fault: str) -> None:
        """Let the fault happen; a command ends in the midst of it. Then see how soon everyone is served again."""
        name = f"{fault} {number}"
        await self.start_command(name)
        await asyncio.to_thread(FAULTS[fault], self.server, self.url, lambda: self.end(name))
        began = time.monotonic()
        answered = self._answered()
        probe = NewRun(project="default", task="probe", kind="noop", spec=RunSpec(spec={}), idempotency_key=name)
        run_id = await self._submit(probe)
        await eventually(lambda: self._is(run_id, "succeeded"), PATIENCE_SECONDS)
        await eventually(lambda: all(self._answered()[name] > answered[name] for name in answered), PATIENCE_SECONDS)
        self.recovered[fault] = max(self.recovered.get(fault, 0.0), time.monotonic() - began)

    def _answered(self) -> dict[str, int]:
        return {name: acknowledged(self.cluster, self.cluster.roles[name]) for name in ("c1", "c2")}

    async def _submit(self, new: NewRun) -> int:
        while True:
            try:
                return (await self.weft.runs.submit([new]))[0].run_id
            except self.passing:
                await asyncio.sleep(0.02)

    async def _is(self, run_id: int, state: str) -> bool:
        try:
            return (await self.weft.runs.get(run_id)).state == state
        except self.passing:
            return False

    def _end(self, name: str) -> Path:
        return self.cluster.folder / f"end-{name.replace(' ', '-')}"


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R24")
    began = time.monotonic()
    with servers.postgresql(max_connections="60") as server:
        url = server.new_database()
        with Cluster(database=url, lease_seconds=6.0, heartbeat_seconds=0.5) as cluster:
            cluster.serve(red=RED if red else None)
            cluster.worker("w1")
            cluster.worker("w2")
            async with cluster.app() as app:
                await cluster.ready(app)
                entrance = await door(cluster, app)
                async with connect(cluster.url(), entrance["key"]) as weft:
                    passing = (DatabaseDown, GatewayDown) if red else (DatabaseDown,)
                    scene = Scene(server, url, cluster, app, weft, entrance, passing)
                    await suffer_all(report, scene, rounds=20 if full else 1, red=red)
                more = {"kills": len(scene.commands) - 1, "seconds": time.monotonic() - began}
                await checker.check(report, "PostgreSQL", app, lambda: story(cluster), patience=60, **more)
                await judge(report, scene)
    return report


async def suffer_all(report: Report, scene: Scene, *, rounds: int, red: bool) -> None:
    """Every fault, round after round, while one more command runs through all of them."""
    async with clients(scene.cluster, CLIENTS, rate=RATE, **scene.entrance):
        await scene.start_command("everything")
        before = breaking.connections(scene.server)
        for number in range(1, rounds + 1):
            for fault in SHOWING if red else FAULTS:
                told = story(scene.cluster).down
                await scene.suffer(number, fault)
                told = story(scene.cluster).down - told
                hidden = fault not in UNSEEN or not told
                report.expect(hidden, f"{told} submits were told of {fault}, which are to be tried again unseen")
        after = breaking.connections(scene.server)
        if not red:
            await start_newcomers(scene)
        scene.end("everything")
    report.expect(after <= MOST_CONNECTIONS, f"{after} connections are open, at most {MOST_CONNECTIONS} are needed")
    report.note(f"connections before {before}, after {after}")
    report.note(f"{story(scene.cluster).down} submits were told that the database is away")
    report.note("seconds to recover: " + ", ".join(f"{name} {took:.1f}" for name, took in scene.recovered.items()))


async def start_newcomers(scene: Scene) -> None:
    """Start roles while the server goes away again and again: each must wait for it, and then be there."""
    starts = [scene.cluster.serve, scene.cluster.worker]
    newcomers: list[Role] = []
    for number, start in enumerate(starts * 3):
        newcomers.append(start(f"newcomer{number}"))
        await asyncio.sleep(random.uniform(0.0, 0.5))
        if number % 2:
            await asyncio.to_thread(scene.server.kill)
            await asyncio.to_thread(scene.server.start)
    await scene.cluster.ready(scene.app)
    for role in newcomers:
        role.ask_to_stop()
    for role in newcomers:
        await role.ended()


async def judge(report: Report, scene: Scene) -> None:
    for fault, took in scene.recovered.items():
        report.expect(took <= RECOVERY_SECONDS, f"{took:.1f} s to recover from {fault}")
    for fault, run_id in scene.commands.items():
        run = await scene.app.runs.get(run_id)
        unharmed = (run.state, run.attempt) == ("succeeded", 1)
        report.expect(unharmed, f"the command that ran through {fault} {run.state} at attempt {run.attempt}")
    report.expect(not scene.cluster.fallen(), f"{scene.cluster.fallen()}")
    for role in scene.cluster.roles.values():
        unknown = FAULT.search(role.output())
        report.expect(unknown is None, f"{role.name} met an error that it did not know: {unknown and unknown['what']}")


def speak_as_the_driver_does() -> None:
    """Try each transaction once, and let the driver's own errors through."""
    from weft.db.server import ServerEngines, _tried

    def transact(self: Any, work: Any, first: str | None = None, engine: Any = None) -> Any:
        return _tried(engine or self.engine, work, first)

    ServerEngines._transact = transact  # type: ignore[method-assign]
