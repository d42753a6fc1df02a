"""A worker process of the benchmark: an ordinary worker that marks each run once its outcome is durable."""

import asyncio
import sys
from collections.abc import Sequence

from bench.marks import mark
from weft.app import open_app, open_worker
from weft.config import load
from weft.runs.model import Ending
from weft.workers.direct import DirectProtocol
from weft.workers.heartbeat import Heartbeats


class Marking(DirectProtocol):
    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        accepted = await super().finish(worker_id, endings)
        for ending, ended in zip(endings, accepted, strict=True):
            if ended and ending.outcome == "succeeded":
                mark()
        return accepted


async def work(name: str) -> None:
    app = await open_app(load().config)
    app.protocol.__class__ = Marking
    heartbeats = Heartbeats(app.protocol)
    await open_worker(app, name, heartbeats).run()


asyncio.run(work(sys.argv[1]))
