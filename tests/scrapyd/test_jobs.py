"""Jobs: runs of spiders under the names that Scrapyd's clients gave them."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import event, select

from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.scrapyd.conftest import a_version
from weft.app import App
from weft.db import schema
from weft.errors import NotFound, QueueFull
from weft.runs.model import Ending, NewRun, RunSpec
from weft.scrapyd.jobs import matching_version, newest_version, whole_priority
from weft.scrapyd.model import JobState, NewJob, sanitised
from weft.tasks.model import ProjectSettings
from weft.workers.protocol import WorkerInfo


def job(name: str, **more: object) -> NewJob:
    return NewJob(**{"id": name, "project": "shop", "spider": "things", **more})  # type: ignore[arg-type]


def native(app: App, **more: object) -> NewRun:
    """A run that did not come through Scrapyd's API."""
    spec = RunSpec(spec={"spider": "things", "version": "1.0", "args": {"count": "2"}})
    return NewRun(**{"project": "shop", "task": "prices", "kind": "spider", "spec": spec, **more})  # type: ignore[arg-type]


async def worked_off(app: App, most: int = 100) -> list[int]:
    """Lease what waits and end it well; the runs in the order of their ends."""
    worker = await app.protocol.join(WorkerInfo("w1", "here", 1, "0", most))
    leases = await app.protocol.lease(worker, most)
    await app.protocol.finish(worker, [Ending(each.run_id, each.attempt, "succeeded") for each in leases])
    return [each.run_id for each in leases]


async def test_names_are_the_same_in_another_process(app: App, another_app: OpenApp) -> None:
    await a_version(app)
    other = await another_app()
    await app.jobs.schedule(job("a"))
    await other.jobs.schedule(job("a", args={"count": "9"}))
    assert [(each.id, each.args) for each in (await other.jobs.listing()).pending] == [("a", {})]
    assert (await other.jobs.find("a")) == (await app.jobs.find("a"))


async def test_of_many_at_once_with_one_name_there_is_one_run(app: App, another_app: OpenApp) -> None:
    await a_version(app)
    other = await another_app()
    await asyncio.gather(*(each.jobs.schedule(job("same")) for each in (app, other) * 10))
    assert len(await app.runs.find({})) == 1


async def test_a_name_may_be_used_in_two_projects(app: App) -> None:
    await a_version(app)
    await a_version(app, "books", digest="c" * 64)
    await app.jobs.schedule(job("a"))
    await app.jobs.schedule(job("a", project="books"))
    assert len((await app.jobs.listing()).pending) == 2
    assert await app.jobs.cancel("shop", "a") == JobState.PENDING
    assert [each.project for each in (await app.jobs.listing()).pending] == ["books"]


async def test_other_runs_of_spiders_are_called_after_their_numbers(app: App) -> None:
    await a_version(app)
    [submitted] = await app.runs.submit([native(app)])
    name = str(submitted.run_id)
    found = await app.jobs.find(name)
    assert found is not None
    assert (found.id, found.version, dict(found.args)) == (name, "1.0", {"count": "2"})
    assert await app.jobs.cancel("shop", name) == JobState.PENDING


async def test_a_name_of_digits_is_not_taken_for_the_number_of_a_named_run(app: App) -> None:
    await a_version(app)
    await app.jobs.schedule(job("a"))
    [run] = await app.runs.find({})
    assert await app.jobs.find(str(run.id)) is None


@on_sqlite
async def test_runs_of_other_kinds_are_no_jobs(app: App) -> None:
    shell = NewRun(project="shop", task="t", kind="shell", spec=RunSpec(spec={"command": ["true"]}))
    [submitted] = await app.runs.submit([shell])
    assert await app.jobs.find(str(submitted.run_id)) is None
    assert await app.jobs.counts() == {"pending": 0, "running": 0, "finished": 0}
    assert (await app.jobs.listing()).pending == []


