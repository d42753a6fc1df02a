"""A worker sees runs through to their ends, and stops them when it is told to."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.conftest import on_sqlite
from tests.executing import THIS_MACHINE
from tests.runs.acting import allow_unsandboxed, facts, submit, submit_many
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.workers.acting import WORKER_OPTIONS, Obedient, ended, told, working
from weft.app import App
from weft.crawler.messages import CrawlPolicy
from weft.runs.model import RunState


async def test_a_worker_sees_every_run_to_its_end(app: App) -> None:
    run_ids = await submit_many(app, 50)
    failing = await submit(app, spec={"fail": "no such page"})
    async with working(app):
        for run_id in run_ids:
            assert (await ended(app, run_id)).state is RunState.SUCCEEDED
        run = await ended(app, failing)
    assert (run.state, run.reason, run.worker) == (RunState.FAILED, "no such page", "w1")
    assert await facts(app, failing) == ["run_queued", "run_started", "run_finished"]


@on_sqlite
async def test_a_run_that_is_submitted_to_an_idle_worker_starts_by_the_ring(app: App) -> None:
    executor = Obedient()
    async with working(app, executor, options=replace(WORKER_OPTIONS, poll_seconds=3600)):
        await eventually(lambda: worker_is(app, "online"))
        await executor.has_started(await submit(app))


async def worker_is(app: App, state: str, name: str = "w1") -> bool:
    return [worker.state for worker in await app.workers.all() if worker.name == name][-1:] == [state]


@on_sqlite
async def test_a_worker_runs_no_more_at_once_than_its_capacity(app: App) -> None:
    run_ids = await submit_many(app, 5)
    executor = Obedient()
    async with working(app, executor, capacity=2):
        await executor.has_started(run_ids[1])
        await eventually(lambda: worker_is(app, "busy"))
        assert len(executor.started) == 2
        executor.end(run_ids[0])
        await executor.has_started(run_ids[2])
        assert len(executor.started) == 3


@on_sqlite
async def test_redirects_that_are_refused_to_one_project_hold_back_no_run_of_another(app: App) -> None:
    async def answer(request: web.Request) -> web.Response:
        leads_away = {"Location": "http://10.0.0.1:81/"} if request.path == "/away" else {}
        return web.Response(status=302 if leads_away else 200, headers=leads_away)

    site = web.Application()
    site.router.add_get("/{path:.*}", answer)
    options = replace(WORKER_OPTIONS, policy=CrawlPolicy(allowed_networks=THIS_MACHINE))
    async with TestServer(site, host="127.0.0.1") as server, working(app, options=options):
        for _ in range(6):
            loud = await submit(app, project="loud", kind="http", spec={"url": str(server.make_url("/away"))})
            assert (await ended(app, loud)).state is RunState.FAILED
        quiet = await submit(app, project="quiet", kind="http", spec={"url": str(server.make_url("/"))})
        await eventually(lambda: told(app, quiet))
        assert (await app.runs.get(quiet)).state is RunState.SUCCEEDED


@on_sqlite
async def test_what_an_executor_tells_is_kept_on_the_run(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        work = await executor.has_started(run_id)
        assert (work.attempt, work.project, work.task) == (1, "shop", "prices")
        executor.end(run_id, "failed", reason="exit 3", exit_code=3, signal=9, result={"items": 2})
        run = await ended(app, run_id)
    assert (run.reason, run.exit_code, run.signal, run.result) == ("exit 3", 3, 9, {"items": 2})


@on_sqlite
async def test_a_postponed_run_goes_back_uncounted_until_its_time(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        await executor.has_started(run_id)
        executor.end(run_id, "postponed", reason="breaker open", retry_after_seconds=30.0)
        await eventually(lambda: told(app, run_id))
    run = await app.runs.get(run_id)
    assert (run.state, run.tries, run.not_before is not None) == (RunState.QUEUED, 0, True)


async def test_a_cancel_reaches_the_process_of_a_run(app: App, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; sleep 600"
    await allow_unsandboxed(app)
    run_id = await submit(app, kind="shell", spec={"script": script, "isolation": "L0"}, grace_seconds=5.0)
    async with working(app):
        await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        pid = int((tmp_path / "pid").read_text())
        await app.runs.cancel(run_id)
        run = await ended(app, run_id)
    assert (run.state, run.reason) == (RunState.CANCELLED, "cancelled while running")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@on_sqlite
async def test_a_run_that_takes_too_long_is_stopped(app: App) -> None:
    run_id = await submit(app, timeout_seconds=0.05)
    executor = Obedient()
    async with working(app, executor):
        run = await ended(app, run_id)
    assert (run.state, run.outcome, run.reason) == (RunState.FAILED, "timeout", "ran longer than its timeout of 0.05 s")
    assert executor.stopped == [(run_id, 1)]


@on_sqlite
async def test_a_timed_out_run_is_tried_again(app: App) -> None:
    run_id = await submit(app, timeout_seconds=0.05, retries=1)
    async with working(app, Obedient()):
        await eventually(lambda: told(app, run_id))
    assert (await app.runs.get(run_id)).state is RunState.QUEUED
    assert (await app.runs.attempts(run_id))[0].outcome == "timeout"


@on_sqlite
async def test_a_worker_beats_on_while_an_executor_cannot_tell_its_breakers(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    class Silent(Obedient):
        def breakers(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    executor = Silent()
    run_id = await submit(app)
    async with working(app, executor):
        await executor.has_started(run_id)
        beats = await beats_of(app)
        await eventually(lambda: beats_above(app, beats + 3))


async def beats_of(app: App, name: str = "w1") -> int:
    from weft.workers import store

    worker = await app.workers.get(name)
    return (await app.db.read(store.beats))[worker.id]


async def beats_above(app: App, count: int) -> bool:
    return await beats_of(app) > count


@on_sqlite
async def test_the_heart_beats_while_the_loop_is_blocked(app: App) -> None:
    executor = Obedient()
    run_id = await submit(app)
    seen: list[int] = []
    async with working(app, executor):
        await executor.has_started(run_id)
        looking, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=watch_beats, args=(app, seen, looking, stop))
        thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(set(seen)) < 4 and time.monotonic() < deadline:
            looking.wait(0.01)  # the loop of the worker stands still all the while
        stop.set()
        thread.join()
    assert len(set(seen)) >= 4


def watch_beats(app: App, seen: list[int], looking: threading.Event, stop: threading.Event) -> None:
    from sqlalchemy import select

    from weft.db import schema

    while not stop.is_set():
        with app.db.engine.connect() as connection:
            seen.append(int(connection.execute(select(schema.workers.c.beats)).scalar_one()))
        looking.set()


@on_sqlite
async def test_nothing_of_a_run_is_left_on_the_worker_s_disk(app: App) -> None:
    run_id = await submit(app, kind="shell", spec={"script": "echo hello > file; echo done"})
    async with working(app):
        assert (await ended(app, run_id)).state is RunState.SUCCEEDED
    folder = app.config.folder / "runs" / "w1"
    assert not folder.exists() or list(folder.iterdir()) == []
