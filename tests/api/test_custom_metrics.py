"""What runs and workers say of themselves is told at /metrics, and never without bound."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.acting import Visitor, visiting
from tests.api.test_metrics import read
from tests.cli.commanding import Hand
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.runs.acting import new_run
from weft import metrics


async def end(visitor: Visitor, clock: SetClock, *reports: Any, **fields: Any) -> None:
    """Let a run of ``fields`` end with each of these under ``metrics``, and let them be counted."""
    hand = await Hand.join(visitor.app)
    for report in reports:
        await visitor.app.runs.submit([new_run(**fields)])
        await hand.end(await hand.lease(), result={"metrics": report})
    clock.forward(3)


async def test_the_newest_run_of_a_task_tells_its_numbers(admin: Visitor, clock: SetClock) -> None:
    await end(admin, clock, {"pages": 7, "gone": 1}, {"pages": 12})
    await end(admin, clock, {"pages": 3}, task="stock")
    found = await read(admin)
    told = {labels: value for (name, labels), value in found.items() if name == "weft_custom"}
    assert told == {("pages", "shop", "prices"): 12, ("pages", "shop", "stock"): 3}


@on_sqlite
async def test_numbers_are_still_told_after_a_run_that_had_none(admin: Visitor, clock: SetClock) -> None:
    await end(admin, clock, {"pages": 7})
    await read(admin)
    await end(admin, clock, None, {"pages": "many"}, ["pages"])
    assert (await read(admin))["weft_custom", ("pages", "shop", "prices")] == 7


@on_sqlite
async def test_a_gateway_that_starts_later_tells_them_too(
    admin: Visitor, another_app: OpenApp, clock: SetClock
) -> None:
    await end(admin, clock, {"pages": 7})
    async with visiting(await another_app()) as nobody:
        clock.forward(1)
        other = Visitor(nobody._session, nobody.app, nobody.address, admin.token)
        assert (await read(other))["weft_custom", ("pages", "shop", "prices")] == 7


@on_sqlite
async def test_many_numbers_are_bounded_and_the_newest_are_told(
    admin: Visitor, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_CUSTOM", 4)
    for number in range(6):
        await end(admin, clock, {"a": number, "b": number}, task=f"t{number}")
    found = await read(admin)
    assert {labels[2] for name, labels in found if name == "weft_custom"} == {"t4", "t5"}


@on_sqlite
async def test_a_worker_tells_its_labels_memory_and_processor_time(admin: Visitor) -> None:
    hand = await Hand.join(admin.app, name="w7", labels=("gpu", "region=eu"))
    await hand.beat(memory_bytes=30_000_000, cpu_seconds=1.5)
    await Hand.join(admin.app, name="old")
    found = await read(admin)
    assert found["weft_worker_labels", ("gpu", "w7")] == found["weft_worker_labels", ("region=eu", "w7")] == 1
    assert found["weft_worker_memory_bytes", ("w7",)] == 30_000_000
    assert found["weft_worker_cpu_seconds", ("w7",)] == 1.5
    assert ("weft_worker_memory_bytes", ("old",)) not in found


@on_sqlite
async def test_a_client_on_this_machine_needs_no_key_where_that_is_wanted(another_app: OpenApp) -> None:
    async with visiting(await another_app(open_metrics=True)) as nobody:
        assert (await nobody.get("/metrics")).status == 200
        for name in ("X-Forwarded-For", "Forwarded"):
            assert (await nobody.get("/metrics", headers={name: "127.0.0.1"})).status == 401
        assert (await nobody.get("/metrics", headers={"Authorization": "Bearer weft_wrong_key"})).status == 401
        assert (await nobody.get("/v1/runs")).status == 401


@on_sqlite
async def test_a_client_elsewhere_needs_a_key_all_the_same(another_app: OpenApp) -> None:
    app = await another_app(open_metrics=True, trusted_proxies="127.0.0.1")
    async with visiting(app) as nobody:
        assert (await nobody.get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"})).status == 401
