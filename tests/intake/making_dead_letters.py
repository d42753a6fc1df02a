"""Dead letters for tests, as intake keeps them."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.projects.making import a_version
from weft.app import App
from weft.intake import store

SOURCE = "rabbitmq scraper_tasks"
ORDER: dict[str, Any] = {"task_id": "order-1", "project": "shop", "spider": "prices", "args": {"country": "de"}}
REASON = "priority is 1.5; it must be a whole number from 0 to 1000"


def written(**changed: Any) -> bytes:
    """What is written in a message that is an order."""
    return msgspec.json.encode(ORDER | changed)


async def kept(app: App, body: bytes | None = None, **changed: Any) -> int:
    """A dead letter with an order that is wrong, unless it says otherwise."""
    values: dict[str, Any] = {"source": SOURCE, "message_id": "m-1", "project": "shop", "headers": {"priority": 3}}
    values |= {"body": written(priority=1.5) if body is None else body, "reason": REASON, "at": 1_000_000}
    return await app.db.transact(lambda tx: store.add_dead_letter(tx, **(values | changed)))


async def deployed(app: App, project: str = "shop") -> None:
    """Code with the spider that orders ask for."""
    await a_version(app, project)
