"""A worker on a bad line: answers that never come, a database that goes away, a silence that lasted too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import servers
from tests.conftest import migrated, on_sqlite, running
from tests.runs.acting import Flaky, Hand, facts, submit, submit_many
from tests.waiting import eventually
from tests.workers.acting import Obedient, ended, is_in, working
from weft.app import App, open_app
from weft.config import Config
from weft.errors import DatabaseDown
from weft.runs.model import Ending, RunState
from weft.workers.protocol import Heartbeat, HeartbeatReply


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is expected to go wrong here is not worth a page of log at each failure."""
    caplog.set_level(logging.CRITICAL)


async def lose(app: App, name: str = "w1") -> int:
    """Give a worker up for lost, as a reaper would; return its id."""
    worker = await app.workers.get(name)
    await Hand(app, worker.id, name).lose()
    return worker.id


async def test_a_worker_that_was_given_up_for_lost_stops_its_runs_and_joins_anew(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        await executor.has_started(run_id)
        old = await lose(app)
        await eventually(lambda: executor.stopped == [(run_id, 1)])
        await executor.has_started(run_id, attempt=2)
        executor.end(run_id)
        run = await ended(app, run_id)
        assert (await app.workers.get("w1")).id > old
    assert (run.state, run.attempt, run.losses) == (RunState.SUCCEEDED, 2, 1)
    assert await facts(app, run_id) == ["run_queued", "run_started", "run_retried", "run_started", "run_finished"]


@on_sqlite
async def test_the_late_word_of_a_lost_attempt_changes_nothing(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    line = Flaky(app.protocol)
    async with working(app, executor, protocol=line):
        await executor.has_started(run_id)
        line.lose_request |= {"heartbeat", "lease"}
        await lose(app)
        other = await Hand.join(app, "other")
        lease = await other.lease_one()
        executor.end(run_id)
        await eventually(lambda: "finish" in line.calls)
        assert await is_in(app, run_id, RunState.RUNNING)
        assert await other.end(lease)
    assert (await app.runs.get(run_id)).attempt == 2


@on_sqlite
async def test_a_lease_whose_answer_was_lost_is_given_back(app: App) -> None:
    line = Flaky(app.protocol)
    executor = Obedient()
    async with working(app, executor, protocol=line):
        await eventually(lambda: "heartbeat" in line.calls)
        line.lose_answer.add("lease")
        run_id = await submit(app)
        await executor.has_started(run_id, attempt=2)
        executor.end(run_id)
        run = await ended(app, run_id)
    assert (run.state, run.tries, run.losses) == (RunState.SUCCEEDED, 1, 0)
    assert (await app.runs.attempts(run_id))[0].reason == "the lease was not received"


@on_sqlite
async def test_a_run_that_is_no_longer_held_is_stopped(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor) as (worker, _):
        await executor.has_started(run_id)
        mine = (await app.workers.get("w1")).id
        assert await app.protocol.finish(mine, [Ending(run_id, 1, "released")]) == [True]
        await eventually(lambda: (run_id, 1) in executor.stopped)
        await executor.has_started(run_id, attempt=2)
        worker.drain()
        executor.end(run_id)
        assert (await ended(app, run_id)).attempt == 2


@on_sqlite
async def test_an_ending_whose_answer_was_lost_is_told_again_and_counts_once(app: App) -> None:
    run_id = await submit(app)
    line = Flaky(app.protocol)
    line.lose_answer.add("finish")
    async with working(app, protocol=line):
        await eventually(lambda: line.calls.count("finish") >= 2)
        assert (await ended(app, run_id)).state is RunState.SUCCEEDED
    assert len(await app.runs.attempts(run_id)) == 1


@on_sqlite
async def test_a_piece_of_a_log_whose_answer_was_lost_is_neither_lost_nor_doubled(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    line = Flaky(app.protocol)
    line.lose_answer.add("ship")
    async with working(app, executor, protocol=line):
        work = await executor.has_started(run_id)
        work.log.write(b"one\n")
        await eventually(lambda: "ship" in line.calls)
        work.log.write(b"two\n")
        await eventually(lambda: log_is(app, run_id, b"one\ntwo\n"))


async def log_is(app: App, run_id: int, text: bytes) -> bool:
    return await app.runs.log(run_id) == text


@on_sqlite
async def test_a_worker_leases_again_once_its_held_up_reports_are_told(app: App) -> None:
    run_ids = await submit_many(app, 10)
    line = Flaky(app.protocol)
    line.lose_request.add("finish")
    async with working(app, protocol=line, capacity=1):
        await eventually(lambda: line.calls.count("finish") >= 2)
        line.lose_request.clear()
        for run_id in run_ids:
            assert (await ended(app, run_id)).state is RunState.SUCCEEDED


@on_sqlite
async def test_a_worker_joins_once_the_line_is_there(app: App) -> None:
    run_id = await submit(app)
    line = Flaky(app.protocol)
    line.lose_request.add("join")
    async with working(app, protocol=line):
        await eventually(lambda: line.calls.count("join") >= 2)
        line.lose_request.clear()
        assert (await ended(app, run_id)).state is RunState.SUCCEEDED


@on_sqlite
async def test_the_heart_goes_on_after_a_beat_that_nobody_foresaw(app: App) -> None:
    class Surprising(Flaky):
        faults = 3

        async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
            if self.faults:
                self.faults -= 1
                raise RuntimeError("nobody foresaw this")
            return await app.protocol.heartbeat(worker_id, beat)

    executor = Obedient()
    run_id = await submit(app)
    async with working(app, executor, protocol=Surprising(app.protocol)):
        await executor.has_started(run_id)
        await app.runs.cancel(run_id)
        assert (await ended(app, run_id)).state is RunState.CANCELLED


@on_sqlite
async def test_a_run_that_ends_while_the_line_is_down_is_told_when_it_is_back(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    line = Flaky(app.protocol)
    async with working(app, executor, protocol=line):
        await executor.has_started(run_id)
        line.lose_request |= {"heartbeat", "lease", "finish", "ship"}
        executor.end(run_id, result={"items": 3})
        await eventually(lambda: line.calls.count("finish") >= 2)
        assert await is_in(app, run_id, RunState.RUNNING)
        line.lose_request.clear()
        run = await ended(app, run_id)
    assert (run.state, run.result, run.attempt) == (RunState.SUCCEEDED, {"items": 3}, 1)


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server that these tests may kill."""
    yield from running(getattr(servers, request.param))


@pytest_asyncio.fixture
async def remote(own_server: servers.Server, tmp_path: Path) -> AsyncIterator[App]:
    url = migrated(own_server.new_database())
    app = await open_app(Config(data_dir=str(tmp_path), database=url, broker="memory:"))
    yield app
    await app.close()


async def test_a_worker_keeps_its_run_while_the_database_is_away(remote: App, own_server: servers.Server) -> None:
    run_id = await submit(remote)
    executor = Obedient()
    async with working(remote, executor):
        work = await executor.has_started(run_id)
        await asyncio.to_thread(own_server.kill)
        work.log.write(b"said while it was away\n")
        with pytest.raises(DatabaseDown):
            await remote.runs.get(run_id)
        await asyncio.to_thread(own_server.start)
        assert executor.stopped == []
        executor.end(run_id)
        run = await ended(remote, run_id)
        assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
        assert await remote.runs.log(run_id) == b"said while it was away\n"
        again = await submit(remote)
        await executor.has_started(again)


async def test_a_run_that_ends_while_the_database_is_away_is_told_after_its_return(
    remote: App, own_server: servers.Server
) -> None:
    run_id = await submit(remote)
    executor = Obedient()
    async with working(remote, executor):
        await executor.has_started(run_id)
        await asyncio.to_thread(own_server.kill)
        executor.end(run_id, "failed", reason="exit 3")
        await asyncio.to_thread(own_server.start)
        run = await ended(remote, run_id)
    assert (run.state, run.reason, run.attempt) == (RunState.FAILED, "exit 3", 1)
