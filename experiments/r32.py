"""R32: restarting everything in turn, with SIGTERM and under load, loses nothing and harms no run.

Gateways and workers are stopped and started again one after the other; some of the workers are far away, at the other
end of a gateway. Clients call any gateway and try once more at another. Some runs are longer than a worker may take to
drain, so it gives them back. A second SIGTERM must speed a worker up, and SIGKILL in the midst of draining must be
safe. Red control: workers that end without giving their runs back.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, or_, select

from experiments import checker
from experiments.clients import client, clients, door, story
from experiments.cluster import Cluster, Role, answers
from experiments.report import Report
from experiments.submitter import AGAIN, TASK
from tests import servers
from tests.waiting import eventually
from weft.app import App
from weft.clock import Moment, now, seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.runs.model import NewRun, RunSpec

RED = "r32:keep_what_runs"
DRAIN_SECONDS = 1.5
SETTINGS: dict[str, Any] = {"drain_seconds": DRAIN_SECONDS, "lease_seconds": 15.0, "heartbeat_seconds": 0.5}
"""The lease is that of a new weft: in that time a gateway must be back, which is all that its far workers know."""
SHORT, LONG = 0.2, 6.0
"""How long runs take: the short ones end while a worker drains, the long ones do not."""

DOOMED = 3.0
"""How long the run takes whose worker is killed: longer than the worker needs to begin to drain."""

AT_ONCE_SECONDS = 0.5
"""From when on after SIGTERM nothing more may be leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it."""

    rounds: int
    gateways: int
    near: int
    """Workers on the database."""
    far: int
    """Workers at the other end of a gateway."""
    spare_seconds: float
    """How long a process may take to end beyond its drain time; less than a long run goes on, else nothing is shown."""
    ready_seconds: float
    """How long a gateway may say that it is ready after it was asked to stop."""


FULL = Size(rounds=20, gateways=3, near=2, far=2, spare_seconds=2.0, ready_seconds=1.0)
# A machine that tests may have much else to do.
REDUCED = Size(rounds=1, gateways=3, near=2, far=2, spare_seconds=4.0, ready_seconds=3.0)
SHOWING = Size(rounds=1, gateways=1, near=1, far=1, spare_seconds=4.0, ready_seconds=3.0)


@dataclass(slots=True)
class Restarts:
    """What was seen of workers and control processes that were asked to stop."""

    drains: list[float] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    unready: list[float] = field(default_factory=list)
    """How long each gateway still said that it was ready."""
    late: list[int] = field(default_factory=list)
    """Runs that a worker took after it was asked to stop."""


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R32")
    size = SHOWING if red else FULL if full else REDUCED
    with servers.postgresql() as server, Cluster(database=server.new_database(), **SETTINGS) as cluster:
        roles = [cluster.serve(f"gateway{number}") for number in range(1, size.gateways + 1)]
        roles += [cluster.worker(f"near{number}", red=RED if red else None) for number in range(1, size.near + 1)]
        async with cluster.app() as app:
            for number in range(1, size.far + 1):
                roles.append(await far_worker(cluster, app, f"far{number}", f"gateway{number}", RED if red else None))
            await cluster.ready(app)
            if red:
                await rolling(report, cluster, app, roles[size.gateways :], size)
            else:
                scenes = (hurried(report, cluster, app, size), killed(report, cluster, app))
                await asyncio.gather(rolling(report, cluster, app, roles, size), *scenes)
            report.expect(not cluster.fallen(), f"{cluster.fallen()}")
    return report


async def far_worker(cluster: Cluster, app: App, name: str, gateway: str, red: str | None) -> Role:
    """A worker that has the address of a gateway and a token, and nothing else."""
    _, token = await app.keys.create("join", {}, by="experiment", kind="join")
    far: dict[str, Any] = {"database": None, "broker": None, "data_dir": str(cluster.folder / name)}
    return cluster.worker(name, red=red, connect=address(cluster, gateway), token=token, **far)


def address(cluster: Cluster, gateway: str) -> str:
    return f"http://127.0.0.1:{cluster.ports[gateway]}"


async def rolling(report: Report, cluster: Cluster, app: App, roles: list[Role], size: Size) -> None:
    """Restart each role in turn while short and long runs are submitted."""
    began = time.monotonic()
    restarts = Restarts()
    entrance = await door(cluster, app)
    async with clients(cluster, 2, rate=10, sleep=SHORT, **entrance) as quick:
        slow = client(cluster, "slow", rate=2, sleep=LONG, **entrance)
        await eventually(lambda: _run_long(app, 4), 60)
        for _ in range(size.rounds):
            for role in roles:
                await restart(cluster, app, role, restarts)
        slow.ask_to_stop()
        await slow.ended()
    more = {"kills": len(restarts.drains), "seconds": time.monotonic() - began}
    await checker.check(report, "rolling restart", app, lambda: story(cluster), patience=90, **more)
    report.expect(not any(restarts.codes), f"processes ended with {restarts.codes}; 0 is a clean end")
    slowest = max(restarts.drains)
    report.note(f"slowest end {slowest:.1f} s")
    report.expect(slowest <= DRAIN_SECONDS + size.spare_seconds, f"a process took {slowest:.1f} s to end")
    report.expect(not restarts.late, f"draining workers have taken runs: {restarts.late[:5]}")
    if restarts.unready:
        judge_gateways(report, restarts, size, sum(tried_again(role) for role in [*quick, slow]))
    far = await app.db.read(done_far_away)
    report.note(f"{far} runs were done far away")
    report.expect(far > 0, "no run was done by a worker at the other end of a gateway")
    released, harmed = await app.db.read(given_back)
    report.note(f"{released} attempts given back")
    report.expect(released > 0, "no run was given back, so nothing was shown")
    report.expect(not harmed, f"runs have paid for a restart with a try or a loss: {harmed[:5]}")


def judge_gateways(report: Report, restarts: Restarts, size: Size, again: int) -> None:
    longest = max(restarts.unready)
    report.note(f"gateways said for {longest:.2f} s that they were ready; {again} calls were tried again elsewhere")
    report.expect(longest <= size.ready_seconds, f"a gateway said for {longest:.1f} s after SIGTERM that it was ready")
    report.expect(again > 0, "no client met a gateway that was away, so nothing was shown")


def tried_again(role: Role) -> int:
    """How many calls a client had to make at a second gateway."""
    return int(role.output().rpartition(AGAIN)[2])


async def restart(cluster: Cluster, app: App, role: Role, restarts: Restarts) -> None:
    """Stop a role, wait for its end, start it again and wait until it is back."""
    asked_at, began = now(), time.monotonic()
    role.ask_to_stop()
    if (port := cluster.ports.get(role.name)) is not None:
        await eventually(lambda: _is_unready(port))
        restarts.unready.append(time.monotonic() - began)
    restarts.codes.append(await role.ended(DRAIN_SECONDS + 30))
    restarts.drains.append(time.monotonic() - began)
    ended_at = now()
    restarts.late += await app.db.read(lambda tx: taken(tx, role.name, asked_at + seconds(AT_ONCE_SECONDS), ended_at))
    role.start()
    await cluster.ready(app)


def taken(tx: Transaction, worker: str, since: Moment, until: Moment) -> list[int]:
    """Runs that ``worker`` took between two moments."""
    runs = schema.runs
    query = select(runs.c.id).where(runs.c.worker == worker, runs.c.started_at.between(since, until))
    return [row[0] for row in tx.rows(query)]


def given_back(tx: Transaction) -> tuple[int, list[str]]:
    """How many attempts of clients' runs were given back, and what became of those that cost a try or a loss."""
    runs, attempts = schema.runs, schema.attempts
    released = tx.value(select(func.count()).where(attempts.c.outcome == "released"))
    harmed = select(runs.c.id).where(runs.c.task == TASK, or_(runs.c.tries != 1, runs.c.losses != 0))
    query = select(attempts).where(attempts.c.run_id.in_(harmed), attempts.c.outcome != "released")
    found = [f"run {row.run_id} on {row.worker}: {row.outcome}, {row.reason}" for row in tx.rows(query)]
    return int(released), found


