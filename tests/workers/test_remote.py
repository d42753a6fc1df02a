"""A worker that reaches weft through a gateway alone."""

from __future__ import annotations

from tests.conftest import on_sqlite
from tests.runs.acting import submit_many
from tests.workers.acting import ended
from tests.workers.far_away import far_away, gateway
from weft.app import App


@on_sqlite
async def test_runs_complete_through_the_gateway(app: App) -> None:
    async with gateway(app) as address, far_away(app, address):
        for run_id in await submit_many(app, 5, kind="shell", spec={"argv": ["echo", "hello"]}):
            run = await ended(app, run_id)
            assert (run.state.value, await app.runs.log(run_id)) == ("succeeded", b"hello\n")
