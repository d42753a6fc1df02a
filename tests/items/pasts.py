"""Runs of spiders that have ended, for tests that look back at them."""

from __future__ import annotations

from typing import Any

from tests.conftest import SetClock
from tests.items.scene import Spider, lines
from tests.runs.acting import Hand, submit
from weft.app import App


async def crawled(
    app: App, clock: SetClock, count: int, *, spider: str = "prices", outcome: str = "succeeded", **fields: Any
) -> int:
    """A run of a spider that has yielded so many items, in as many seconds."""
    spec = {"spider": spider, "args": fields.pop("args", {})}
    run_id = await submit(app, **{"task": spider, "kind": "spider", "spec": spec} | fields)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    if count:
        await Spider(hand, lease).send(lines([{"number": each, "name": "x" if each else ""} for each in range(count)]))
    clock.forward(count)
    result = {"pages": 2 * count, "errors": 1} if outcome == "succeeded" else None
    await hand.end(lease, outcome, result=result)
    while await app.comparer.tick():
        pass
    return run_id
