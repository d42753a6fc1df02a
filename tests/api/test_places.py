"""More requests at once than there are places: refused at once, with a time to come back, and others go on."""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.api.acting import visiting
from tests.conftest import OpenApp
from tests.waiting import eventually
from weft.access.model import Role
from weft.api.places import Places, seated
from weft.api.problems import Refused
from weft.api.v1 import operations
from weft.app import App

on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)

RUN: dict[str, Any] = {"project": "shop", "kind": "noop"}


def code_for(places: Places, caller: str) -> str:
    try:
        with places.taken(caller):
            return "a place"
    except Refused as problem:
        return f"{problem.code}, in {problem.retry_after_seconds} s"


def test_one_caller_gets_half_of_the_places_and_all_together_get_the_rest() -> None:
    places = Places(4)
    with places.taken("me"), places.taken("me"):
        assert code_for(places, "me") == "too_many_requests, in 1 s"
        with places.taken("you"), places.taken("she"):
            assert code_for(places, "he") == "overloaded, in 1 s"
        assert code_for(places, "he") == "a place"


def test_a_place_is_free_again_after_an_error() -> None:
    places = Places(1)
    with pytest.raises(RuntimeError), places.taken("me"):
        raise RuntimeError
    assert code_for(places, "me") == "a place"


def test_without_a_limit_there_is_a_place_for_everybody() -> None:
    places = Places(0)
    with places.taken("me"), places.taken("me"):
        assert code_for(places, "me") == "a place"


@contextmanager
def nobody_writes(app: App) -> Iterator[None]:
    """Hold the lock that writers of a SQLite database queue on."""
    with (app.config.folder / "weft.db-queue").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@on_sqlite
async def test_who_reads_and_who_asks_for_health_is_answered_while_changes_have_no_place(another_app: OpenApp) -> None:
    app = await another_app(requests_at_once=2)
    async with visiting(app) as nobody:
        me, you = [await nobody.with_role(Role.ADMIN) for _ in range(2)]
        assert (await me.post("/v1/runs", RUN)).status == 202
        with nobody_writes(app):
            asked = [asyncio.create_task(who.post("/v1/runs", RUN)) for who in (me, you) for _ in range(3)]
            await eventually(lambda: sum(each.done() for each in asked) == 4)
            refused = [each.result() for each in asked if each.done()]
            assert (await me.get("/v1/runs")).status == 200
            assert [(await nobody.get(path)).status for path in ("/healthz", "/readyz")] == [200, 200]
        assert sorted([(await each).status for each in asked]) == [202, 202, 429, 429, 429, 429]
        assert {(each.json["code"], each.headers["Retry-After"]) for each in refused} == {("too_many_requests", "1")}
        assert (await me.post("/v1/runs", RUN)).status == 202


def test_health_streams_and_workers_need_no_place() -> None:
    free = [new.name for old, new in zip(operations(), seated(operations(), 1), strict=True) if old is new]
    nouns = {"health", "docs", "worker"}
    assert [name for name in free if name.partition(".")[0] not in nouns] == [
        "events.follow",
        "logs.stream",
        "session.start",
    ]
    assert {name.partition(".")[0] for name in free} >= nouns