def done_far_away(tx: Transaction) -> int:
    runs = schema.runs
    return int(tx.value(select(func.count()).where(runs.c.worker.like("far%"), runs.c.outcome == "succeeded")))


async def hurried(report: Report, cluster: Cluster, app: App, size: Size) -> None:
    """A worker that has all the time to drain ends at once when it is asked a second time."""
    role = await busy_worker(cluster, app, "patient", sleep_seconds=600.0)
    role.ask_to_stop()
    await eventually(lambda: _is_draining(app, role))
    began = time.monotonic()
    role.ask_to_stop()
    await role.ended()
    took = time.monotonic() - began
    report.note(f"asked twice, a worker ended after {took:.1f} s")
    report.expect(took <= size.spare_seconds, f"a worker that was asked twice took {took:.1f} s to end")
    run = (await app.runs.find({"task": "patient"}))[0]
    given = (run.state, run.tries, run.losses) == ("queued", 0, 0)
    report.expect(given, f"a run whose worker was hurried is {run.state}, tries {run.tries}, losses {run.losses}")
    await app.runs.cancel(run.id)


async def killed(report: Report, cluster: Cluster, app: App) -> None:
    """A run whose worker is killed while it drains starts again elsewhere."""
    role = await busy_worker(cluster, app, "doomed", sleep_seconds=DOOMED)
    role.ask_to_stop()
    await eventually(lambda: _is_draining(app, role))
    role.kill()
    cluster.worker("heir", labels="doomed")
    run = (await app.runs.find({"task": "doomed"}))[0]
    await eventually(lambda: _has_succeeded(app, run.id), 60)
    run = await app.runs.get(run.id)
    report.expect(run.attempt == 2, f"a run whose worker was killed while draining succeeded at attempt {run.attempt}")


