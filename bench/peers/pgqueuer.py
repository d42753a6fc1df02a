"""pgqueuer on PostgreSQL: workers are started from code, as its documentation shows."""

import asyncio
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from bench.marks import mark
from bench.peers.app import URL


def fill(tasks: int) -> None:
    asyncio.run(_enqueue(tasks, size=1_000))


def submit(tasks: int) -> None:
    asyncio.run(_enqueue(tasks, size=1))


def work(batch: int) -> None:
    """``batch`` is how many tasks a worker takes, and how many completions it writes, in one statement."""
    asyncio.run(_work(batch))


async def _enqueue(tasks: int, size: int) -> None:
    connection = await asyncpg.connect(URL)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, tasks, size):
        count = min(size, tasks - start)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    await connection.close()


async def _work(batch: int) -> None:
    queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark()

    await queuer.run(dequeue_timeout=timedelta(seconds=1), batch_size=batch)
