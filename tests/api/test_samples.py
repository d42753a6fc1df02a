"""Curves and comparisons of runs over the API."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.items.scene import lines, start
from tests.runs.acting import submit
from weft.access.model import Role
from weft.app import App

pytestmark = on_sqlite


async def test_a_curve_is_told_with_its_first_item_and_how_far_the_run_is(app: App, nobody: Visitor) -> None:
    spider = await start(app)
    stats = {"downloader/request_count": 3, "log_count/ERROR": 1, "weft/memory_bytes": 5_000_000}
    await spider.send(lines([{"number": 1}, {"number": 2}]), stats=stats)
    viewer = await nobody.with_role(Role.VIEWER)
    answer = await viewer.get(f"/v1/runs/{spider.run_id}/samples")
    curve = answer.json
    assert (answer.status, curve["run_id"], curve["attempt"]) == (200, spider.run_id, 1)
    assert curve["first_item_at"] is not None
    [sample] = curve["samples"]
    assert (sample["items"], sample["requests"], sample["errors"], sample["memory_bytes"]) == (2, 3, 1, 5_000_000)
    assert (await viewer.get(f"/v1/runs/{spider.run_id}/samples?attempt=1")).json == curve


async def test_a_run_that_has_told_nothing_has_an_empty_curve(app: App, nobody: Visitor) -> None:
    run_id = await submit(app)
    viewer = await nobody.with_role(Role.VIEWER)
    answer = await viewer.get(f"/v1/runs/{run_id}/samples")
    assert answer.json == {"run_id": run_id, "attempt": None, "first_item_at": None, "samples": []}
    comparison = (await viewer.get(f"/v1/runs/{run_id}/comparison")).json
    assert (comparison["run"]["items"], comparison["previous"], comparison["marks"]) == (None, None, [])


async def test_an_attempt_that_the_run_has_not_had_is_refused(app: App, nobody: Visitor) -> None:
    run_id = await submit(app)
    viewer = await nobody.with_role(Role.VIEWER)
    for wrong in ("7", "0", "x"):
        answer = await viewer.get(f"/v1/runs/{run_id}/samples?attempt={wrong}")
        assert (answer.status, answer.json["field"]) == (422, "attempt")
