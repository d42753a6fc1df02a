"""Who waits for whom inside a database, so that a test can let two transactions meet where it wants."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from tests.conftest import plain_engine

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


async def somebody_waits(url: str) -> bool:
    """Whether a transaction waits for a lock of another. On SQLite the second one has not even begun: always so."""
    question = WAITING.get(url.split(":", 1)[0])
    return question is None or bool(await asyncio.to_thread(_ask, url, question))


def _ask(url: str, question: str) -> int:
    with plain_engine(url).connect() as connection:
        return int(connection.execute(text(question)).scalar_one())
