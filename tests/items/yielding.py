"""A run that yields what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.clock import Moment
from weft.items.collector import Collector
from weft.items.model import ItemBatch
from weft.logs.storage import store_log
from weft.runs.model import Lease
from weft.workers.remote.wire import log_key

BEGAN: Moment = 1_780_315_200_000_000
"""When a test's clock begins."""


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

    async def yields(
        self, items: Sequence[dict[str, Any]], at: Moment = BEGAN, stats: dict[str, Any] | None = None
    ) -> None:
        lines = b"".join(msgspec.json.encode({"at": at, "item": each}) + b"\n" for each in items)
        harvest = ItemBatch(self.run_id, self.attempt, self._next, lines, stats)
        collector = Collector(self.app.db, lambda: at)
        [self._next] = await collector.collect(self._hand.id, self._hand.name, [harvest])

    async def ends(self, log: bytes = b"") -> None:
        key = log_key(self.run_id, self.attempt) if log else None
        if key is not None:
            await store_log(self.app.blobs, key, len(log), lambda first, last: log[first:last])
        await self._hand.end(self._lease, log_key=key, log_bytes=len(log))


async def crawled(
    app: App, items: Sequence[dict[str, Any]], *, log: bytes = b"", at: Moment = BEGAN, **where: str
) -> Crawl:
    """A run that has yielded these items and ended."""
    crawl = await Crawl.begin(app, **where)
    await crawl.yields(items, at)
    await crawl.ends(log)
    return crawl
