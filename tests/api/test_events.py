"""Events as pages and as a stream: all of them, once, and only to those who may see them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.api.acting import Visitor, visiting
from tests.api.listening import listening
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import submit, submit_many
from tests.waiting import eventually
from weft import event_stream, events
from weft.access.model import Role
from weft.db import schema
from weft.db.database import Transaction
from weft.events import Fact
from weft.operations import streams


async def happen(visitor: Visitor, *facts: Fact) -> None:
    at = visitor.app.runs._clock()
    await visitor.app.db.transact(lambda tx: events.append(tx, facts, at))


def fact(project: str = "shop", kind: str = "run_queued", run_id: int = 1) -> Fact:
    return Fact(kind, project, run_id)


async def test_events_come_in_pages_newest_first(admin: Visitor) -> None:
    ids = await submit_many(admin.app, 5)
    first = (await admin.get("/v1/events/history?limit=3")).json
    second = (await admin.get(f"/v1/events/history?limit=3&after={first['next']}")).json
    assert [event["run_id"] for event in first["items"] + second["items"]] == ids[::-1]
    assert second["next"] is None
    assert first["items"][0]["kind"] == "run_queued"


async def test_a_page_is_filtered(admin: Visitor) -> None:
    await happen(admin, fact(), fact("other"), fact(kind="run_started"), fact(kind="run_retried", run_id=2))

    async def found(query: str) -> list[tuple[str, str]]:
        items = (await admin.get(f"/v1/events/history?{query}")).json["items"]
        return [(each["project"], each["kind"]) for each in items]

    assert await found("project=other") == [("other", "run_queued")]
    assert await found("kind=run_started,run_retried") == [("shop", "run_retried"), ("shop", "run_started")]
    assert await found("kind=run_started&kind=run_retried") == [("shop", "run_retried"), ("shop", "run_started")]
    assert await found("run_id=2") == [("shop", "run_retried")]
    answer = await admin.get("/v1/events/history?kind=run_dreamt")
    assert (answer.status, answer.json["field"]) == (422, "kind")


@on_sqlite
async def test_a_page_that_finds_little_says_where_to_go_on(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.operations.events.WINDOW", 3)
    await happen(admin, fact(), *[fact("other")] * 6)
    page, pages = (await admin.get("/v1/events/history?project=shop")).json, 1
    while page["next"]:
        assert page["items"] == []
        page, pages = (await admin.get(f"/v1/events/history?project=shop&after={page['next']}")).json, pages + 1
    assert [event["project"] for event in page["items"]] == ["shop"]
    assert pages == 3


async def test_all_events_of_a_run_are_found_at_once(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.operations.events.WINDOW", 3)
    await happen(admin, fact(), *[fact(run_id=2)] * 6, fact(kind="run_started"), *[fact(run_id=3)] * 6)
    page = (await admin.get("/v1/events/history?run_id=1&project=shop")).json
    assert [event["kind"] for event in page["items"]] == ["run_started", "run_queued"]
    assert page["next"] is None
    first = (await admin.get("/v1/events/history?run_id=1&limit=1")).json
    second = (await admin.get(f"/v1/events/history?run_id=1&limit=1&after={first['next']}")).json
    assert [event["kind"] for event in first["items"] + second["items"]] == ["run_started", "run_queued"]


async def test_what_happens_is_heard(admin: Visitor) -> None:
    await submit(admin.app)
    async with listening(admin) as ear:
        assert ear.response.headers["Content-Type"].startswith("text/event-stream")
        run_id = await submit(admin.app)
        heard = await ear.event()
        assert (heard.name, heard.json["run_id"], heard.json["project"]) == ("run_queued", run_id, "shop")


async def test_a_listener_comes_back_to_another_gateway_and_misses_nothing(
    admin: Visitor, another_app: OpenApp
) -> None:
    async with listening(admin) as ear:
        ids = await submit_many(admin.app, 3)
        first = await ear.events(2)
    later = await submit_many(admin.app, 3)
    async with visiting(await another_app()) as other:
        other.token = admin.token
        async with listening(other, since=ear.last_id) as again:
            missed = await again.events(4)
            last = await submit(admin.app)
            heard = [each.json["run_id"] for each in [*first, *missed, await again.event()]]
    assert heard == [*ids, *later, last]


async def test_an_event_that_commits_late_is_heard_all_the_same(admin: Visitor) -> None:
    start = 1_000_000
    await appear(admin, start)
    async with listening(admin, since=str(start)) as ear:
        await appear(admin, start + 3)
        assert (await ear.event()).json["id"] == start + 3
        place = ear.last_id
        await appear(admin, start + 2)
        assert (await ear.event()).json["id"] == start + 2
    async with listening(admin, since=place) as ear:
        assert (await ear.event()).json["id"] == start + 2
        await appear(admin, start + 1)
        assert (await ear.event()).json["id"] == start + 1
    async with listening(admin, since=ear.last_id) as ear:
        await appear(admin, start + 4)
        assert (await ear.event()).json["id"] == start + 4


class Slow:
    """A transaction that has written its event and does not commit before it is told to."""

    def __init__(self, visitor: Visitor, run_id: int) -> None:
        self._written, self._may_commit = threading.Event(), threading.Event()
        at = visitor.app.runs._clock()

        def work(tx: Transaction) -> None:
            events.append(tx, [fact(run_id=run_id)], at)
            self._written.set()
            self._may_commit.wait(20)

        self._committing = asyncio.create_task(visitor.app.db.transact(work))

    async def written(self) -> None:
        assert await asyncio.to_thread(self._written.wait, 20)

    async def commit(self) -> None:
        self._may_commit.set()
        await self._committing


on_servers = pytest.mark.parametrize("database_kind", ["postgres", "mariadb"], indirect=True)
"""Where transactions run side by side; SQLite has one writer."""


@on_servers
async def test_a_transaction_that_commits_after_a_later_one_is_heard_by_all(admin: Visitor) -> None:
    async with listening(admin) as early:
        slow = Slow(admin, run_id=1)
        await slow.written()
        await happen(admin, fact(run_id=2))
        assert (await early.event()).json["run_id"] == 2
        place = early.last_id
        async with listening(admin) as late, listening(admin, since=place) as resumed:
            await slow.commit()
            await happen(admin, fact(run_id=3))
            for ear in (early, late, resumed):
                assert sorted(heard.json["run_id"] for heard in await ear.events(2)) == [1, 3]
    async with listening(admin, since="0") as ear:
        assert [heard.json["run_id"] for heard in await ear.events(3)] == [1, 2, 3]


async def appear(visitor: Visitor, event_id: int) -> None:
    """Let an event of this id become visible, as if its transaction had reserved it long ago."""
    row = {"id": event_id, "at": visitor.app.runs._clock(), "kind": "run_queued", "project": "shop"}
    await visitor.app.db.transact(lambda tx: tx.execute(schema.events.insert().values(row)).rowcount)


async def test_a_listener_hears_only_of_projects_that_it_may_view(nobody: Visitor) -> None:
    viewer = await nobody.granted({"shop": Role.VIEWER, "books": Role.OPERATOR})
    async with listening(viewer) as ear:
        await happen(nobody, fact("secret"), fact(""), fact("shop"), fact("secret"), fact("books"))
        assert [heard.json["project"] for heard in await ear.events(2)] == ["shop", "books"]
    answer = await viewer.get("/v1/events?project=secret", headers={"Accept": "text/event-stream"})
    assert answer.status == 403
    assert [each["project"] for each in (await viewer.get("/v1/events/history")).json["items"]] == ["books", "shop"]


async def test_a_listener_hears_what_it_asked_for(admin: Visitor) -> None:
    async with listening(admin, "/v1/events?project=shop&kind=run_finished,run_started&run_id=2") as ear:
        await happen(
            admin,
            fact("books", "run_started", 2),
            fact("shop", "run_started", 1),
            fact("shop", "run_queued", 2),
            fact("shop", "run_started", 2),
        )
        assert (await ear.event()).json == (await admin.get("/v1/events/history?limit=1")).json["items"][0]


async def test_a_revoked_key_ends_its_stream(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    async with listening(admin) as ear:
        [key] = await admin.app.keys.all()
        await admin.app.keys.revoke(key.id)
        assert "not valid any more" in (await ear.last_words())[-1]


@on_sqlite
async def test_a_silent_stream_says_that_it_lives_and_where_it_is(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.1)
    async with listening(admin, "/v1/events?project=shop") as ear:
        await happen(admin, fact("other"), fact("other"))
        while (heard := await ear.next()) and heard.id != "2":
            assert heard.comment == "still here"
        assert heard is not None


@on_sqlite
async def test_a_listener_that_is_too_slow_is_sent_away_and_may_come_back(
    admin: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MOST_WAITING", 2)
    follower = admin.app.tail.follow("0")
    await happen(admin, fact())
    assert len((await anext(follower)).told) == 1
    assert (await anext(follower)).told == (), "all that was before has been given"
    await happen(admin, fact())
    place = (await anext(follower)).place
    for _ in range(3):  # nobody takes these
        await happen(admin, fact())
        await admin.app.tail.tick()
    assert [batch async for batch in follower] == []
    again = admin.app.tail.follow(place)
    assert [told.event.id for told in (await anext(again)).told] == [3, 4, 5]
    await again.aclose()


async def test_a_bad_last_event_id_is_refused(admin: Visitor) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "yesterday"}
    answer = await admin.get("/v1/events", headers=headers)
    assert (answer.status, answer.json["field"]) == (422, "Last-Event-ID")


async def test_a_place_in_a_database_that_was_made_anew_begins_now(admin: Visitor) -> None:
    async with listening(admin, since="999999999") as ear:
        first = await ear.next()
        assert first is not None
        assert first.comment == "still here"
        run_id = await submit(admin.app)
        assert (await ear.event()).json["run_id"] == run_id


async def test_the_tail_rests_when_nobody_listens(admin: Visitor) -> None:
    async with listening(admin) as ear:
        await submit(admin.app)
        await ear.event()
        assert admin.app.tail.listeners == 1
    await eventually(lambda: not admin.app.tail.listeners)
    assert admin.app.tail._following is None


async def test_a_server_that_stops_does_not_wait_for_its_listeners(another_app: OpenApp) -> None:
    app = await another_app()
    async with visiting(app) as nobody:
        admin = await nobody.with_role(Role.ADMIN)
        hearing = listening(admin)
        ear = await hearing.__aenter__()
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert (await ear.last_words())[-1] == "come back with the last id that you have"
    await hearing.__aexit__(None, None, None)
