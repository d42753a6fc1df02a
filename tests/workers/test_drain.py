"""A worker that is asked to stop leases nothing more, and what it cannot finish goes back unharmed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import Flaky, facts, submit, submit_many
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.workers.acting import WORKER_OPTIONS, Obedient, ended, is_in, working
from tests.workers.test_worker import worker_is
from weft.app import App
from weft.errors import Conflict
from weft.ports import Ended, Work
from weft.runs.model import RunState
from weft.workers import store


async def test_a_draining_worker_finishes_its_runs_and_leases_no_other(app: App) -> None:
    first, second = await submit_many(app, 2)
    executor = Obedient()
    async with working(app, executor, capacity=1) as (worker, task):
        await executor.has_started(first)
        worker.drain()
        await eventually(lambda: worker_is(app, "draining"))
        executor.end(first)
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await app.runs.get(first)).state is RunState.SUCCEEDED
    assert (await app.runs.get(second)).state is RunState.QUEUED
    assert await worker_is(app, "offline")


async def test_a_share_of_a_crawl_is_given_back_at_once(app: App) -> None:
    run_id = await submit(app, kind="crawl", spec={"urls": ["http://site.example/"]})
    executor = Obedient()
    executor.needs_folder = True
    async with working(app, {"crawl": executor}) as (worker, task):
        await executor.has_started(run_id)
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS / 2)
    assert executor.stopped == [(run_id, 1)]
    assert (await app.runs.get(run_id)).state is RunState.QUEUED


async def test_runs_that_outlast_the_drain_time_go_back_uncounted(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor, options=replace(WORKER_OPTIONS, drain_seconds=0.01)) as (worker, task):
        await executor.has_started(run_id)
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    run = await app.runs.get(run_id)
    assert (run.state, run.tries, run.losses) == (RunState.QUEUED, 0, 0)
    assert executor.stopped == [(run_id, 1)]
    assert await facts(app, run_id) == ["run_queued", "run_started", "run_released"]


@on_sqlite
async def test_a_worker_that_is_asked_twice_does_not_wait_for_its_runs(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor) as (worker, task):
        await executor.has_started(run_id)
        worker.drain()
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await app.runs.get(run_id)).state is RunState.QUEUED


@on_sqlite
@pytest.mark.parametrize("is_stopping", [False, True])
async def test_a_worker_that_is_asked_twice_cuts_short_what_does_not_stop(app: App, is_stopping: bool) -> None:
    class Stubborn(Obedient):
        """Needs for ever to stop, unless it is told again."""

        async def execute(self, work: Work) -> Ended:
            try:
                return await super().execute(work)
            except asyncio.CancelledError:
                await asyncio.Event().wait()
                raise

    run_id = await submit(app)
    executor = Stubborn()
    async with working(app, executor, options=replace(WORKER_OPTIONS, drain_seconds=0.01 if is_stopping else 60)) as (
        worker,
        task,
    ):
        await executor.has_started(run_id)
        worker.drain()
        if is_stopping:  # its drain time is over, so it is being stopped when it is asked again
            await eventually(lambda: executor.stopped)
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    run = await app.runs.get(run_id)
    assert (run.state, run.tries, run.losses) == (RunState.QUEUED, 0, 0)


@on_sqlite
async def test_a_cancelled_worker_gives_its_runs_back(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        await executor.has_started(run_id)
    run = await app.runs.get(run_id)
    assert (run.state, run.tries) == (RunState.QUEUED, 0)
    assert await worker_is(app, "offline")


@on_sqlite
async def test_an_idle_worker_drains_at_once(app: App) -> None:
    async with working(app, options=replace(WORKER_OPTIONS, poll_seconds=3600)) as (worker, task):
        await eventually(lambda: worker_is(app, "online"))
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert await worker_is(app, "offline")


@on_sqlite
async def test_a_run_that_is_stopped_before_its_first_step_goes_back_uncounted(app: App) -> None:
    run_id = await submit(app)

    class Hasty(Flaky):
        """Drains the worker between the lease of a run and its first step."""

        async def lease(self, worker_id: int, want: int, *, hesitant: bool = False) -> object:
            leases = await app.protocol.lease(worker_id, want, hesitant=hesitant)
            if leases:
                asyncio.get_running_loop().call_soon(worker.drain)
                asyncio.get_running_loop().call_soon(worker.drain)
            return leases

    executor = Obedient()
    async with working(app, executor, protocol=Hasty(app.protocol)) as (worker, task):
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    run = await app.runs.get(run_id)
    assert (run.state, run.tries, run.losses, executor.started) == (RunState.QUEUED, 0, 0, [])
    assert (await app.runs.attempts(run_id))[0].outcome == "released"


async def test_a_worker_ends_cleanly_after_so_many_runs(app: App) -> None:
    run_ids = await submit_many(app, 7)
    async with working(app, capacity=2, options=replace(WORKER_OPTIONS, max_runs=5)) as (_, task):
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    states = [(await app.runs.get(run_id)).state for run_id in run_ids]
    assert states == [RunState.SUCCEEDED] * 5 + [RunState.QUEUED] * 2
    assert (await app.workers.get("w1")).done == 5


@on_sqlite
async def test_a_worker_of_one_run_ends_after_it(app: App) -> None:
    async with working(app, options=replace(WORKER_OPTIONS, max_runs=1)) as (_, task):
        run_id = await submit(app)
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await ended(app, run_id)).state is RunState.SUCCEEDED


@on_sqlite
async def test_a_drain_waits_until_every_outcome_is_told(app: App) -> None:
    run_id = await submit(app)
    line = Flaky(app.protocol)
    line.lose_request.add("finish")
    async with working(app, protocol=line) as (worker, task):
        await eventually(lambda: "finish" in line.calls)
        worker.drain()
        assert await is_in(app, run_id, RunState.RUNNING)
        assert not task.done()
        line.lose_request.clear()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await app.runs.get(run_id)).state is RunState.SUCCEEDED


async def test_a_worker_that_is_ordered_to_drain_finishes_its_runs_however_long_they_take(app: App) -> None:
    first, second = await submit_many(app, 2)
    executor = Obedient()
    async with working(app, executor, capacity=1, options=replace(WORKER_OPTIONS, drain_seconds=0.01)) as (_, task):
        await executor.has_started(first)
        worker = await app.workers.drain((await app.workers.get("w1")).id)
        assert worker.state == "draining"
        beats = await beats_of(app)
        await eventually(lambda: beaten(app, beats + 3))
        assert await worker_is(app, "draining")
        assert (executor.stopped, task.done()) == ([], False)
        executor.end(first)
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await app.runs.get(first)).state is RunState.SUCCEEDED
    assert (await app.runs.get(second)).state is RunState.QUEUED
    assert await worker_is(app, "offline")
    with pytest.raises(Conflict, match="w1 has left already"):
        await app.workers.drain(worker.id)


@on_sqlite
async def test_a_worker_that_drains_by_order_has_its_drain_time_when_its_process_is_asked_to_stop(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor, options=replace(WORKER_OPTIONS, drain_seconds=0.01)) as (worker, task):
        await executor.has_started(run_id)
        worker.drain(ordered=True)
        worker.drain(ordered=True)
        await eventually(lambda: worker_is(app, "draining"))
        assert not task.done()
        worker.drain()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert (await app.runs.get(run_id)).state is RunState.QUEUED


async def beats_of(app: App) -> int:
    return max((await app.db.read(store.beats)).values(), default=0)


async def beaten(app: App, beats: int) -> bool:
    return await beats_of(app) >= beats
