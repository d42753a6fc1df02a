"""A worker whose line breaks in a way that nobody foresaw: it says so and goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from tests.waiting import eventually
from tests.workers.acting import Obedient, working
from weft.app import App


class Surprising:
    """The worker protocol, whose chosen calls raise once what no caller expects."""

    def __init__(self, protocol: Any, *surprises: str) -> None:
        self._protocol, self.surprises = protocol, set(surprises)

    def __getattr__(self, name: str) -> Any:
        if name in self.surprises:
            self.surprises.discard(name)
            raise RuntimeError("nobody foresaw this")
        return getattr(self._protocol, name)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@on_sqlite
async def test_live_logs_go_on_after_a_surprise(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    line = Surprising(app.protocol, "ship")
    async with working(app, executor, protocol=line):
        (await executor.has_started(run_id)).log.write(b"hello\n")
        await eventually(lambda: live_log(app, run_id))
        executor.end(run_id)
    assert not line.surprises


@on_sqlite
async def test_a_lost_worker_joins_anew_after_a_surprise(app: App) -> None:
    line = Surprising(app.protocol)
    executor = Obedient()
    async with working(app, executor, protocol=line):
        worker = await eventually(lambda: joined(app))
        line.surprises.add("join")
        await Hand(app, worker.id, "w1").lose()
        run_id = await submit(app)
        await executor.has_started(run_id)
        executor.end(run_id)
    assert not line.surprises


async def live_log(app: App, run_id: int) -> bytes:
    return b"".join(data for _, data in await app.runs.live_log(run_id, 1))


async def joined(app: App) -> Any:
    return next(iter(await app.workers.all()), None)
