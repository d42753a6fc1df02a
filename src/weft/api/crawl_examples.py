"""What the documents of crawls look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.api.examples import AT, page
from weft.clock import seconds
from weft.crawl_ports import Counts, Known, KnownHost
from weft.crawl_spec import Budget, CrawlSpec, Fetching
from weft.crawls.model import Crawl, Skip
from weft.crawls.report import Report, Share, SkipSum, Why
from weft.documents.crawls import (
    crawl_document,
    host_document,
    report_document,
    skip_document,
    url_document,
    why_document,
)

__all__ = ["CDXJ", "CRAWL", "HOST", "REPORT", "SKIP", "SPEC", "URL", "WHY", "page"]

SPEC: dict[str, Any] = {
    "urls": ["https://shop.example/"],
    "follow": True,
    "budget": {"pages": 10_000},
    "fetching": {"contact": "crawls@weft.example"},
}
_spec = CrawlSpec(
    urls=("https://shop.example/",),
    follow=True,
    budget=Budget(pages=10_000),
    fetching=Fetching(contact="crawls@weft.example"),
)
_crawl = Crawl(
    id=7,
    project="shop",
    name="shop.example",
    run_id=12,
    spec=_spec,
    state="active",
    reason="",
    seeded=True,
    created_at=AT,
    created_by="key:ci",
    ended_at=None,
)
_counts = Counts(queued=5_120, leased=50, done=1_204, failed=3, skipped=17, hosts=1, size=48_160_000)
_share = Share(
    run_id=12,
    state="running",
    worker="crawler-1",
    attempt=1,
    started_at=AT + seconds(0.1),
    finished_at=None,
    outcome=None,
    reason=None,
    pages=1_207,
)
_skip = Skip(
    reason="scope",
    host="cdn.example",
    pattern="",
    example="https://cdn.example/logo.svg",
    count=61,
    is_trap=False,
)
_known = Known(
    key=7_266_447_313_870_364_031,
    url="https://shop.example/tea",
    host="shop.example",
    state="done",
    status=200,
    depth=1,
    fetched_at=AT + seconds(9),
    digest="2c26b46b68ffc68f",
)


def _plain(document: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


_report = Report(
    crawl=_crawl,
    counts=_counts,
    pages_per_second=12.5,
    shares=[_share],
    skips=[SkipSum(reason="scope", count=61)],
    traps=[],
)
_host = KnownHost("shop.example", _counts, AT + seconds(10), leased_until=AT + seconds(70), holder="12:1")
_why = Why(url="https://shop.example/a", state="", reason="not_found", sentence="no page that was fetched links to it")

CRAWL = _plain(crawl_document(_crawl, _counts))
REPORT = _plain(report_document(_report))
HOST = _plain(host_document(_host))
URL = _plain(url_document(_known))
SKIP = _plain(skip_document(_skip))
WHY = _plain(why_document(_why))
CDXJ = 'example,shop)/ 20261201020000 {"url": "https://shop.example/", "status": "200", "filename": "weft-7.warc.gz"}\n'
