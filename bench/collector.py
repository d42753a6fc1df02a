"""Items a second that a collector stores: small ones, in batches, each a thing that nobody has seen, then all again."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.measure import Figures, Goal, judge, table
from bench.servers import Servers
from bench.throughput import positive
from weft.app import App, open_app
from weft.clock import now
from weft.config import Config
from weft.items.model import ItemBatch
from weft.runs.model import NewRun, RunSpec
from weft.workers.protocol import WorkerInfo

LEAST = 20_000
"""Items a second."""

ROUNDS = ("new", "again")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench collector", description=__doc__)
    parser.add_argument("--runs", type=positive, default=5, help="how often each is measured (5)")
    parser.add_argument("--items", type=positive, default=100_000, help="how many items are stored (100000)")
    parser.add_argument("--batch", type=positive, default=1_000, help="how many come at once (1000)")
    parser.add_argument("--only", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"])
    options = parser.parse_args(arguments)
    figures = {(name, each): Figures() for name in options.only for each in ROUNDS}
    with Servers() as servers:
        for _ in range(options.runs):
            for name in options.only:
                url = servers.postgresql.new_database() if name == "postgresql" else ""
                for each, rate in zip(ROUNDS, measured(url, options.items, options.batch), strict=True):
                    figures[name, each].add(rate)
    rows = [(name, *(figures[name, each] for each in ROUNDS)) for name in options.only]
    print(table(["items a second, one collector", *ROUNDS], rows))
    return judge(
        Goal(what=f"items a second on {name}, {each}", value=found.median, at_least=LEAST)
        for (name, each), found in figures.items()
    )


def measured(url: str, count: int, size: int) -> list[float]:
    """Items a second of two runs that yield the same, on a new database."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        database = url or f"sqlite:///{Path(folder) / 'weft.db'}"
        return asyncio.run(_measured(Config(data_dir=folder, database=database, broker="memory:"), count, size))


async def _measured(config: Config, count: int, size: int) -> list[float]:
    app = await open_app(config)
    try:
        card = WorkerInfo(name="bench", host="here", pid=1, version="0", capacity=10)
        worker_id = await app.protocol.join(card)
        batches = [_lines(first, min(size, count - first)) for first in range(0, count, size)]
        return [count / await _stored(app, worker_id, batches, count) for _ in ROUNDS]
    finally:
        await app.close()


async def _stored(app: App, worker_id: int, batches: Sequence[bytes], count: int) -> float:
    """Seconds until all that a new run yields is stored."""
    new = NewRun(project="bench", task="records", kind="noop", spec=RunSpec(spec={"spider": "records"}))
    await app.runs.submit([new])
    (lease,) = await app.protocol.lease(worker_id, 1)
    begun, awaited = time.perf_counter(), 1
    for lines in batches:
        (awaited,) = await app.protocol.collect(worker_id, [ItemBatch(lease.run_id, lease.attempt, awaited, lines)])
    took = time.perf_counter() - begun
    (stats,) = await app.items.stats(lease.run_id)
    if not stats.items == count == awaited - 1:
        raise AssertionError(f"{stats.items} items are stored of {count}")
    return took


def _lines(first: int, count: int) -> bytes:
    return b"".join(msgspec.json.encode({"at": now(), "item": _item(n)}) + b"\n" for n in range(first, first + count))


def _item(number: int) -> dict[str, object]:
    return {
        "url": f"https://shop.example/records/{number}",
        "title": f"Thing number {number}",
        "price": number * 0.25,
        "seller": "somebody",
        "stock": number % 7,
    }
