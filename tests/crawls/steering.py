"""What tests of the doors of crawls share: a crawl in one line, and a run that does a share of it as the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.runs.acting import Hand
from weft.app import App
from weft.crawler.messages import CrawlTurn, CrawlTurnReply, Skip
from weft.crawls.model import Crawl
from weft.fetching.urls import host_of, key_of
from weft.ports import DONE, FAILED, Found, HostLease, HostReport, Outcome, Turn
from weft.runs.model import Lease

SITE = "https://site.example/"
TRAP = Skip(
    reason="calendar",
    host="site.example",
    pattern="/calendar/{number}",
    example=f"{SITE}calendar/9",
    count=41,
    is_trap=True,
)
SKIPS = [
    TRAP,
    Skip(reason="scope", host="cdn.example", example="https://cdn.example/logo.svg", count=612),
    Skip(reason="robots", host="site.example", example=f"{SITE}private/", count=20),
]
SPEC: dict[str, Any] = {"urls": [SITE], "follow": True, "fetching": {"contact": "us@weft.example"}}


async def a_crawl(app: App, project: str = "shop", **more: Any) -> Crawl:
    return await app.crawls.create(project, SPEC | more, by="test")


async def a_crawled_site(app: App) -> Crawl:
    """A crawl that is going on, of which a worker has done a share."""
    crawl = await app.crawls.create("shop", SPEC | {"budget": {"pages": 500}}, labels=["site"], by="key:ci")
    share = await Share.of(app, crawl, "crawler-1", ["site"])
    await share.fetch(pages=40, failed=2, skips=SKIPS)
    return crawl


class Share:
    """A run that does a share of a crawl."""

    def __init__(self, app: App, hand: Hand, lease: Lease) -> None:
        self.app, self.hand, self.lease, self.run_id = app, hand, lease, lease.run_id
        self.hosts: list[HostLease] = []

    @classmethod
    async def of(cls, app: App, crawl: Crawl, worker: str = "hand", labels: Sequence[str] = ()) -> Share:
        """Lease the next run of this crawl."""
        hand = await Hand.join(app, worker, labels)
        lease = await hand.lease_one()
        assert lease.spec.spec["crawl"] == crawl.id
        return cls(app, hand, lease)

    async def turn(self, turn: Turn | None = None, skips: Sequence[Skip] = ()) -> CrawlTurnReply:
        asked = CrawlTurn(turn=turn or Turn(hosts=10), skips=list(skips))
        turned = await self.app.protocol.frontier(self.hand.id, self.run_id, self.lease.attempt, asked)
        self.hosts += turned.turned.leases
        return turned

    async def fetch(self, pages: int = 0, failed: int = 0, skips: Sequence[Skip] = ()) -> None:
        """Find so many pages, fetch them, and tell what became of them and what was left out."""
        urls = [f"{SITE}{number}" for number in range(1, pages + failed)]
        await self.turn(Turn(found=[Found(key_of(url), url, host_of(url), 1) for url in urls], hosts=10))
        [host] = self.hosts
        given = {each.key: each.url for each in host.urls}
        if missing := [key_of(url) for url in urls if key_of(url) not in given]:
            report = HostReport(host.host, host.fence, want=len(missing))
            [kept] = (await self.turn(Turn(reports=[report]))).turned.kept
            given |= {each.key: each.url for each in kept.urls}
        states = [DONE] * pages + [FAILED] * failed
        outcomes = [
            Outcome(key, state, "" if state == DONE else "status_500", 200 if state == DONE else 500, size=100)
            for key, state in zip(given, states, strict=False)
        ]
        await self.turn(Turn(reports=[HostReport(host.host, host.fence, outcomes)]), skips)
