"""100,000 schedules: what an idle scheduler costs, how soon 10,000 ticks of one second are queued, how late others."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import func, select

from bench.latencies import Latencies, machine_load
from bench.measure import Goal, cpu_seconds, judge, table
from bench.roles import Roles, place
from bench.servers import Servers
from bench.setups import Setup, chosen, defaults
from bench.waiting import until
from weft.app import App, open_app
from weft.clock import SECOND, Moment, now, seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule

APPLIED_AT_ONCE = 5_000
FAR_SECONDS = 7_200
MINUTELY = 100
"""How many of the ticks of an ordinary minute fall on its first second, as cron's do."""
A_SECOND = 30

IDLE_CPU, BURST_SECONDS, LATE_MS = 0.02, 5.0, 50.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one database's scheduler did."""

    setup: str
    schedules: int
    idle_cpu: float
    burst: int
    burst_seconds: float
    late: Latencies
    recorded: Latencies


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        seen = [asyncio.run(measure(setup, options)) for setup in chosen(defaults(servers), options.only)]
    print(report(seen))
    print(machine_load())
    return judge(goals(seen))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench schedules", description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="the part of the 100,000 schedules that are stored (1)")
    parser.add_argument("--seconds", type=float, default=20, help="how long the idle scheduler is watched (20)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only set-ups with all of these words")
    return parser.parse_args(arguments)


async def measure(setup: Setup, options: argparse.Namespace) -> Seen:
    total, burst = int(100_000 * options.scale), int(10_000 * options.scale)
    with place(**setup.settings()) as config, Roles(config) as roles:
        app = await open_app(config)
        await store(app, [far(number) for number in range(total)])
        serve = roles.weft("serve")
        await leads(app)
        idle = await idle_cpu(serve.pid, options.seconds)
        took = await burst_seconds(app, burst)
        late, recorded = await lateness(app, total - MINUTELY)
        await app.close()
    return Seen(setup.name, total, idle, burst, took, late, recorded)


def far(number: int) -> Task:
    return task(number, Schedule(every_seconds=86_400, start_at=now() + (FAR_SECONDS + number) * SECOND))


def task(number: int, schedule: Schedule) -> Task:
    return Task(name=f"task-{number}", project="bench", kind="noop", schedule=schedule)


async def store(app: App, tasks: Sequence[Task]) -> None:
    for start in range(0, len(tasks), APPLIED_AT_ONCE):
        await app.tasks.apply(DesiredState(tuple(tasks[start : start + APPLIED_AT_ONCE])))


async def leads(app: App) -> None:
    """Return when the scheduler does its duty, and its start is over."""
    await until("a scheduler leads", lambda: app.db.read(is_led))
    await asyncio.sleep(2)


def is_led(tx: Transaction) -> bool:
    return bool(tx.value(select(func.count()).select_from(schema.leaders)))


async def idle_cpu(pid: int, span: float) -> float:
    """The part of a core that the process uses while nothing is due."""
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(span)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


async def burst_seconds(app: App, count: int) -> float:
    """How long after their common moment the last of ``count`` ticks is seen to be queued."""
    due = (now() // SECOND + 15 + count // 250) * SECOND  # long enough to store them, also on a busy machine
    await store(app, [task(number, Schedule(every_seconds=86_400, start_at=due)) for number in range(count)])
    if now() >= due:
        raise RuntimeError(f"{count} schedules took too long to store; the moment they wait for has passed")
    await until(f"{count} ticks queued", lambda: app.db.read(lambda tx: ticks(tx) >= count), step=0.02, patience=300)
    return (now() - due) / SECOND


def ticks(tx: Transaction) -> int:
    return int(tx.value(select(func.count()).select_from(schema.ticks)))


async def lateness(app: App, first: int) -> tuple[Latencies, Latencies]:
    """From its moment until a tick's run is seen, and until its recorded time, over an ordinary minute."""
    minute = (now() // (60 * SECOND) + 1) * 60 * SECOND
    if minute - now() < 20 * SECOND:
        minute += 60 * SECOND
    begin = minute - 10 * SECOND
    steady = [task(first - number, at(begin, number)) for number in range(1, A_SECOND * 30 + 1)]
    await store(app, steady + [task(first + number, Schedule(cron="* * * * *")) for number in range(MINUTELY)])
    last = await app.db.read(lambda tx: tx.value(select(func.max(schema.runs.c.id)))) or 0
    seen = [row async for row in arriving(app, last, begin + 33 * SECOND)]
    return (
        Latencies((moment - fire) / 1000 for moment, fire, _ in seen),
        Latencies((queued - fire) / 1000 for _, fire, queued in seen),
    )


def at(begin: Moment, number: int) -> Schedule:
    return Schedule(every_seconds=86_400, start_at=begin + seconds(number / A_SECOND))


async def arriving(app: App, last: int, end: Moment) -> AsyncIterator[tuple[Moment, Moment, Moment]]:
    """When each new run was seen, when its tick was due, and when it says that it was queued."""
    while now() < end:
        await app.broker.wait(["default"], 0.05)
        rows = await app.db.read(partial(newer, last=last))
        moment = now()
        for run_id, fire, queued in rows:
            last = max(last, run_id)
            yield moment, fire, queued


def newer(tx: Transaction, last: int) -> list[tuple[int, Moment, Moment]]:
    runs = schema.runs
    query = select(runs.c.id, runs.c.fire_at, runs.c.queued_at).where(runs.c.id > last).order_by(runs.c.id)
    return [(row.id, row.fire_at, row.queued_at) for row in tx.rows(query)]


def report(found: Sequence[Seen]) -> str:
    head = [
        "schedules",
        "stored",
        "idle CPU",
        "burst",
        "queued in",
        "ticks",
        "late p50",
        "p99",
        "longest",
        "recorded p99",
    ]
    rows = [
        [
            seen.setup,
            f"{seen.schedules:,}",
            f"{seen.idle_cpu:.2%}",
            f"{seen.burst:,}",
            f"{seen.burst_seconds:.2f} s",
            f"{len(seen.late):,}",
            f"{seen.late.p50:.1f} ms",
            f"{seen.late.p99:.1f} ms",
            f"{seen.late.longest:.0f} ms",
            f"{seen.recorded.p99:.1f} ms",
        ]
        for seen in found
    ]
    return "\n" + table(head, rows) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    asked: list[Goal] = []
    for seen in found:
        asked += [
            Goal(what=f"{seen.setup}, idle scheduler", value=100 * seen.idle_cpu, at_most=100 * IDLE_CPU, unit=" %"),
            Goal(
                what=f"{seen.setup}, {seen.burst} ticks of one second",
                value=seen.burst_seconds,
                at_most=BURST_SECONDS,
                unit=" s",
            ),
            Goal(what=f"{seen.setup}, fire error p99", value=seen.late.p99, at_most=LATE_MS, unit=" ms"),
        ]
    return asked