async def busy_worker(cluster: Cluster, app: App, label: str, sleep_seconds: float) -> Role:
    """A worker of its own label, with much time to drain, that runs one run and has room for no other."""
    role = cluster.worker(label, labels=label, capacity=1, drain_seconds=600.0)
    run_id = await submit_to(app, label, sleep_seconds)
    await eventually(lambda: _is_running(app, run_id), 60)
    return role


async def submit_to(app: App, label: str, sleep_seconds: float) -> int:
    spec = RunSpec(spec={"sleep_seconds": sleep_seconds}, labels=(label,))
    return (await app.runs.submit([NewRun(project="default", task=label, kind="noop", spec=spec)]))[0].run_id


async def _run_long(app: App, count: int) -> bool:
    """Whether so many of the runs are under way that no worker can wait for."""
    runs = schema.runs
    query = select(func.count()).where(runs.c.correlation_id.like("slow-%"), runs.c.state == "running")
    return bool(await app.db.read(lambda tx: tx.value(query)) >= count)


async def _is_unready(port: int) -> bool:
    return not await answers(port, "/readyz")


async def _is_running(app: App, run_id: int) -> bool:
    return (await app.runs.get(run_id)).state == "running"


async def _has_succeeded(app: App, run_id: int) -> bool:
    return (await app.runs.get(run_id)).state == "succeeded"


async def _is_draining(app: App, role: Role) -> bool:
    return any(one.pid == role.pid and one.state == "draining" for one in await app.workers.all())


def keep_what_runs() -> None:
    """Let a worker that ends stop its runs without giving them back."""
    from weft.workers.worker import Worker

    async def give_back(self: Any) -> None:
        tasks = [running.task for running in self._running.values()]
        self._stop_all("lost")
        if tasks:
            await asyncio.wait(tasks)

    Worker._give_back = give_back  # type: ignore[method-assign]
