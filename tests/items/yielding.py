"""A run that yields what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.items.collecting import Collector
from weft.items.model import Harvest
from weft.runs.model import Lease


class Crawl:
    """A run of the spider ``prices``, seen through by hand."""

    def __init__(self, app: App, hand: Hand, lease: Lease) -> None:
        self.app, self._hand, self._lease = app, hand, lease
        self.run_id, self.attempt, self._next = lease.run_id, lease.attempt, 1

    @classmethod
    async def begin(cls, app: App, project: str = "shop", dataset: str = "prices") -> Crawl:
        await submit(app, project=project, spec={"spider": dataset})
        hand = await Hand.join(app)
        return cls(app, hand, await hand.lease_one())

    async def yields(self, items: Sequence[dict[str, Any]]) -> None:
        lines = b"".join(msgspec.json.encode({"at": self._next, "item": each}) + b"\n" for each in items)
        harvest = Harvest(self.run_id, self.attempt, self._next, lines)
        collector = Collector(self.app.db, lambda: 1_780_315_200_000_000)
        [self._next] = await collector.collect(self._hand.id, self._hand.name, [harvest])

    async def ends(self) -> None:
        await self._hand.end(self._lease)


async def crawled(app: App, items: Sequence[dict[str, Any]], **where: str) -> Crawl:
    """A run that has yielded these items and ended."""
    crawl = await Crawl.begin(app, **where)
    await crawl.yields(items)
    await crawl.ends()
    return crawl
