"""Every kind of frontier that the suite in ``test_frontier.py`` is held against. A new kind is one more entry here."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests import conftest
from tests.servers import Server
from tests.servers.dynamodb import CREDENTIALS, table_url
from weft.adapters.registry import open_frontier
from weft.clock import Clock
from weft.crawls.sql_frontier import SqlFrontier
from weft.db.database import open_database
from weft.ports import Frontier


@dataclass(frozen=True)
class Place:
    """An empty store of one kind."""

    opened: Callable[[], Frontier]
    """One more frontier on it, as another process has one."""
    away: Callable[[], Frontier]
    """One whose store does not answer."""
    is_slow: bool = False
    """The store is only played: less is asked of it."""


Kind = Callable[[pytest.FixtureRequest, Clock], AbstractAsyncContextManager[Place]]


def sql(kind: str) -> Kind:
    """weft's own database."""

    @asynccontextmanager
    async def place(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Place]:
        url = _empty_database(kind, request)
        with ExitStack() as stack:

            def opened() -> Frontier:
                db = open_database(url)
                stack.callback(db.close)
                return SqlFrontier(db, clock)

            def away() -> Frontier:
                db = open_database(AWAY.get(kind, url))
                stack.callback(db.close)
                if kind not in AWAY:
                    db.close()
                return SqlFrontier(db, clock)

            yield Place(opened, away)

    return place


AWAY = {"postgres": "postgresql://nobody@127.0.0.1:1/none", "mariadb": "mysql://nobody@127.0.0.1:1/none"}
"""Databases on a port where nobody listens; a file is always there, until it is closed."""


def _empty_database(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return conftest.sqlite_copy(request.getfixturevalue("sqlite_template"), request.getfixturevalue("tmp_path"))
    url = str(request.getfixturevalue(f"{kind}_url"))
    conftest.empty(url)
    return url


def served(server: str, url: Callable[[Server], str], away: str, *, is_slow: bool = False) -> Kind:
    """A part of a server that no other test uses."""

    @asynccontextmanager
    async def place(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Place]:
        at = url(request.getfixturevalue(server))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            yield Place(lambda: open_frontier(at, clock), lambda: open_frontier(away, clock), is_slow)

    return place


def redis_url(server: Server) -> str:
    return f"{server.url}?prefix=weft-{uuid.uuid4().hex}:"


NO_DYNAMODB = "dynamodb://weft?region=eu-west-1&endpoint=http://127.0.0.1:1"

KINDS: dict[str, Kind] = {kind: sql(kind) for kind in conftest.DATABASES} | {
    "redis": served("redis_server", redis_url, "redis://127.0.0.1:1/0"),
    "dynamodb": served("dynamodb_server", table_url, NO_DYNAMODB, is_slow=True),
}