async def test_what_ended_last_is_first_although_it_began_long_ago(app: App, clock: SetClock) -> None:
    """It has the lowest number of all, and of those that were looked at by number it would be none."""
    await a_version(app)
    await app.jobs.schedule(job("long"))
    worker = await app.protocol.join(WorkerInfo("w2", "here", 1, "0", 1))
    [lease] = await app.protocol.lease(worker, 1)
    for name in ("b", "c", "d"):
        await app.jobs.schedule(job(name))
    await worked_off(app)
    clock.forward(60)
    await app.protocol.finish(worker, [Ending(lease.run_id, lease.attempt, "succeeded")])
    found = (await app.jobs.listing(finished=2)).finished
    assert (found[0].id, len(found)) == ("long", 2)


async def test_no_more_are_shown_than_are_kept(another_app: OpenApp) -> None:
    app = await another_app(scrapyd_finished_to_keep=2)
    await a_version(app)
    for name in "abc":
        await app.jobs.schedule(job(name))
    await worked_off(app)
    assert len((await app.jobs.listing({"shop"})).finished) == 2
    assert (await app.jobs.counts({"shop"}))["finished"] == 2
    assert (await app.jobs.counts({"other"}))["finished"] == 0


async def test_a_full_queue_refuses_the_next_job_and_no_other(app: App) -> None:
    await a_version(app)
    await app.tasks.configure("shop", ProjectSettings(max_queued=2))
    answers = await asyncio.gather(*(app.jobs.schedule(job(name)) for name in "abcd"), return_exceptions=True)
    assert sum(isinstance(each, QueueFull) for each in answers) == 2
    assert len((await app.jobs.listing()).pending) == 2


@on_sqlite
async def test_a_list_asks_the_database_as_often_however_long_it_is(app: App) -> None:
    await a_version(app)
    asked: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *told: asked.append(told[2]))

    async def statements() -> int:
        asked.clear()
        await app.jobs.listing()
        await app.jobs.counts()
        return len(asked)

    few = await statements()
    for number in range(40):
        await app.jobs.schedule(job(f"j{number}"))
    await worked_off(app, 30)
    found = await app.jobs.listing()
    assert (len(found.pending), len(found.finished)) == (10, 30)
    assert await statements() == few > 0


@on_sqlite
@pytest.mark.parametrize(
    ("new", "what"),
    [
        (job("a", project="none"), "project"),
        (job("a", version="9"), "version"),
        (job("a", spider="none"), "spider"),
    ],
)
async def test_what_is_missing_is_told_by_its_kind(app: App, new: NewJob, what: str) -> None:
    await a_version(app)
    with pytest.raises(NotFound) as refused:
        await app.jobs.schedule(new)
    assert refused.value.what == what


@on_sqlite
async def test_who_scheduled_it_is_in_the_first_event_of_the_run(app: App) -> None:
    await a_version(app)
    await app.jobs.schedule(job("a", by="key:ci"))
    [run] = await app.runs.find({})
    events = await app.db.read(lambda tx: tx.rows(select(schema.events).where(schema.events.c.run_id == run.id)))
    assert [(each.kind, each.data) for each in events] == [("run_queued", '{"by":"key:ci"}')]


@pytest.mark.parametrize(
    ("priority", "expected"), [(0.4, 0), (1.6, 2), (-7.0, -7), (1e9, 1000), (float("-inf"), -1000)]
)
def test_a_priority_becomes_a_whole_one_within_bounds(priority: float, expected: int) -> None:
    assert whole_priority(priority) == expected


def test_versions_are_found_in_either_spelling_and_the_exact_one_first() -> None:
    assert sanitised("1.0/a b") == "1_0_a_b"
    assert matching_version(["1.0", "1_0", "2"], "1_0") == "1_0"
    assert matching_version(["1.0", "2"], "1_0") == "1.0"
    assert matching_version(["1.0"], "3") is None
    assert newest_version(["1.9", "1.10", "1.2"]) == "1.10"
