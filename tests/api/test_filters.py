"""Lists of tasks and workers: only those that were asked for, in the order that was asked for."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.cases import for_each
from tests.runs.acting import Hand
from tests.tasks.scene import keep, noop
from weft.access.model import Role
from weft.tasks.model import Task
from weft.workers.protocol import Heartbeat


async def listed(visitor: Visitor, query: str, limit: int = 2) -> list[str]:
    """The names of all pages, one after the other."""
    found, after = [], ""
    while True:
        answer = await visitor.get(f"/v1/tasks?limit={limit}&{query}{after}")
        assert answer.status == 200, answer.json
        assert len(answer.json["items"]) <= limit
        found += [f"{task['project']}/{task['name']}" for task in answer.json["items"]]
        if answer.json["next"] is None:
            return found
        after = f"&after={answer.json['next']}"


async def many(visitor: Visitor) -> None:
    shell = Task(name="s", project="b", kind="shell", spec={"argv": ["true"]}, tags=("eu",), paused=True)
    await keep(
        visitor.app,
        noop("x", project="a", tags=("eu", "heavy")),
        noop("y", project="a", tags=("e_",), params={"where": "eu"}),
        noop("z", project="a", paused=True),
        shell,
        noop("t", project="b", tags=("EU",)),
        noop("u", project="b", description='"heavy"', tags=("heavy", "heavy2")),
    )


CASES = [
    ("", ["a/x", "a/y", "a/z", "b/s", "b/t", "b/u"]),
    ("sort=name", ["a/x", "a/y", "a/z", "b/s", "b/t", "b/u"]),
    ("sort=-name", ["b/u", "b/t", "b/s", "a/z", "a/y", "a/x"]),
    ("kind=shell", ["b/s"]),
    ("kind=noop&sort=-name", ["b/u", "b/t", "a/z", "a/y", "a/x"]),
    ("kind=none", []),
    ("tag=eu", ["a/x", "b/s"]),
    ("tag=eu&sort=-name", ["b/s", "a/x"]),
    ("tag=e_", ["a/y"]),
    ("tag=heavy", ["a/x", "b/u"]),
    ("tag=heavy&project=b", ["b/u"]),
    ("paused=true", ["a/z", "b/s"]),
    ("paused=false&tag=eu", ["a/x"]),
    ("paused=true&kind=noop", ["a/z"]),
]


async def test_tasks_are_listed_by_kind_tag_and_pause_in_either_order(admin: Visitor) -> None:
    await many(admin)
    for query, expected in CASES:
        for limit in (1, 2, 50):
            assert await listed(admin, query, limit) == expected, (query, limit)


async def test_a_filter_shows_nothing_of_projects_that_are_not_the_callers(nobody: Visitor) -> None:
    await many(nobody)
    viewer = await nobody.with_role(Role.VIEWER, "a")
    assert await listed(viewer, "tag=heavy") == ["a/x"]
    assert await listed(viewer, "sort=-name&paused=true") == ["a/z"]


@for_each("wrong", ["sort=kind", "sort=", "paused=maybe", "tag=a b", "tag=%25", "tag=", "colour=red"])
async def test_a_filter_of_tasks_that_is_wrong_is_refused(admin: Visitor, wrong: str) -> None:
    answer = await admin.get(f"/v1/tasks?{wrong}")
    assert (answer.status, answer.json["code"]) == (422, "invalid")


async def test_workers_are_listed_by_state_and_label(admin: Visitor) -> None:
    await Hand.join(admin.app, "one", ["eu", "browser"])
    two = await Hand.join(admin.app, "two", ["eu"])
    await admin.app.protocol.heartbeat(two.id, Heartbeat(state="draining", running=0, done=0))
    for query, expected in (
        ("", ["one", "two"]),
        ("label=eu", ["one", "two"]),
        ("label=browser", ["one"]),
        ("state=draining", ["two"]),
        ("state=draining&label=browser", []),
        ("state=offline", []),
    ):
        found = (await admin.get(f"/v1/workers?{query}")).json["items"]
        assert [each["name"] for each in found] == expected, query
    for wrong in ("state=asleep", "label=a b", "label=", "name=one"):
        assert (await admin.get(f"/v1/workers?{wrong}")).status == 422, wrong
