"""Lists of runs: whatever is asked for, page after page has each run once, in order, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import update

from tests.conftest import SetClock
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.clock import seconds
from weft.db import schema
from weft.db.database import Transaction
from weft.projects.model import Code
from weft.runs import list_store
from weft.runs.model import NewRun, Run, RunListing, RunSpec, Trigger

CHANCE = random.Random(7)
ENDINGS = {
    "succeeded": ("succeeded", None),
    "failed": ("failed", "failed"),
    "timeout": ("failed", "timeout"),
    "lost": ("failed", "lost"),
    "oom": ("failed", "oom"),
    "cancelled": ("cancelled", "cancelled"),
}


async def many_runs(app: App, count: int = 120) -> list[Run]:
    """Runs of three projects, three tasks and three flows, which ended in every way, wait or run."""
    new = [
        NewRun(
            project=f"p{CHANCE.randrange(3)}",
            task=f"t{CHANCE.randrange(3)}",
            kind=CHANCE.choice(("shell", "http")),
            spec=RunSpec(spec={"n": number}),
            trigger=CHANCE.choice((Trigger.MANUAL, Trigger.SCHEDULE)),
            correlation_id=CHANCE.choice(("", "", "flow-a", "flow-b")),
        )
        for number in range(count)
    ]
    ids = [each.run_id for each in await app.runs.submit(new)]
    await app.db.transact(lambda tx: end_somehow(tx, ids))
    return await app.runs.find({}, limit=count, oldest_first=True)


def end_somehow(tx: Transaction, ids: Sequence[int]) -> None:
    for run_id in ids:
        how = CHANCE.choice((*ENDINGS, "queued", "running"))
        state, trouble = ENDINGS.get(how, (how, None))
        fields: dict[str, Any] = {"state": state, "trouble": trouble, "ready_lane": 1 if how == "queued" else None}
        fields |= {"lease_worker": 1} if how == "running" else {}
        fields |= {"outcome": how, "finished_at": 1} if how in ENDINGS else {}
        tx.execute(update(schema.runs).where(schema.runs.c.id == run_id).values(**fields))


async def walked(app: App, **wanted: Any) -> list[int]:
    """The ids of all pages of a listing."""
    found: list[int] = []
    before: int | None = None
    while True:
        ids, _, rows, before = await app.runs.page(RunListing(before=before, **wanted))
        assert set(ids) == set(rows)
        found += ids
        if before is None:
            return found


QUESTIONS: list[Mapping[str, str]] = [
    {},
    {"project": "p1"},
    {"task": "t1"},
    {"project": "p2", "task": "t0"},
    {"kind": "http"},
    {"project": "p0", "kind": "http", "trigger": "schedule"},
    {"state": "queued"},
    {"state": "queued", "project": "p1"},
    {"state": "running", "task": "t2"},
    {"state": "succeeded"},
    {"state": "failed"},
    {"state": "failed", "outcome": "timeout"},
    {"state": "cancelled", "outcome": "timeout"},
    {"outcome": "cancelled"},
    {"outcome": "succeeded", "task": "t1"},
    {"outcome": "lost", "project": "p1"},
    {"correlation_id": "flow-a"},
    {"correlation_id": "flow-b", "state": "failed"},
    {"correlation_id": "unknown"},
]


@pytest.mark.parametrize("looked_at", [(2_000, 10_000), (2, 7), (1, 1)])
async def test_all_pages_together_have_every_run_that_fits_once_and_in_order(
    app: App, looked_at: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_store, "LOOKED_AT", looked_at)
    everything = await many_runs(app)
    for where in QUESTIONS:
        for projects in (None, frozenset({"p0", "p1"})):
            if projects is not None and where.get("project", "p0") not in projects:
                continue
            fitting = [
                run.id
                for run in everything
                if all(getattr(run, name) == value for name, value in where.items())
                and (projects is None or run.project in projects)
            ]
            for oldest_first in (False, True):
                asked = {"where": where, "projects": projects, "oldest_first": oldest_first}
                found = await walked(app, limit=9, **asked)
                assert found == (fitting if oldest_first else fitting[::-1]), asked
                first = await app.runs.find(where, projects=projects, limit=20, oldest_first=oldest_first)
                assert [run.id for run in first] == found[:20], asked


async def test_a_page_looks_at_a_bounded_number_of_runs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_store, "LOOKED_AT", (5, 50))
    ids = [
        each.run_id
        for each in await app.runs.submit([NewRun(project="p", task="t", kind="shell", spec=RunSpec({}))] * 120)
    ]
    found = await app.runs.page(RunListing(where={"kind": "http"}))
    assert list(found.ids) == []
    assert found.next == ids[-51]


async def test_a_page_of_many_projects_looks_at_no_more_runs_than_one_of_all(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_store, "LOOKED_AT", (5, 40))
    projects = [f"p{number}" for number in range(4)]
    new = [NewRun(project=each, task="t", kind="shell", spec=RunSpec({})) for _ in range(30) for each in projects]
    ids = [each.run_id for each in await app.runs.submit(new)]
    found = await app.runs.page(RunListing(where={"kind": "http"}, projects=frozenset(projects)))
    assert list(found.ids) == []
    assert found.next == ids[-41]


def test_only_a_page_that_is_found_at_once_is_short() -> None:
    many = frozenset(map(str, range(50)))
    assert RunListing(where={"project": "shop", "state": "running"}, projects=frozenset({"shop"})).is_short
    assert not RunListing(where={"kind": "http"}).is_short
    assert not RunListing(where={}, projects=many).is_short


async def listed(app: App, **where: Any) -> list[int]:
    return [run.id for run in await app.runs.find(where, oldest_first=True)]


async def test_runs_are_found_by_worker_tag_spider_version_and_time(app: App, clock: SetClock) -> None:
    began = clock()
    first = await submit(app, spec={"spider": "books"}, tags=("eu", "heavy"))
    await submit(app, spec={"spider": "Books"}, tags=("eu2",), params={"tag": "eu"})
    clock.forward(60)
    noon = clock()
    pinned = await submit(app, project="p2", tags=("eu",), code=Code("v1", "d", "s"))
    worker = await Hand.join(app, "w1")
    lease = await worker.lease_one()

    assert await listed(app, tag="eu") == [first, pinned]
    assert await listed(app, tag="e_") == []
    assert await listed(app, spider="books") == [first]
    assert await listed(app, version="v1") == [pinned]
    assert await listed(app, worker="w1") == [lease.run_id]
    assert await listed(app, since=noon) == [pinned]
    assert pinned not in await listed(app, since=began, until=noon)
    assert len(await listed(app, since=began, until=noon)) == 2
    assert await listed(app, until=began) == []


async def test_a_span_of_time_is_found_without_a_look_at_all_runs(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_store, "LOOKED_AT", (5, 10))
    monkeypatch.setattr(list_store, "APART", 2)
    ids = []
    for _ in range(60):
        ids.append(await submit(app))
        clock.forward(60)
    began = clock() - seconds(3600)
    found = await app.runs.page(
        RunListing(where={"since": began + seconds(1800), "until": began + seconds(2100)}, limit=3)
    )
    assert list(found.ids) == ids[32:35][::-1]
    later = await app.runs.page(RunListing(where={"until": began + seconds(120)}))
    assert (list(later.ids), later.next) == (ids[:2][::-1], None)
