"""What tests of items share: an attempt that yields what the test says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import select

from tests.runs.acting import Hand, submit
from weft.app import App
from weft.db import schema
from weft.items.model import ItemBatch
from weft.runs.model import Lease

AT = 1_780_315_200_000_000


def line(item: Any, at: int = AT) -> bytes:
    return msgspec.json.encode({"at": at, "item": item}) + b"\n"


def lines(items: Iterable[Any], at: int = AT) -> bytes:
    return b"".join(line(item, at + place) for place, item in enumerate(items))


class Spider:
    """One attempt, and the worker that executes it."""

    def __init__(self, hand: Hand, lease: Lease) -> None:
        self.hand, self.lease = hand, lease
        self.awaited = 1

    @property
    def run_id(self) -> int:
        return self.lease.run_id

    async def send(self, data: bytes, first: int | None = None, stats: dict[str, Any] | None = None) -> int:
        """Deliver lines; the answer is the number that is waited for."""
        harvest = ItemBatch(self.run_id, self.lease.attempt, first or self.awaited, data, stats)
        (answer,) = await self.hand.app.protocol.collect(self.hand.id, [harvest])
        self.awaited = max(self.awaited, answer)
        return answer

    async def yields(self, *items: Any, at: int = AT) -> int:
        return await self.send(lines(items, at))


async def start(app: App, spider: str = "quotes", hand: Hand | None = None, **fields: Any) -> Spider:
    """A run of ``spider`` that has begun."""
    await submit(app, task=spider, spec={"spider": spider}, **fields)
    hand = hand or await Hand.join(app)
    return Spider(hand, await hand.lease_one())


async def stored(app: App, table: Any = schema.items) -> list[dict[str, Any]]:
    return await app.db.read(lambda tx: [dict(row._mapping) for row in tx.rows(select(table))])


async def counted(app: App, run_id: int) -> dict[str, int]:
    """What the last attempt of a run has yielded, as it is counted."""
    last = (await app.items.stats(run_id))[-1]
    return {"items": last.items, "new": last.new_records, "changed": last.changed_records, "refused": last.refused}
