"""An executor is somebody's plug-in: its fault ends its run, not the worker."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.waiting import eventually
from tests.workers.acting import Failing, ended, told, working
from weft.app import App
from weft.ports import Ended
from weft.runs.model import RunState

BROKEN: dict[str, Any] = {
    "raises": lambda: 1 / 0,
    "says an outcome that there is not": lambda: Ended(outcome="perfect"),
    "says an outcome that is not its to say": lambda: Ended(outcome="lost"),
    "returns nothing": lambda: None,
    "has a result that is no JSON": lambda: Ended(outcome="succeeded", result={"when": object()}),
    "has a result that is no text": lambda: Ended(outcome="succeeded", result={"name": "\udcff"}),
    "has a very large result": lambda: Ended(outcome="succeeded", result={"page": "x" * 20_000_000}),
    "gives a reason that no database takes": lambda: Ended(outcome="failed", reason="nul \0, \udcff"),
    "gives a reason that is no text": lambda: Ended(outcome="failed", reason=ValueError("x")),  # type: ignore[arg-type]
    "gives an exit code out of range": lambda: Ended(outcome="failed", exit_code=2**70),
    "asks to wait until the end of time": lambda: Ended(outcome="postponed", retry_after_seconds=float("inf")),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_executor_ends_its_run_and_not_the_worker(
    app: App, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    broken, healthy = await submit(app, kind="broken"), await submit(app)
    async with working(app, {"broken": Failing(BROKEN[fault])}):
        assert (await ended(app, healthy)).state is RunState.SUCCEEDED
        await eventually(lambda: told(app, broken))
        assert (await ended(app, await submit(app))).state is RunState.SUCCEEDED


@on_sqlite
async def test_an_unknown_kind_fails_with_a_sentence(app: App) -> None:
    run_id = await submit(app, kind="teleport")
    async with working(app):
        run = await ended(app, run_id)
    assert run.state is RunState.FAILED
    assert run.reason is not None
    assert "teleport" in run.reason
