"""A weft elsewhere answers as one that is here does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.conftest import on_sqlite
from tests.db.test_sqlite import small_disk
from tests.runs.acting import Hand, new_run
from weft.access.model import Role
from weft.app import App
from weft.client import Client, connect
from weft.clock import seconds
from weft.errors import ChangedMeanwhile, Conflict, DatabaseDown, GatewayDown, Invalid, NotAllowed, NotFound, Unknown
from weft.runs.model import RunState
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule

DAILY = Task(
    name="prices",
    project="shop",
    kind="noop",
    params={"country": "fr"},
    schedule=Schedule(cron="30 2 * * *", zone="Europe/Paris"),
    tags=("slow",),
)


async def test_runs_are_found_as_they_are_there(app: App, far: Client) -> None:
    ids = [run.run_id for run in await app.runs.submit([new_run() for _ in range(4)])]
    found = await far.runs.find({"project": "shop"}, limit=3)
    assert [run.id for run in found] == ids[:0:-1]
    assert [run.id for run in await far.runs.find({}, before=ids[1])] == ids[:1]
    here = await app.runs.get(ids[0])
    there = await far.runs.get(ids[0])
    assert (there.spec, there.state, there.task) == (here.spec, here.state, here.task)
    assert abs(there.queued_at - here.queued_at) < seconds(0.001)


async def test_runs_that_a_limit_holds_back_are_counted_as_they_are_there(app: App, far: Client) -> None:
    await app.tasks.put(replace(DAILY, schedule=None, max_running=1))
    for _ in range(3):
        await app.tasks.start("shop", "prices", {})
    assert await far.runs.held() == await app.runs.held()
    await (await Hand.join(app)).lease_one()
    assert (await far.runs.held(), await app.runs.held()) == (2, 2)


async def test_a_run_is_queued_ended_and_queued_again_from_afar(app: App, far: Client) -> None:
    [queued] = await far.runs.submit([new_run(task="once", kind="noop")])
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert lease.run_id == queued.run_id
    assert (await far.runs.counts())["running"] == 1
    with pytest.raises(Conflict, match="has not ended yet"):
        await far.runs.again(queued.run_id)
    await hand.end_all([lease], "succeeded")
    assert (await far.runs.get(queued.run_id)).state is RunState.SUCCEEDED
    [attempt] = await far.runs.attempts(queued.run_id)
    assert (attempt.attempt, attempt.outcome) == (1, "succeeded")
    assert (await far.runs.ended(within_seconds=60)) == {"succeeded": 1}
    second = await far.runs.again(queued.run_id)
    assert (await far.runs.cancel(second.run_id)).state is RunState.CANCELLED


async def test_tasks_are_kept_and_read_back_whole(app: App, far: Client) -> None:
    wanted = DesiredState((DAILY,))
    assert [change.what for change in await far.tasks.rehearse(wanted)] == ["create"]
    assert await app.tasks.all() == []
    assert [change.what for change in await far.tasks.apply(wanted)] == ["create"]
    assert await far.tasks.apply(wanted) == []
    stored = await far.tasks.get("shop", "prices")
    assert stored.task == DAILY
    assert [each.task for each in await far.tasks.all()] == [DAILY]
    assert (await far.tasks.pause("shop", "prices")).task.paused
    started = await far.tasks.start("shop", "prices", {"country": "de"}, idempotency_key="one")
    assert (await far.tasks.start("shop", "prices", {"country": "de"}, idempotency_key="one")).run_id == started.run_id
    assert (await far.runs.get(started.run_id)).spec.params == {"country": "de"}
    await far.tasks.delete("shop", "prices")
    with pytest.raises(NotFound, match="shop/prices"):
        await far.tasks.get("shop", "prices")


async def test_a_task_that_somebody_changed_since_it_was_read_is_not_changed(app: App, far: Client) -> None:
    await app.tasks.put(DAILY)
    mine = (await far.tasks.get("shop", "prices")).task
    theirs = replace(DAILY, priority=5)
    await app.tasks.put(theirs)
    for change in (far.tasks.put(replace(mine, priority=9)), far.tasks.delete("shop", "prices")):
        with pytest.raises(ChangedMeanwhile, match=r"task shop/prices is at revision 2.*read it again and repeat"):
            await change
    assert (await app.tasks.get("shop", "prices")).task == theirs
    read = (await far.tasks.get("shop", "prices")).task
    assert (await far.tasks.put(replace(read, priority=9))).task.priority == 9
    assert (await far.tasks.put(replace(read, priority=8))).task.priority == 8, "its own change is what it has read"
    with pytest.raises(ChangedMeanwhile):
        await far.tasks.put(DAILY, new=True)
    with pytest.raises(ChangedMeanwhile):
        await far.tasks.put(DAILY, seen=[1, 2])
    await far.tasks.pause("shop", "prices")
    await far.tasks.apply(DesiredState((theirs,)))
    await far.tasks.delete("shop", "prices")
    assert await app.tasks.all() == []


async def test_what_was_never_read_is_changed_as_it_is(app: App, far: Client) -> None:
    await app.tasks.put(DAILY)
    await app.tasks.put(replace(DAILY, priority=5))
    assert (await far.tasks.put(replace(DAILY, priority=7))).task.priority == 7


async def test_workers_are_seen_from_afar(app: App, far: Client) -> None:
    hand = await Hand.join(app)
    [worker] = await far.workers.all()
    assert worker.id == hand.id
    assert (await far.workers.get(worker.name)).labels == worker.labels
    assert (await far.workers.drain(worker.id)).state == "draining"
    assert (await app.workers.get(worker.name)).state == "draining"


async def test_errors_keep_their_kind_and_their_sentence(app: App, far: Client) -> None:
    with pytest.raises(NotFound, match="there is no run 4711"):
        await far.runs.get(4711)
    with pytest.raises(Invalid, match="limit"):
        await far.connection.get(dict, "runs", limit=0)
    _, token = await app.keys.create("viewer", {"shop": Role.VIEWER}, by="test")
    async with connect(far.connection.url, token) as viewer:
        with pytest.raises(NotAllowed):
            await viewer.tasks.apply(DesiredState((DAILY,)))
    async with connect(far.connection.url, "weft_none_none") as stranger:
        with pytest.raises(Unknown):
            await stranger.runs.find({})


async def test_a_gateway_that_is_away_is_told_in_one_sentence() -> None:
    async with connect("http://127.0.0.1:1", "weft_none_none") as client:
        with pytest.raises(GatewayDown, match="does not answer"):
            await client.runs.find({})


async def test_a_run_without_a_task_is_checked_where_it_is_to_run(app: App, far: Client) -> None:
    task = Task(name="once", project="shop", kind="noop", spec={"sleep_seconds": 0.0}, tags=("slow",), priority=3)
    assert far.tasks.loose(task, idempotency_key="k") == app.tasks.loose(task, idempotency_key="k")
    wrong = replace(task, spec={"sleeep_seconds": 1})
    with pytest.raises(Invalid) as here:
        app.tasks.loose(wrong)
    with pytest.raises(Invalid) as there:
        await far.runs.submit([far.tasks.loose(wrong)])
    assert str(there.value) == str(here.value)


async def test_crawls_of_more_than_a_page_and_runs_from_the_oldest_are_listed_as_they_are_there(
    app: App, far: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.client.crawls.MOST_A_PAGE", 2)
    spec = {"urls": ["http://a.example/"], "fetching": {"contact": "us@weft.example"}}
    ids = [(await app.crawls.create("shop", spec, by="test")).id for _ in range(5)]
    assert [each.id for each in await far.crawls.all(limit=4)] == ids[:0:-1]
    assert [each.id for each in await far.crawls.all({"shop", "other"}, before=ids[4])] == ids[3::-1]
    listed = await app.runs.find({}, oldest_first=True)
    assert [run.id for run in await far.runs.find({}, oldest_first=True)] == [run.id for run in listed]


@on_sqlite
async def test_a_database_that_is_away_there_is_told_as_one_that_is_away_here(app: App, far: Client) -> None:
    with small_disk(app.db), pytest.raises(DatabaseDown, match=r"^the disk of the database is full"):
        await far.runs.submit([new_run(kind="shell", spec={"script": "#" * 60_000})])


@pytest.mark.parametrize("url", ["weft.example", "ftp://weft.example", "https://weft.example/?a=b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="the address of weft"):
        connect(url, "")
