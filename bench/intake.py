"""Intake: messages a second that become runs, from a queue of RabbitMQ and from a stream of Redis."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from bench.gateway import QUIET
from bench.latencies import machine_load
from bench.measure import Figures, Goal, cpu_seconds, judge, table
from bench.peers.scrapyd import EGG, PROJECT, SPIDER, packed
from bench.roles import Roles, place
from bench.servers import Servers
from bench.setups import Setup, defaults
from bench.throughput import positive, stop
from bench.waiting import until
from experiments.publishing import Message, Publisher, ToRabbit, ToRedis, publish_surely
from tests.servers.server import free_port
from weft.app import App, open_app
from weft.clock import seconds
from weft.config import Config
from weft.db import schema

LEAST = 1_000
"""Messages a second."""
AT_ONCE = 500
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Source:
    """A queue of messages: its URL as a setting of weft, and who publishes to it."""

    name: str
    url: Callable[[str], str]
    publisher: Callable[[str], Publisher]


@dataclass(slots=True)
class Result:
    """One source and one database, from several runs."""

    rate: Figures = field(default_factory=Figures)
    cpu_ms: Figures = field(default_factory=Figures)
    """Processor time of weft's process for each message."""
    errors: list[str] = field(default_factory=list)


Results = dict[str, Result]


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with Servers() as servers:
        pairs = [(source, setup) for source in sources(servers) for setup in defaults(servers)]
        pairs = [each for each in pairs if chosen(name_of(*each), options.only)]
        if not pairs:
            return stop(f"nothing has {' or '.join(options.only)} in its name")
        results: Results = {name_of(*each): Result() for each in pairs}
        for run in range(options.runs):
            for source, setup in pairs:
                name = name_of(source, setup)
                asyncio.run(measure(source, setup, results[name], f"bench-{run}-{time.time_ns()}", options.messages))
                print(f"run {run + 1}: {name}: {results[name].rate.values[-1]:,.0f}/s; {machine_load()}", flush=True)
    print(report(results))
    print(machine_load())
    return judge(goals(results))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench intake", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--messages", type=positive, default=10_000, help="how many messages wait (10000)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only those with all of these words")
    return parser.parse_args(arguments)


def sources(servers: Servers) -> list[Source]:
    return [
        Source(
            "RabbitMQ",
            lambda queue: f"{servers.rabbitmq.url}?queue={queue}",
            lambda queue: ToRabbit(servers.rabbitmq.url, queue),
        ),
        Source(
            "Redis",
            lambda stream: f"{servers.redis.url}?stream={stream}",
            lambda stream: ToRedis(servers.redis.port, stream),
        ),
    ]


def name_of(source: Source, setup: Setup) -> str:
    return f"{source.name}, {setup.database_name}"


def chosen(name: str, words: Sequence[str]) -> bool:
    return all(word.lower() in name.lower() for word in words)


async def measure(source: Source, setup: Setup, result: Result, queue: str, messages: int) -> None:
    """Messages wait in a queue of their own; then weft starts and makes each of them a run. Nobody works."""
    with place(**setup.settings(), **QUIET, intake=source.url(queue)) as config:
        app = await open_app(config)
        try:
            await deploy(app, config)
            await publish(source.publisher(queue), messages)
            with Roles(config) as roles:
                process = roles.weft("serve", "--port", str(free_port()))
                await until("every message is a run", lambda: all_are_runs(app, messages), patience=PATIENCE_SECONDS)
                result.cpu_ms.add(cpu_seconds(process.pid) * 1000 / messages)
                result.errors += roles.complaints()[:3]
            moments = await taken_at(app)
        finally:
            await app.close()
    result.rate.add(rate(moments))
    if len(moments) != messages:
        result.errors.append(f"{messages} messages became {len(moments)} runs")


async def deploy(app: App, config: Config) -> None:
    egg = config.folder / "deploy" / "noops.egg"
    egg.parent.mkdir(parents=True)
    egg.write_bytes(packed(EGG))
    await app.projects.deploy(PROJECT, egg, "1", by="bench")


async def publish(publisher: Publisher, count: int) -> None:
    for start in range(0, count, AT_ONCE):
        await publish_surely(publisher, [message(number) for number in range(start, min(count, start + AT_ONCE))])
    await publisher.close()


def message(number: int) -> Message:
    order = {
        "task_id": f"task-{number}",
        "project": PROJECT,
        "spider": SPIDER,
        "args": {"category": f"shoes-{number % 100}", "page": str(number)},
        "settings": {"DOWNLOAD_DELAY": "0.5"},
        "priority": number % 3,
        "status": "pending",
    }
    return Message(key=f"task-{number}", body=json.dumps(order).encode())


async def taken_at(app: App) -> list[int]:
    """When each run was queued, by its own row."""
    query = select(schema.runs.c.queued_at).order_by(schema.runs.c.queued_at)
    return [row.queued_at for row in await app.db.read(lambda tx: tx.rows(query))]


async def all_are_runs(app: App, messages: int) -> bool:
    return sum((await app.runs.counts()).values()) >= messages


def rate(moments: Sequence[int]) -> float:
    """Runs a second from the first tenth of them to the last: neither start nor end is in it."""
    first, last = len(moments) // 10, len(moments) * 9 // 10
    return (last - first) / ((moments[last] - moments[first]) / seconds(1))


def report(results: Results) -> str:
    head = ["intake", "messages/s", "CPU ms each"]
    rows = [[name, result.rate, f"{result.cpu_ms.median:.2f}"] for name, result in results.items()]
    errors = [f"{name}: {error}" for name, result in results.items() for error in result.errors]
    return "\n" + "\n".join([table(head, rows), *errors]) + "\n"


def goals(results: Results) -> list[Goal]:
    return [
        goal
        for name, result in results.items()
        for goal in (
            Goal(what=f"{name}, errors", value=len(result.errors), at_most=0),
            Goal(what=f"{name}, messages a second", value=result.rate.median, at_least=LEAST),
        )
    ]
