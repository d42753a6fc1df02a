"""Jobs that do what the test says: print a log, yield items, end."""

from __future__ import annotations

import json
from typing import Any

from tests.items.scene import Spider
from tests.runs.acting import Hand
from weft.app import App
from weft.logs.storage import store_log
from weft.scrapyd.model import NewJob

AT = 1_794_790_923_000_000


def said(message: str, **fields: object) -> bytes:
    """A record as a spider's agent writes it."""
    record = {"at": AT, "level": "INFO", "logger": "shop", "message": message, "spider": "things", "run_id": "1"}
    return b"\x1e" + json.dumps(record | fields).encode() + b"\n"


class Performance:
    """A job that has begun, and the worker that executes it."""

    def __init__(self, app: App, spider: Spider, job: str) -> None:
        self.app, self.spider, self.job = app, spider, job

    @property
    def run_id(self) -> int:
        return self.spider.run_id

    async def prints(self, data: bytes, seq: int = 0) -> None:
        await self.spider.hand.ship(self.spider.lease, data, seq)

    async def yields(self, *items: dict[str, Any], stats: dict[str, Any] | None = None) -> None:
        await self.spider.yields(*items)
        if stats is not None:
            await self.spider.send(b"", stats=stats)

    async def ends(self, log: bytes = b"", outcome: str = "succeeded") -> None:
        key = f"logs/{self.run_id}/{self.spider.lease.attempt}.log"
        await store_log(self.app.blobs, key, len(log), lambda start, size: log[start : start + size])
        assert await self.spider.hand.end(self.spider.lease, outcome, log_key=key, log_bytes=len(log))

    async def tries_again(self) -> None:
        """Be leased anew, after an attempt that may be repeated."""
        self.spider = Spider(self.spider.hand, await self.spider.hand.lease_one())


async def wait(app: App, job: str, spider: str = "things", project: str = "shop") -> None:
    """A job that waits."""
    await app.jobs.schedule(NewJob(id=job, project=project, spider=spider))


async def begin(app: App, job: str, spider: str = "things", project: str = "shop") -> Performance:
    """A job that runs; there must be no other that waits."""
    await wait(app, job, spider, project)
    hand = await Hand.join(app, f"hand-{job}")
    begun = Performance(app, Spider(hand, await hand.lease_one()), job)
    found = await app.jobs.find(job, {project})
    assert found is not None
    assert found.run_id == begun.run_id
    return begun


async def perform(app: App, job: str, log: bytes = b"", *items: dict[str, Any], **where: str) -> Performance:
    """A job that has printed a log, yielded items and ended well."""
    done = await begin(app, job, **where)
    await done.yields(*items)
    await done.ends(log)
    return done
