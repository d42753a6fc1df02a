"""What comes after what: every edge is walked once, and what cannot be walked is refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import select

from tests.cases import for_each
from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import Hand, keep, noop, runs_of, settle
from weft import events
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import Conflict, Invalid
from weft.runs.model import Lease, Retry, RunState, Trigger
from weft.tasks import reconcile, scheduler
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task, UpstreamTask


def after(*upstreams: str, on: str = "success") -> tuple[UpstreamTask, ...]:
    return tuple(UpstreamTask(name, on) for name in upstreams)  # type: ignore[arg-type]


def failing(*names: str) -> Callable[[Lease], str]:
    return lambda lease: "failed" if lease.task in names else "succeeded"


async def ends(app: App, *names: str) -> dict[str, list[str | None]]:
    """The outcomes of the runs of each task, oldest first."""
    return {name: [run.outcome for run in await runs_of(app, name)] for name in names}


async def test_a_chain_runs_in_order_and_once_for_each_start(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")), noop("c", after=after("b")))
    for _ in range(3):
        await app.tasks.start("default", "a")
        assert await settle(app, hand) == ["a", "b", "c"]


async def test_what_follows_is_of_the_same_flow_and_trace(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")))
    await app.tasks.start("default", "a", correlation_id="order-7")
    await settle(app, hand)
    (first,), (second,) = await runs_of(app, "a"), await runs_of(app, "b")
    assert (second.trigger, second.correlation_id) == (Trigger.DEPENDENCY, "order-7")
    assert first.traceparent.split("-")[1] == second.traceparent.split("-")[1]
    assert first.traceparent.split("-")[2] != second.traceparent.split("-")[2]


async def test_one_end_starts_all_that_wait_for_it(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), *(noop(f"b{number}", after=after("a")) for number in range(5)))
    await app.tasks.start("default", "a")
    assert sorted(await settle(app, hand)) == ["a", "b0", "b1", "b2", "b3", "b4"]


async def test_a_fan_in_waits_for_the_last_of_its_upstreams(app: App, hand: Hand) -> None:
    middle = [f"m{number}" for number in range(4)]
    await keep(app, noop("a"), *(noop(m, after=after("a")) for m in middle), noop("z", after=after(*middle)))
    await app.tasks.start("default", "a")
    await app.scheduler.tick()
    await hand.work()
    await app.scheduler.tick()
    leases = await hand.lease()
    for lease in leases[:-1]:
        await hand.finish(lease)
        await app.scheduler.tick()
        assert await runs_of(app, "z") == []
    await hand.finish(leases[-1])
    await app.scheduler.tick()
    assert len(await runs_of(app, "z")) == 1


async def test_two_starts_that_overtake_each_other_are_not_mixed_up(app: App, hand: Hand) -> None:
    await keep(
        app, noop("a"), noop("b", after=after("a")), noop("c", after=after("a")), noop("z", after=after("b", "c"))
    )
    for flow in ("one", "two"):
        await app.tasks.start("default", "a", correlation_id=flow)
    await app.scheduler.tick()
    await hand.work()
    await app.scheduler.tick()
    leases = {(lease.task, lease.correlation_id): lease for lease in await hand.lease()}
    for key in (("b", "one"), ("c", "two")):
        await hand.finish(leases[key])
    await app.scheduler.tick()
    assert await runs_of(app, "z") == []
    await hand.finish(leases["b", "two"])
    await app.scheduler.tick()
    assert [run.correlation_id for run in await runs_of(app, "z")] == ["two"]
    await hand.finish(leases["c", "one"])
    await app.scheduler.tick()
    assert [run.correlation_id for run in await runs_of(app, "z")] == ["two", "one"]


async def test_upstream_tasks_with_different_starts_are_each_waited_for_once_more(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b"), noop("z", after=after("a", "b")))
    await app.tasks.start("default", "a")
    await app.tasks.start("default", "a")
    assert await settle(app, hand) == ["a", "a"]
    await app.tasks.start("default", "b")
    assert await settle(app, hand) == ["b", "z"]
    await app.tasks.start("default", "b")
    assert await settle(app, hand) == ["b"]
    await app.tasks.start("default", "a")
    assert await settle(app, hand) == ["a", "z"]


@pytest.mark.parametrize(
    ("on", "outcome", "follows"),
    [
        ("success", "succeeded", "succeeded"),
        ("success", "failed", "skipped"),
        ("success", "cancelled", "skipped"),
        ("success", "timeout", "skipped"),
        ("failure", "succeeded", "skipped"),
        ("failure", "failed", "succeeded"),
        ("failure", "timeout", "succeeded"),
        ("failure", "cancelled", "skipped"),
        ("any", "succeeded", "succeeded"),
        ("any", "failed", "succeeded"),
        ("any", "cancelled", "succeeded"),
        ("any", "timeout", "succeeded"),
    ],
)
async def test_the_rule_decides_whether_the_successor_runs(
    app: App, hand: Hand, on: str, outcome: str, follows: str
) -> None:
    await keep(app, noop("a"), noop("b", after=after("a", on=on)))
    await app.tasks.start("default", "a")
    await settle(app, hand, lambda lease: outcome if lease.task == "a" else "succeeded")
    assert await ends(app, "b") == {"b": [follows]}


async def test_a_upstream_task_that_is_tried_again_has_not_ended(app: App, hand: Hand, clock: SetClock) -> None:
    await keep(app, noop("a", retry=Retry(count=1, delay_seconds=5, jitter=0)), noop("b", after=after("a")))
    await app.tasks.start("default", "a")
    assert await settle(app, hand, failing("a")) == ["a"]
    assert await runs_of(app, "b") == []
    clock.forward(5)
    assert await settle(app, hand) == ["a", "b"]


async def test_a_skip_goes_on_to_all_that_follow(app: App, hand: Hand) -> None:
    await keep(
        app,
        noop("a"),
        noop("b", after=after("a")),
        noop("c", after=after("b")),
        noop("d", after=after("c")),
        noop("alarm", after=after("d", on="failure")),
        noop("always", after=after("d", on="any")),
    )
    await app.tasks.start("default", "a")
    assert await settle(app, hand, failing("a")) == ["a", "always"]
    assert await ends(app, "b", "c", "d", "alarm", "always") == {
        **{name: ["skipped"] for name in ("b", "c", "d", "alarm")},
        "always": ["succeeded"],
    }
    (skipped,) = await runs_of(app, "b")
    assert (skipped.state, skipped.reason) == (RunState.CANCELLED, "an upstream task did not end as asked for")


async def test_a_fan_in_with_one_failed_upstream_task_is_skipped_once_all_have_ended(app: App, hand: Hand) -> None:
    await keep(
        app, noop("a"), noop("b", after=after("a")), noop("c", after=after("a")), noop("z", after=after("b", "c"))
    )
    await app.tasks.start("default", "a")
    await settle(app, hand, failing("b"))
    assert await ends(app, "b", "c", "z") == {"b": ["failed"], "c": ["succeeded"], "z": ["skipped"]}


async def test_each_upstream_task_has_its_own_rule(app: App, hand: Hand) -> None:
    rules = (UpstreamTask("b", "failure"), UpstreamTask("c", "any"))
    await keep(app, noop("a"), noop("b", after=after("a")), noop("c", after=after("a")), noop("z", after=rules))
    await app.tasks.start("default", "a")
    await settle(app, hand, failing("b", "c"))
    await app.tasks.start("default", "a")
    await settle(app, hand)
    assert await ends(app, "z") == {"z": ["succeeded", "skipped"]}


async def test_a_paused_successor_is_left_out_and_follows_again_once_resumed(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")))
    await app.tasks.pause("default", "b")
    await app.tasks.start("default", "a")
    assert await settle(app, hand) == ["a"]
    await app.tasks.pause("default", "b", paused=False)
    assert await settle(app, hand) == []
    await app.tasks.start("default", "a")
    assert await settle(app, hand) == ["a", "b"]


async def test_a_upstream_task_may_be_in_another_project(app: App, hand: Hand) -> None:
    await keep(app, noop("a", project="north"), noop("b", project="south", after=after("north/a")))
    await app.tasks.start("north", "a")
    assert await settle(app, hand) == ["a", "b"]


@for_each("name", ["missing", "elsewhere/a", "a/b/c", "", "/"])
async def test_an_unknown_upstream_task_is_refused(app: App, name: str) -> None:
    with pytest.raises(Invalid, match=f"after of default/b is '{name}'; there is no such task"):
        await keep(app, noop("a"), noop("b", after=after(name)))
    assert await app.tasks.all() == []


@pytest.mark.parametrize(
    ("tasks", "circle"),
    [
        ({"a": ["a"]}, ["default/a after default/a"]),
        ({"a": ["b"], "b": ["a"]}, ["default/a after default/b after default/a", "default/b after default/a after"]),
        (
            {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]},
            [
                "/b after default/c after default/d after default/b",
                "/c after default/d after",
                "/d after default/b after",
            ],
        ),
    ],
)
async def test_a_circle_is_refused_with_its_path(app: App, tasks: dict[str, list[str]], circle: list[str]) -> None:
    with pytest.raises(Invalid, match="a task cannot come after itself") as refused:
        await keep(app, *(noop(name, after=after(*upstreams)) for name, upstreams in tasks.items()))
    assert any(part in str(refused.value) for part in circle)
    assert await app.tasks.all() == []


async def test_a_circle_through_tasks_that_are_already_there_is_refused(app: App) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")), noop("c", after=after("b")))
    with pytest.raises(Invalid, match="cannot come after itself"):
        await keep(app, noop("a", after=after("c")))
    assert (await app.tasks.get("default", "a")).task.after == ()


async def test_two_applies_at_once_cannot_close_a_circle_together(app: App, another_app: OpenApp) -> None:
    names = ["a", "b", "c", "d"]
    other = await another_app()
    for _ in range(5):
        await keep(app, *(noop(name) for name in names))
        await keep(app, noop("b", after=after("c")), noop("d", after=after("a")))
        halves = (keep(app, noop("a", after=after("b"))), keep(other, noop("c", after=after("d"))))
        results = await asyncio.gather(*halves, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Invalid", "NoneType"]


async def test_a_long_chain_is_no_deeper_than_a_short_one(app: App) -> None:
    long = 3000
    await keep(app, noop("t0"), *(noop(f"t{n}", after=after(f"t{n - 1}")) for n in range(1, long)))
    with pytest.raises(Invalid, match="cannot come after itself"):
        await keep(app, noop("t0", after=after(f"t{long - 1}")))


async def test_a_task_that_others_come_after_is_not_deleted(app: App) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")), noop("c", after=after("a")))
    with pytest.raises(
        Conflict, match="default/a is still an upstream task of default/b, default/c; change those first"
    ):
        await app.tasks.delete("default", "a")
    await app.tasks.delete("default", "b")
    await app.tasks.delete("default", "c")
    await app.tasks.delete("default", "a")
    assert await app.tasks.all() == []


async def test_pruning_leaves_no_task_behind_that_waits_for_a_pruned_one(app: App) -> None:
    await keep(app, noop("a"), noop("b", after=after("a")), noop("c", project="other", after=after("default/a")))
    with pytest.raises(Conflict, match="default/a is still an upstream task of other/c"):
        await app.tasks.apply(DesiredState((noop("b"),)), prune=True)
    assert len(await app.tasks.all()) == 3
    await keep(app, noop("c", project="other"))
    await app.tasks.apply(DesiredState((noop("b"),)), prune=True)
    assert [stored.task.full_name for stored in await app.tasks.all()] == ["default/b", "other/c"]


async def test_what_arrived_from_a_former_upstream_task_no_longer_counts(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b"), noop("c"), noop("z", after=after("a", "b")))
    await app.tasks.start("default", "a")
    await settle(app, hand, failing("a"))
    await keep(app, noop("z", after=after("b", "c")))
    await app.tasks.start("default", "b")
    assert await settle(app, hand) == ["b"]
    await app.tasks.start("default", "c")
    assert await settle(app, hand) == ["c", "z"]


async def test_what_has_arrived_survives_a_change_that_is_not_about_it(app: App, hand: Hand) -> None:
    await keep(app, noop("a"), noop("b"), noop("z", after=after("a", "b")))
    await app.tasks.start("default", "a")
    await settle(app, hand)
    await keep(app, noop("z", after=after("a", "b"), description="says more"))
    await app.tasks.start("default", "b")
    assert await settle(app, hand) == ["b", "z"]


def test_upstream_tasks_of_one_root_are_matched_start_by_start() -> None:
    diamond = {2: [1], 3: [1], 4: [2, 3]}
    assert reconcile.flow_matching(diamond) == {2: True, 3: True, 4: True}
    assert reconcile.flow_matching(diamond | {6: [4, 5]}) == {2: True, 3: True, 4: True, 6: False}
    assert reconcile.flow_matching({3: [1, 2], 4: [3]}) == {3: False, 4: False}


class Killed(Exception):
    """The process ended here."""


DAGS, NODES = 50, 20


def random_dag(project: str, chance: random.Random) -> list[Task]:
    """A root, and nodes that each come after one to three earlier ones, by random rules."""
    tasks = [noop("n0", project=project)]
    for number in range(1, NODES):
        earlier = chance.sample(range(number), min(number, chance.choice([1, 1, 2, 3])))
        rules = tuple(
            UpstreamTask(f"n{each}", chance.choice(["success", "success", "any", "failure"])) for each in earlier
        )
        tasks.append(noop(f"n{number}", project=project, after=rules))
    return tasks


def expected_outcomes(tasks: list[Task], outcome: Callable[[str, str], str]) -> dict[str, str]:
    """What becomes of each node, by the rules alone."""
    found: dict[str, str] = {}
    for task in tasks:
        met = all(_met(rule, found[rule.task]) for rule in task.after)
        found[task.name] = outcome(task.project, task.name) if met else "skipped"
    return found


def _met(rule: UpstreamTask, ended: str) -> bool:
    return rule.on == "any" or ended == {"success": "succeeded", "failure": "failed"}[rule.on]


class Storm:
    """Many random graphs, with random failures, released by schedulers that are killed at random."""

    def __init__(self, dags: int) -> None:
        self.chance = random.Random(10)
        self.dags = {f"p{number}": random_dag(f"p{number}", self.chance) for number in range(dags)}
        self.fails = {(dag, f"n{node}"): self.chance.random() < 0.25 for dag in self.dags for node in range(NODES)}
        self.kills = 0

    def outcome(self, project: str, name: str) -> str:
        return "failed" if self.fails[project, name] else "succeeded"

    async def start(self, app: App) -> None:
        await keep(app, *(task for tasks in self.dags.values() for task in tasks))
        for project in self.dags:
            await app.tasks.start(project, "n0")

    async def rage(self, release: Callable[[App, bool], Callable[[Transaction], int]], hand: Hand, *apps: App) -> None:
        """Let each of ``apps`` release what follows until nothing has followed for a while."""
        idle = 0
        while idle < 3:
            works = [(each, release(each, self.chance.random() < 0.3)) for each in apps for _ in range(4)]
            results = await asyncio.gather(*(each.db.transact(work) for each, work in works), return_exceptions=True)
            assert all(isinstance(result, int | Killed) for result in results), results
            self.kills += sum(isinstance(result, Killed) for result in results)
            done = await hand.work(lambda lease: self.outcome(lease.project, lease.task))
            idle = 0 if done or any(results) else idle + 1

    async def check(self, app: App) -> None:
        """Every node ran, or was skipped, as its rules say, and once."""
        for project, tasks in self.dags.items():
            runs = await app.runs.find({"project": project}, limit=1000)
            assert Counter(run.task for run in runs) == Counter(task.name for task in tasks)
            assert {run.task: run.outcome for run in runs} == expected_outcomes(tasks, self.outcome)
        assert await app.db.read(lambda tx: tx.rows(select(schema.inbox))) == []


def release(app: App, dies: bool) -> Callable[[Transaction], int]:
    """Take some events and queue what follows; the process may end just before the commit."""

    def work(tx: Transaction) -> int:
        taken, _ = scheduler.queue_downstream(tx, app.runs, limit=7)
        if dies and taken:
            raise Killed
        return taken

    return work


def release_after_the_commit(app: App, dies: bool) -> Callable[[Transaction], int]:
    """What must not be: the events are gone when the process ends, and what follows them is not queued yet."""

    def work(tx: Transaction) -> int:
        return (
            len(events.take(tx, scheduler.DOWNSTREAM_READER, 7))
            if dies
            else scheduler.queue_downstream(tx, app.runs, limit=7)[0]
        )

    return work


async def test_no_edge_is_lost_or_walked_twice_while_schedulers_are_killed(
    app: App, another_app: OpenApp, hand: Hand
) -> None:
    """R10, reduced: two schedulers at once, each killed at random between taking an event and its commit."""
    storm = Storm(DAGS)
    await storm.start(app)
    await storm.rage(release, hand, app, await another_app())
    assert storm.kills >= 20
    await storm.check(app)


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_the_check_sees_edges_that_were_lost_between_two_transactions(app: App, hand: Hand) -> None:
    storm = Storm(5)
    await storm.start(app)
    await storm.rage(release_after_the_commit, hand, app)
    with pytest.raises(AssertionError):
        await storm.check(app)
