"""More requests at once than there are places: refused at once, with a time to come back, and others go on."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest

from tests.api.acting import Visitor, visiting
from tests.api.listening import listening
from tests.api.test_sockets import connected
from tests.conftest import OpenApp
from tests.waiting import eventually
from weft.access.model import Role
from weft.app import App
from weft.http.limits import ConcurrencyLimit, limited
from weft.http.routes import operations
from weft.operations.problems import RequestRefused

on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)

RUN: dict[str, Any] = {"project": "shop", "kind": "noop"}


def code_for(places: ConcurrencyLimit, caller: str) -> str:
    try:
        with places.taken(caller):
            return "a place"
    except RequestRefused as problem:
        return f"{problem.code}, in {problem.retry_after_seconds} s"


def test_one_caller_gets_half_of_the_places_and_all_together_get_the_rest() -> None:
    places = ConcurrencyLimit(4)
    with places.taken("me"), places.taken("me"):
        assert code_for(places, "me") == "too_many_requests, in 1 s"
        with places.taken("you"), places.taken("she"):
            assert code_for(places, "he") == "overloaded, in 1 s"
        assert code_for(places, "he") == "a place"


def test_a_place_is_free_again_after_an_error() -> None:
    places = ConcurrencyLimit(1)
    with pytest.raises(RuntimeError), places.taken("me"):
        raise RuntimeError
    assert code_for(places, "me") == "a place"


def test_without_a_limit_there_is_a_place_for_everybody() -> None:
    places = ConcurrencyLimit(0)
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


def test_health_and_workers_need_no_place() -> None:
    offered = limited(operations(), 1, ConcurrencyLimit(1))
    free = [new.name for old, new in zip(operations(), offered, strict=True) if old is new]
    nouns = {"health", "docs", "worker"}
    assert [name for name in free if name.partition(".")[0] not in nouns] == ["session.start", "session.first"]
    assert {name.partition(".")[0] for name in free} >= nouns


async def refusal(visitor: Visitor, path: str = "/v1/events") -> str:
    """Why no stream is opened."""
    answer = await visitor.get(path)
    return f"{answer.status} {answer.json['code']}, in {answer.headers['Retry-After']} s"


@on_sqlite
async def test_a_caller_may_keep_so_many_streams_open_and_all_together_so_many_more(another_app: OpenApp) -> None:
    app = await another_app(streams_at_once=4)
    async with visiting(app) as nobody:
        me, you, she = [await nobody.with_role(Role.VIEWER) for _ in range(3)]
        assert [(await me.call("HEAD", "/v1/events")).status for _ in range(5)] == [200] * 5
        async with connected(me):
            async with listening(me):
                assert await refusal(me) == "429 too_many_requests, in 1 s"
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    async with connected(me):
                        pass
                assert refused.value.status == 429
                assert (await me.get("/v1/runs")).status == 200
                async with listening(you), connected(you):
                    assert await refusal(she) == "503 overloaded, in 1 s"
            await eventually(lambda: app.tail.listeners == 1)
            async with opened(me), opened(she), opened(she):
                pass
        await eventually(lambda: app.tail.listeners == 0)
        async with opened(me), opened(me):
            assert await refusal(me) == "429 too_many_requests, in 1 s"


@asynccontextmanager
async def opened(visitor: Visitor) -> AsyncIterator[None]:
    """A stream, as soon as there is a place: one that was left is free a moment after."""
    async with AsyncExitStack() as stack:

        async def is_open() -> bool:
            try:
                await stack.enter_async_context(listening(visitor))
            except AssertionError:  # refused
                return False
            return True

        await eventually(is_open)
        yield
