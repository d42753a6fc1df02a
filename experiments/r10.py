"""R10: what comes after a run is started once and never forgotten, also when schedulers are killed in between.

Graphs of tasks with fan-out, fan-in, rules and failures are made and started over HTTP. Two control processes kill
themselves with SIGKILL at random between taking the end of a run and committing what follows, and right after that
commit; they are killed from outside as well, and started again. In the end every node must have run, or been skipped,
once and as its rules say. Red control: the end of a run is gone before what follows it is queued.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from experiments import chaos
from experiments.cluster import Cluster, Role
from experiments.report import Report, Tally
from tests import servers
from tests.waiting import eventually
from weft.access.model import EVERYWHERE
from weft.access.model import Role as Grant
from weft.client.client import Client, connect
from weft.errors import DatabaseDown, GatewayDown
from weft.runs.model import Run
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task, UpstreamTask

DYING, RED = "r10:dying", "r10:release_in_two"
ENDED = ("succeeded", "failed", "cancelled")
DIES = 0.2
"""How often a control process that has taken ends of runs dies before its commit; as often right after it."""
DIES_RED = 0.4
FAILS = 0.2


@dataclass(frozen=True, slots=True)
class Size:
    graphs: int
    nodes: int
    kills: int
    """Those from outside."""
    deaths: int
    """How many there must be of both kinds."""


REDUCED = Size(graphs=12, nodes=10, kills=2, deaths=3)
FULL = Size(graphs=500, nodes=20, kills=30, deaths=100)
SHOWING = Size(graphs=12, nodes=10, kills=0, deaths=1)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R10")
    size = SHOWING if red else FULL if full else REDUCED
    with Cluster() as cluster:
        await scene(report, "SQLite", cluster, size, red=red)
    if full:
        with servers.postgresql() as server, Cluster(database=server.new_database()) as cluster:
            await scene(report, "PostgreSQL", cluster, size, red=False)
    return report


async def scene(report: Report, name: str, cluster: Cluster, size: Size, *, red: bool) -> None:
    began, seed = time.monotonic(), random.randrange(1_000_000)
    chance = random.Random(seed)
    graphs = {f"p{number}": graph(f"p{number}", size.nodes, chance) for number in range(size.graphs)}
    roles = [cluster.serve(f"serve{number}", red=RED if red else DYING) for number in (1, 2)]
    cluster.worker()
    async with cluster.app() as app:
        await cluster.ready(app)
        _, key = await app.keys.create("somebody", {EVERYWHERE: Grant.DEVELOPER}, by="experiment")
    elsewhere = Elsewhere([connect(f"http://127.0.0.1:{port}", key) for port in cluster.ports.values()])
    reviving = [asyncio.create_task(revive(role, elsewhere)) for role in roles]
    try:
        for project, tasks in graphs.items():
            await elsewhere.make(project, tasks)
        for project in graphs:
            await elsewhere.start(project)
        victims = [chaos.role_victim(role) for role in roles]
        killing = asyncio.create_task(kill(victims, size.kills, chance, elsewhere))
        nodes = sum(map(len, graphs.values()))
        try:
            await eventually(lambda: elsewhere.has_ended(nodes), 10.0 if red else 120.0)
        except AssertionError:
            report.note(f"{name}: not all nodes have ended")
        await killing
        found = [run for project in graphs for run in await elsewhere.runs(project)]
    finally:
        for task in reviving:
            task.cancel()
        await asyncio.gather(*reviving, return_exceptions=True)
        await elsewhere.close()
    report.add(name, judge(graphs, found, kills=elsewhere.deaths, seconds=time.monotonic() - began))
    report.note(f"{name}: seed {seed}")
    report.expect(elsewhere.deaths >= size.deaths, f"{name}: only {elsewhere.deaths} control processes have died")


def graph(project: str, nodes: int, chance: random.Random) -> list[Task]:
    """A root, and nodes that each come after one to three earlier ones, by random rules; some of them fail."""
    tasks: list[Task] = []
    for number in range(nodes):
        earlier = chance.sample(range(number), min(number, chance.choice([1, 1, 2, 3])))
        rules = tuple(
            UpstreamTask(f"n{each}", chance.choice(("success", "success", "any", "failure"))) for each in earlier
        )
        spec = {"fail": "it was to"} if number and chance.random() < FAILS else {}
        tasks.append(Task(name=f"n{number}", project=project, kind="noop", spec=spec, after=rules))
    return tasks


def expected(tasks: list[Task]) -> dict[str, str]:
    """What becomes of each node, by the rules alone."""
    found: dict[str, str] = {}
    met = {"success": ("succeeded",), "failure": ("failed",), "any": ("succeeded", "failed", "skipped")}
    for task in tasks:
        runs = all(found[rule.task] in met[rule.on] for rule in task.after)
        found[task.name] = ("failed" if task.spec else "succeeded") if runs else "skipped"
    return found


def judge(graphs: dict[str, list[Task]], found: list[Run], **more: Any) -> Tally:
    outcomes = {(project, node): end for project, tasks in graphs.items() for node, end in expected(tasks).items()}
    counts = Counter((run.project, run.task) for run in found)
    ended = {(run.project, run.task): run.outcome for run in found}
    return Tally(
        attempted=len(outcomes),
        acknowledged=len(graphs),
        ok=sum(counts[node] == 1 and ended[node] == outcome for node, outcome in outcomes.items()),
        lost=sum(counts[node] == 0 or (counts[node] == 1 and ended[node] != end) for node, end in outcomes.items()),
        duplicated=sum(count > 1 for count in counts.values()),
        **more,
    )


class Elsewhere:
    """The control processes, of which one or both may be dead."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients
        self.deaths = 0

    async def call(self, act: Any) -> Any:
        """Ask one after the other until there is an answer; every call here may be made again."""

        async def answered() -> list[Any]:
            for weft in self._clients:
                try:
                    return [await act(weft)]
                except (DatabaseDown, GatewayDown):
                    continue
            return []

        return (await eventually(answered, 120))[0]

    async def make(self, project: str, tasks: list[Task]) -> None:
        await self.call(lambda weft: weft.tasks.apply(DesiredState(tuple(tasks))))

    async def start(self, project: str) -> None:
        await self.call(lambda weft: weft.tasks.start(project, "n0", idempotency_key=f"start-{project}"))

    async def runs(self, project: str) -> list[Run]:
        found: list[Run] = await self.call(lambda weft: weft.runs.find({"project": project}, limit=100_000))
        return found

    async def has_ended(self, nodes: int) -> bool:
        ended: dict[str, int] = await self.call(lambda weft: weft.runs.ended(within_seconds=86_400))
        return sum(ended.values()) >= nodes

    async def close(self) -> None:
        for weft in self._clients:
            await weft.close()


