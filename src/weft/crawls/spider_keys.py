"""Under which key the frontier knows a request of a spider: by Scrapy's fingerprint, where the project has no other."""

from __future__ import annotations

import hashlib
import json

from weft.crawls.model import Crawl


def is_of_spider(crawl: Crawl) -> bool:
    """Whether spiders do it, which bring their own addresses."""
    spec = crawl.spec
    return crawl.run_id is not None and spec.tier == "both" and not (spec.urls or spec.sitemaps)


def request_key(url: str) -> int:
    """The key of a plain request for an address, as ``agent/scheduler.py`` has it."""
    from w3lib.url import canonicalize_url  # it comes with Scrapy, and nobody else here needs it

    words = {"method": "GET", "url": canonicalize_url(url), "body": "", "headers": {}}
    mark = hashlib.sha1(json.dumps(words, sort_keys=True).encode()).digest()  # noqa: S324 - Scrapy's choice
    return int.from_bytes(mark[:8], "big", signed=True)
