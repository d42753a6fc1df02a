"""Makes the requests of a crawl: who asks, with which cookies, on which conditions, and for how much."""

from __future__ import annotations

from weft.crawl_ports import Given
from weft.crawl_spec import CrawlSpec
from weft.crawls import sitemaps
from weft.crawls.carried import carried
from weft.crawls.identity import Headers, Identity
from weft.crawls.robots import LARGEST as LARGEST_ROBOTS
from weft.crawls.workbench import Errand
from weft.fetching import conditions
from weft.fetching.cookies import Jar
from weft.fetching.exchange import Ask, Exchange
from weft.fetching.urls import host_of

ROBOTS_DEADLINE_SECONDS = 30.0


class Asking:
    """Of one crawl; its cookies are those of this process."""

    def __init__(self, spec: CrawlSpec, who: Identity) -> None:
        self._fetching, self._who = spec.fetching, who
        self._jar = Jar() if spec.fetching.cookies else None

    def ask(self, host: str, work: Given | Errand) -> Ask:
        if not isinstance(work, Errand):
            return self._page(host, work)
        if work.is_probe:
            return self._plain(work.url, self._headers(host, work.url), self._fetching.largest_body)
        return Ask(
            url=work.url,
            headers=self._who.headers(host_of(work.url)),
            deadline_seconds=min(self._fetching.deadline_seconds, ROBOTS_DEADLINE_SECONDS),
            largest_body=LARGEST_ROBOTS + 1,
            begin_suffices=True,
        )

    def answered(self, exchange: Exchange) -> None:
        """Keep the cookies that an answer sets."""
        if self._jar is not None:
            self._jar.take(exchange)

    def _page(self, host: str, given: Given) -> Ask:
        headers, largest = self._headers(host, given.url), self._fetching.largest_body
        if given.data and carried(given.data).sitemap:
            largest = max(largest, sitemaps.LARGEST)
        if given.etag or given.last_modified:
            headers = (*headers, *conditions.headers(given.etag, given.last_modified))
        return self._plain(given.url, headers, largest)

    def _plain(self, url: str, headers: Headers, largest: int) -> Ask:
        return Ask(url=url, headers=headers, deadline_seconds=self._fetching.deadline_seconds, largest_body=largest)

    def _headers(self, host: str, url: str) -> Headers:
        headers = self._who.headers(host)
        cookies = self._jar.header(url) if self._jar is not None else ""
        if not cookies or any(name == "cookie" for name, _ in headers):
            return headers
        return (*headers, ("cookie", cookies))
