"""Statements that SQLAlchemy has compiled, kept for all engines of this process that speak alike.

Each test opens engines of its own. To compile every statement anew for each of them took a quarter of all its time.
"""

from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.util import LRUCache

MOST = 5_000


class Shared(LRUCache[Any, Any]):
    """Knows a statement by all that it is, but for the engine that first met it."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


@cache
def shared_by(dialect: str, driver: str) -> Shared:
    return Shared(MOST)


def share(connection: Connection) -> None:
    dialect = connection.dialect
    connection.execution_options(compiled_cache=shared_by(dialect.name, dialect.driver))


def share_everywhere() -> None:
    event.listen(Engine, "engine_connect", share)
