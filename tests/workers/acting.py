"""What tests of workers share: executors that do as they are told, and a worker that runs beside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.waiting import PATIENCE_SECONDS, eventually
from weft.app import App
from weft.ports import Breaker, Ended, Executor, Work
from weft.runs.model import Run, RunState
from weft.worker_setup import open_executor
from weft.workers.heartbeat import Heartbeats
from weft.workers.protocol import WorkerInfo
from weft.workers.worker import Worker, WorkerOptions

BEAT_SECONDS = 0.02
WORKER_OPTIONS = WorkerOptions(poll_seconds=0.02, ship_seconds=0.01, drain_seconds=PATIENCE_SECONDS)


class Obedient:
    """An executor whose runs go on until the test lets them end; it remembers who was started and who was stopped."""

    needs_folder = False

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.stopped: list[tuple[int, int]] = []
        self.works: dict[int, Work] = {}
        self.ends: dict[int, asyncio.Future[Ended]] = {}

    def check(self, spec: Mapping[str, Any]) -> None:
        return

    def breakers(self) -> Collection[Breaker]:
        return ()

    async def execute(self, work: Work) -> Ended:
        self.started.append((work.run_id, work.attempt))
        self.works[work.run_id] = work
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.ends[work.run_id] = end
        try:
            return await end
        except asyncio.CancelledError:
            self.stopped.append((work.run_id, work.attempt))
            raise

    async def has_started(self, run_id: int, attempt: int = 1) -> Work:
        await eventually(lambda: (run_id, attempt) in self.started)
        return self.works[run_id]

    def end(self, run_id: int, outcome: str = "succeeded", **fields: Any) -> None:
        self.ends[run_id].set_result(Ended(outcome=outcome, **fields))


class Failing(Obedient):
    """An executor that is broken in every way that a plug-in can be."""

    def __init__(self, ended: Callable[[], Any], breakers: Callable[[], Any] = tuple) -> None:
        super().__init__()
        self._ended, self._breakers = ended, breakers

    async def execute(self, work: Work) -> Ended:
        self.started.append((work.run_id, work.attempt))
        result: Ended = self._ended()
        return result

    def breakers(self) -> Collection[Breaker]:
        found: Collection[Breaker] = self._breakers()
        return found


@asynccontextmanager
async def working(
    app: App,
    executors: Mapping[str, Executor] | Executor | None = None,
    *,
    name: str = "w1",
    capacity: int = 10,
    labels: tuple[str, ...] = (),
    protocol: Any = None,
    blobs: Any = None,
    options: WorkerOptions = WORKER_OPTIONS,
    beat_seconds: float = BEAT_SECONDS,
) -> AsyncIterator[tuple[Worker, asyncio.Task[None]]]:
    """A worker under way. At the end of the block it is cancelled, as by a second SIGTERM."""
    if executors is not None and not isinstance(executors, Mapping):
        executors = {"noop": executors}
    known = dict(executors or {})
    protocol = protocol or app.protocol
    card = WorkerInfo(name=name, host="here", pid=1, version="0", capacity=capacity, labels=labels)
    heartbeats = Heartbeats(protocol, every_seconds=beat_seconds)
    worker = Worker(
        card,
        protocol,
        heartbeats,
        app.broker,
        blobs or app.blobs,
        lambda kind: known.get(kind) or open_executor(kind),
        folder=app.config.folder / "runs" / name,
        options=options,
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker, task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        heartbeats.close()
        assert task.done(), "the worker did not end"
        if not task.cancelled() and (problem := task.exception()):
            raise problem


async def ended(app: App, run_id: int) -> Run:
    """The run, once it has ended."""
    await eventually(lambda: is_in(app, run_id, *set(RunState) - {RunState.QUEUED, RunState.RUNNING}))
    return await app.runs.get(run_id)


async def is_in(app: App, run_id: int, *states: RunState) -> bool:
    return (await app.runs.get(run_id)).state in states


async def told(app: App, run_id: int) -> bool:
    """Whether an attempt of the run has ended."""
    return bool(await app.runs.attempts(run_id))