async def revive(role: Role, seen: Elsewhere) -> None:
    """Start a control process again whenever it is dead."""
    while True:
        if not role.alive:
            seen.deaths += 1
            await asyncio.to_thread(role.start)
        await asyncio.sleep(0.1)


async def kill(victims: list[chaos.Victim], kills: int, chance: random.Random, seen: Elsewhere) -> None:
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.5, 2.0))
        victim = chance.choice(victims)
        if victim.alive():
            await asyncio.to_thread(victim.kill)


def dying() -> None:
    """The process dies between taking ends of runs and the commit of what follows them, or right after that."""
    from weft.db.database import Database
    from weft.tasks import scheduler

    release, transact, taken = scheduler.queue_downstream, Database.transact, list[int]()

    def release_or_die(*arguments: Any) -> tuple[int, int]:
        done = release(*arguments)
        if done[0] and random.random() < DIES:
            die()
        taken.append(done[0])
        return done

    async def commit(*arguments: Any, **named: Any) -> Any:
        taken.clear()
        done = await transact(*arguments, **named)
        if any(taken) and random.random() < DIES:
            die()
        return done

    scheduler.queue_downstream = release_or_die  # type: ignore[assignment]
    Database.transact = commit  # type: ignore[method-assign]


def release_in_two() -> None:
    """Red control: what follows is queued after the transaction that takes the ends of runs, if the process lives."""
    from weft import events
    from weft.tasks import scheduler

    def release(tx: Any, runs: Any, limit: int = 200) -> tuple[int, int]:
        taken = events.take(tx, scheduler.DOWNSTREAM_READER, limit)
        if not taken:
            return 0, 0
        ready = scheduler._ready_runs(tx, taken)
        if ready and random.random() < DIES_RED:
            tx.after_commit(die)
        else:
            runs.queue(tx, ready)
        return len(taken), len(ready)

    scheduler.queue_downstream = release


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
