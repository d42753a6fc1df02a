"""Applying tasks: all or nothing, exactly what was shown, and nothing the second time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import NOON, Hand, facts, keep, noop, runs_of
from weft.app import App
from weft.clock import SECOND
from weft.errors import ChangedMeanwhile, Invalid, NotFound
from weft.runs.model import Retry
from weft.tasks.changes import DesiredState, TaskChange
from weft.tasks.model import Deduplication, ProjectSettings, Task, UpstreamTask
from weft.tasks.schedule import Schedule


def said(changes: list[TaskChange]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(change.what, change.name or change.project, dict(change.fields)) for change in changes]


async def names(app: App) -> list[str]:
    return [stored.task.full_name for stored in await app.tasks.all()]


def full(name: str, **fields: Any) -> Task:
    """A task with every field set to something else than its default."""
    return Task(
        **{
            "name": name,
            "project": "shop",
            "kind": "shell",
            "spec": {"argv": ["echo", "{{word}}"], "env": {"A": "b"}},
            "description": "says a word",
            "params": {"word": "hello", "times": 3, "list": [1, "x", None]},
            "schedule": Schedule(cron="30 2 * * *", zone="Europe/Berlin", misfire="all", overlap="replace"),
            "tags": ("heavy",),
            "labels": ("gpu", "eu"),
            "priority": 5,
            "timeout_seconds": 60,
            "grace_seconds": 3,
            "retry": Retry(count=3, on=("failed",)),
            "max_running": 2,
            "dedup": Deduplication(params=("word",), window_seconds=60),
            "log_bytes": 1000,
            **fields,
        }
    )


async def test_a_task_comes_back_as_it_was_given(app: App) -> None:
    await keep(app, full("base"), full("next", after=(UpstreamTask("base", "any"),), paused=True))
    assert (await app.tasks.get("shop", "base")).task == full("base")
    assert (await app.tasks.get("shop", "next")).task == full("next", after=(UpstreamTask("base", "any"),), paused=True)


async def test_one_bad_task_leaves_nothing_stored(app: App) -> None:
    bad = [
        noop("bad", spec={"sleep_seconds": -1}),
        noop("bad", spec={"typo": 1}),
        noop("bad", spec={"fail": "{{nobody}}"}),
        Task(name="bad", kind="unheard-of"),
        noop("bad", after=(UpstreamTask("nobody"),)),
        noop("bad", after=(UpstreamTask("bad"),)),
    ]
    await keep(app, noop("old", priority=1))
    for task in bad:
        with pytest.raises(Invalid):
            await keep(app, noop("good", "* * * * *"), noop("old", priority=2), task)
        assert await names(app) == ["default/old"]
        assert (await app.tasks.get("default", "old")).task.priority == 1
    assert [fact.data["change"] for fact in await facts(app, "task_changed")] == ["create"]


async def test_what_is_shown_is_what_changes(app: App, clock: SetClock) -> None:
    await keep(app, noop("same", "* * * * *"), noop("changed", "* * * * *", priority=1), noop("gone"))
    wanted = DesiredState(
        (noop("same", "* * * * *"), noop("changed", "@hourly", priority=1, tags=("x",)), noop("new", params={"a": 1})),
        {"default": ProjectSettings(max_running=4)},
    )
    shown = await app.tasks.compare(wanted, prune=True)
    assert said(shown) == [
        ("settings", "default", {"max_running": (None, 4)}),
        (
            "change",
            "changed",
            {"schedule": ({"cron": "* * * * *"}, {"cron": "0 * * * *"}), "tags": (None, ["x"])},
        ),
        ("create", "new", {"kind": (None, "noop"), "params": (None, {"a": 1})}),
        ("delete", "gone", {}),
    ]
    assert await names(app) == ["default/changed", "default/gone", "default/same"]
    assert said(await app.tasks.apply(wanted, prune=True)) == said(shown)
    assert await names(app) == ["default/changed", "default/new", "default/same"]


async def test_applying_twice_changes_nothing(app: App) -> None:
    wanted = DesiredState(
        (full("base"), full("next", after=(UpstreamTask("base"),)), noop("plain")),
        {"shop": ProjectSettings(weight=2.5, max_running=9, max_queued=100, tags={"heavy": 1})},
    )
    assert len(await app.tasks.apply(wanted)) == 4
    revisions = [(stored.revision, stored.updated_at) for stored in await app.tasks.all()]
    assert await app.tasks.apply(wanted) == []
    assert await app.tasks.apply(wanted, prune=True) == []
    assert await app.tasks.compare(wanted, prune=True) == []
    assert [(stored.revision, stored.updated_at) for stored in await app.tasks.all()] == revisions
    assert len(await facts(app, "task_changed")) == 3


async def test_pruning_is_only_of_the_projects_that_are_named(app: App) -> None:
    await keep(app, noop("a", project="one"), noop("b", project="one"), noop("c", project="two"))
    await app.tasks.apply(DesiredState((noop("a", project="one"),)), prune=True)
    assert await names(app) == ["one/a", "two/c"]
    await app.tasks.apply(DesiredState((), {"two": ProjectSettings()}), prune=True)
    assert await names(app) == ["one/a"]


async def test_without_pruning_nothing_is_deleted(app: App) -> None:
    await keep(app, noop("a"), noop("b"))
    assert await app.tasks.apply(DesiredState((noop("a"),))) == []
    assert await names(app) == ["default/a", "default/b"]


async def test_the_runs_of_a_deleted_task_stay(app: App, hand: Hand) -> None:
    await keep(app, noop("t"))
    submitted = await app.tasks.start("default", "t")
    await app.tasks.apply(DesiredState((noop("other"),)), prune=True)
    assert [run.id for run in await runs_of(app, "t")] == [submitted.run_id]
    assert await hand.work() == ["t"]


async def test_a_run_keeps_the_definition_that_it_was_queued_with(app: App) -> None:
    await keep(app, noop("t", spec={"fail": "old"}))
    await app.tasks.start("default", "t")
    await keep(app, noop("t", spec={"fail": "new"}))
    await app.tasks.start("default", "t")
    assert [run.spec.spec for run in await runs_of(app, "t")] == [{"fail": "old"}, {"fail": "new"}]


async def test_each_change_has_its_event_and_raises_the_revision(app: App) -> None:
    await keep(app, noop("t"))
    await keep(app, noop("t", priority=1))
    await app.tasks.pause("default", "t")
    assert (await app.tasks.get("default", "t")).revision == 3
    await app.tasks.delete("default", "t")
    changes = [fact.data["change"] for fact in await facts(app, "task_changed")]
    assert changes == ["create", "change", "change", "delete"]


async def test_limits_follow_their_tasks(app: App, hand: Hand) -> None:
    async def leased(*tasks: Task) -> int:
        await keep(app, *tasks)
        for _ in range(5):
            await app.tasks.start("default", "t")
        leases = await hand.lease()
        await hand.finish(*leases)
        while more := await hand.lease():
            await hand.finish(*more)
        return len(leases)

    assert await leased(noop("t", max_running=2)) == 2
    assert await leased(noop("t", max_running=3)) == 3
    assert await leased(noop("t")) == 5
    assert await leased(noop("t", {"when": "@yearly", "overlap": "queue_one"})) == 1
    await app.tasks.apply(DesiredState((noop("u"),)), prune=True)
    assert await leased(noop("t")) == 5


async def test_the_limit_of_a_tag_is_gone_once_the_file_no_longer_names_it(app: App, hand: Hand) -> None:
    tagged = noop("t", tags=("heavy",))
    await app.tasks.apply(DesiredState((tagged,), {"default": ProjectSettings(tags={"heavy": 1})}))
    changes = await app.tasks.apply(DesiredState((tagged,), {"default": ProjectSettings()}))
    assert said(changes) == [("settings", "default", {"tags.heavy": (1, None)})]
    for _ in range(3):
        await app.tasks.start("default", "t")
    assert len(await hand.lease()) == 3


async def test_applying_at_once_from_several_places_stores_each_task_once(app: App, another_app: OpenApp) -> None:
    apps = [app, await another_app(), await another_app()]
    tasks = [noop(f"t{number}", "* * * * *") for number in range(20)]
    changes = await asyncio.gather(*(keep_counted(each, tasks) for each in apps))
    assert sum(changes) == 20
    assert len(await app.tasks.all()) == 20


async def keep_counted(app: App, tasks: list[Task]) -> int:
    return len(await app.tasks.apply(DesiredState(tuple(tasks))))


@pytest.mark.parametrize("database_kind", ["postgres"])
async def test_more_tasks_than_one_statement_can_name_are_applied(app: App) -> None:
    many = 35_000
    await keep(app, *(noop(f"t{number}") for number in range(many)))
    assert len(await app.tasks.all()) == many
    assert await app.tasks.compare(DesiredState(tuple(noop(f"t{number}") for number in range(many)))) == []


async def test_a_start_with_a_wrong_value_is_refused(app: App) -> None:
    await keep(app, noop("t", spec={"sleep_seconds": "{{pause}}"}, params={"pause": 1}))
    with pytest.raises(Invalid, match="sleep_seconds is -5; it must be a number from 0"):
        await app.tasks.start("default", "t", {"pause": -5})
    with pytest.raises(Invalid, match="priority is 5000; it must be from -1000 to 1000"):
        await app.tasks.start("default", "t", priority=5000)
    with pytest.raises(NotFound, match="there is no task default/nobody"):
        await app.tasks.start("default", "nobody")
    assert await runs_of(app, "t") == []


@pytest.mark.parametrize("call", ["pause", "delete", "get"])
async def test_a_task_that_is_not_there_is_named(app: App, call: str) -> None:
    with pytest.raises(NotFound, match="there is no task default/nobody"):
        await getattr(app.tasks, call)("default", "nobody")


async def test_a_new_schedule_waits_for_its_first_tick_after_now(app: App) -> None:
    await keep(app, noop("t", "0 * * * *"))
    assert (await app.tasks.get("default", "t")).next_fire_at == NOON + 3600 * SECOND


async def test_names_that_differ_only_in_case_are_different_tasks(app: App) -> None:
    await keep(app, noop("t"), noop("T"))
    assert len(await app.tasks.all()) == 2


async def test_a_new_task_inherits_no_run_from_a_deleted_one(app: App, clock: SetClock) -> None:
    await keep(app, noop("old"))
    await app.tasks.start("default", "old")
    await app.tasks.delete("default", "old")
    await keep(app, noop("new", "* * * * *"))
    clock.forward(60)
    await app.scheduler.tick()
    assert len(await runs_of(app, "new")) == 1


async def test_a_task_that_is_made_again_never_has_a_revision_that_it_had(app: App) -> None:
    seen = []
    for _ in range(2):
        await app.tasks.put(noop("t", description="first"))
        stored, _ = await app.tasks.put(noop("t", description="second"))
        seen += [stored.revision - 1, stored.revision]
        await app.tasks.delete("default", "t", seen=[stored.revision])
    stored, _ = await app.tasks.put(noop("t"))
    seen.append(stored.revision)
    assert len(set(seen)) == 5
    await app.tasks.apply(DesiredState((noop("other"),)), prune=True)
    with pytest.raises(ChangedMeanwhile):
        await app.tasks.put(noop("t"), seen=seen)
    again, _ = await app.tasks.put(noop("t"))
    assert again.revision not in seen
