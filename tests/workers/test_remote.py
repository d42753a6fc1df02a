"""A worker that reaches weft through a gateway alone: runs come to their ends whatever becomes of the line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import allow_unsandboxed, submit, submit_many
from tests.waiting import eventually
from tests.workers.acting import ended, is_in
from tests.workers.far_away import Line, Speaker, far_away, far_config, gateway, join_token
from weft.adapters.executors.shell import UNPROTECTED
from weft.app import App
from weft.errors import BrokerDown, GatewayDown
from weft.runs.model import RunState
from weft.worker_setup import open_remote_worker
from weft.workers.protocol import Heartbeat, WorkerInfo
from weft.workers.remote import protocol
from weft.workers.remote.protocol import RemoteBroker, RemoteProtocol

CARD = WorkerInfo(name="w1", host="here", pid=1, version="0", capacity=10)

pytestmark = on_sqlite


def until_told(folder: Path) -> dict[str, Any]:
    """A run that notes that it began, and ends when the test says so."""
    script = f'echo "$WEFT_RUN_ID" >> {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo done'
    return {"kind": "shell", "spec": {"script": script, "isolation": "L0"}}


def begun(folder: Path) -> list[int]:
    file = folder / "begun"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def test_runs_complete_through_the_gateway(app: App) -> None:
    async with gateway(app) as address, far_away(app, address):
        for run_id in await submit_many(app, 5, kind="shell", spec={"argv": ["echo", "hello"]}):
            run = await ended(app, run_id)
            assert (run.state.value, run.worker, await app.runs.log(run_id)) == ("succeeded", "far", b"hello\n")


async def test_nothing_is_lost_or_run_twice_while_the_line_is_cut(app: App, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    await allow_unsandboxed(app)
    async with gateway(app) as address, Line(address) as line, far_away(app, line.address, capacity=4):
        line.cuts_to_come = 20
        ids = await submit_many(app, 40, **until_told(tmp_path))
        runs = [await ended(app, run_id) for run_id in ids]
        assert line.cuts == 20
    assert {run.state for run in runs} == {RunState.SUCCEEDED}
    assert sorted(begun(tmp_path)) == ids
    assert {await app.runs.log(run_id) for run_id in ids} == {UNPROTECTED + b"done\n"}


async def test_runs_go_on_while_another_gateway_takes_over(app: App, another_app: OpenApp, tmp_path: Path) -> None:
    await allow_unsandboxed(app)
    ids = await submit_many(app, 3, **until_told(tmp_path))
    async with Line("http://127.0.0.1:9") as line:
        async with gateway(app) as line.target:
            worker = far_away(app, line.address)
            await worker.__aenter__()
            await eventually(lambda: sorted(begun(tmp_path)) == ids)
        (tmp_path / "go").touch()
        successor = await another_app()
        async with gateway(successor) as line.target:
            runs = [await ended(app, run_id) for run_id in ids]
            late = await submit(app, **until_told(tmp_path))
            assert (await ended(app, late)).state is RunState.SUCCEEDED
            await worker.__aexit__(None, None, None)
    assert [(run.state, run.attempt) for run in runs] == [(RunState.SUCCEEDED, 1)] * 3
    assert sorted(begun(tmp_path)) == [*ids, late]


async def test_a_cancelled_run_is_stopped_far_away(app: App, tmp_path: Path) -> None:
    await allow_unsandboxed(app)
    run_id = await submit(app, **until_told(tmp_path))
    async with gateway(app) as address, far_away(app, address):
        await eventually(lambda: begun(tmp_path))
        await app.runs.cancel(run_id)
        assert (await ended(app, run_id)).state is RunState.CANCELLED


async def test_a_drained_worker_gives_its_runs_back_and_leaves(app: App, tmp_path: Path) -> None:
    await allow_unsandboxed(app)
    run_id = await submit(app, **until_told(tmp_path))
    async with gateway(app) as address, far_away(app, address) as (outpost, task):
        await eventually(lambda: begun(tmp_path))
        outpost.worker.drain()
        outpost.worker.drain()
        await task
        assert await is_in(app, run_id, RunState.QUEUED)
        assert (await app.workers.get("far")).state == "offline"


async def test_a_worker_that_cannot_join_can_be_stopped(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", 0.5)
    async with gateway(app) as address, Line(address) as line:
        config = far_config(line.address, app.config.folder / "far", token=await join_token(app))
        outpost = await open_remote_worker(config, "far")
        line.target = "http://127.0.0.1:9"
        line.cut()
        task = asyncio.create_task(outpost.run())
        await asyncio.sleep(0)
        outpost.worker.drain()
        await task
    assert await app.workers.all() == []


async def test_a_lease_whose_answer_was_lost_is_told_of_by_the_next_beat(app: App) -> None:
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        worker_id = await speaker.join(CARD)
        run_id = await submit(app)
        line.cut()
        line.answers_to_lose = 1
        assert await speaker.lease(worker_id, 1) == []
        assert line.answers_to_lose == 0
        orders = await speaker.heartbeat(worker_id, beat())
        assert orders.held == ((run_id, 1),)


async def test_a_join_whose_answer_was_lost_enters_one_worker(app: App) -> None:
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        line.answers_to_lose = 2
        worker_id = await speaker.join(CARD)
        assert [worker.id for worker in await app.workers.all()] == [worker_id]
        assert await speaker.join(CARD) != worker_id


async def test_a_submitted_run_wakes_a_waiting_worker(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        broker = await waiting_broker(speaker)
        waiting = asyncio.create_task(broker.wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        await submit(app)
        assert await waiting


async def test_work_that_nobody_rang_for_is_found(app: App, another_app: OpenApp) -> None:
    elsewhere = await another_app()
    async with gateway(app) as address, Speaker(app, address) as speaker:
        broker = await waiting_broker(speaker)
        waiting = asyncio.create_task(broker.wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        await submit(elsewhere)
        assert await waiting


async def test_waiting_ends_without_news(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        assert not await (await waiting_broker(speaker)).wait([], 0.05)


async def test_no_ring_is_spent_on_a_worker_that_has_gone(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        gone, there = await waiting_broker(speaker, "gone"), await waiting_broker(speaker, "there")
        leaving = asyncio.create_task(gone.wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        leaving.cancel()
        await eventually(lambda: app.worker_gateway.waiting == 0)
        waiting = asyncio.create_task(there.wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        await submit(app)
        assert await waiting


async def test_a_call_that_waits_ends_when_no_beat_comes_through(app: App) -> None:
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        broker = await waiting_broker(speaker)
        protocol = await speaker.of("w1")
        waiting = asyncio.create_task(broker.wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        line.answers_to_lose = 1
        with pytest.raises(GatewayDown):
            await protocol.heartbeat(protocol.worker_id, beat())
        with pytest.raises(BrokerDown):
            await waiting


async def test_waiting_workers_do_not_hold_up_the_end_of_a_gateway(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        waiting = asyncio.create_task((await waiting_broker(speaker)).wait([], 25))
        await eventually(lambda: app.worker_gateway.waiting == 1)
        app.hang_up()
        assert await waiting is False


async def waiting_broker(speaker: Speaker, name: str = "w1") -> RemoteBroker:
    await speaker.join(WorkerInfo(name=name, host="here", pid=1, version="0", capacity=10))
    protocol: RemoteProtocol = await speaker.of(name)
    return RemoteBroker(protocol)


def beat() -> Heartbeat:
    return Heartbeat(state="online", running=0, done=0)
