"""Builds the requests of a crawl: identity, headers, login, cookies, conditions and limits."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from weft import __version__
from weft.crawl_spec import CrawlSpec
from weft.crawler import sitemaps
from weft.crawler.host_scheduler import AuxiliaryRequest
from weft.crawler.messages import url_metadata
from weft.crawler.robots import LARGEST_ROBOTS
from weft.fetching.cookies import CookieJar
from weft.fetching.model import Exchange, FetchRequest, conditional_headers
from weft.fetching.urls import canonical, host_of
from weft.ports import Given

PRIVATE_HEADERS = "auth|cookie|key|passw|secret|session|token"
"""Headers with one of these in their names are secrets: only the hosts of the seeds get them, no file keeps them."""

_is_private = re.compile(PRIVATE_HEADERS).search
_private_lines = re.compile(rb"(?i)(?<=\n)[\w-]*(?:%b)[\w-]*:[^\r\n]*\r\n" % PRIVATE_HEADERS.encode())

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CrawlerIdentity:
    """What the crawler calls itself, and what it shows to whom."""

    user_agent: str
    public: Headers
    private: Headers
    hosts: frozenset[str]

    def headers(self, host: str) -> Headers:
        return self.public + self.private if self.private and host in self.hosts else self.public


def identity(spec: CrawlSpec, contact: str) -> CrawlerIdentity:
    fetching = spec.fetching
    given = {name.lower(): value for name, value in fetching.headers.items()}
    if fetching.username:
        login = base64.b64encode(f"{fetching.username}:{fetching.password}".encode()).decode()
        given["authorization"] = f"Basic {login}"
    seeds = {host_of(url) for each in (*spec.urls, *spec.sitemaps) if (url := canonical(each)) is not None}
    return CrawlerIdentity(
        f"{fetching.user_agent or f'weft/{__version__}'} (+{contact})",
        tuple((name, value) for name, value in given.items() if not _is_private(name)),
        tuple((name, value) for name, value in given.items() if _is_private(name)),
        frozenset(seeds),
    )


def without_secrets(request: bytes) -> bytes:
    """The head of a request as strangers may see it: without logins, also those for proxies, and cookies."""
    return _private_lines.sub(b"", request)


ROBOTS_DEADLINE_SECONDS = 30.0


class RequestBuilder:
    """Of one crawl; its cookies are those of this process."""

    def __init__(self, spec: CrawlSpec, who: CrawlerIdentity) -> None:
        self._fetching, self._who = spec.fetching, who
        self._jar = CookieJar() if spec.fetching.cookies else None

    def ask(self, host: str, work: Given | AuxiliaryRequest) -> FetchRequest:
        if not isinstance(work, AuxiliaryRequest):
            return self._page(host, work)
        if work.is_probe:
            return self._plain(work.url, self._headers(host, work.url), self._fetching.largest_body)
        return FetchRequest(
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

    def _page(self, host: str, given: Given) -> FetchRequest:
        headers, largest = self._headers(host, given.url), self._fetching.largest_body
        if given.data and url_metadata(given.data).sitemap:
            largest = max(largest, sitemaps.LARGEST)
        if given.etag or given.last_modified:
            headers = (*headers, *conditional_headers(given.etag, given.last_modified))
        return self._plain(given.url, headers, largest)

    def _plain(self, url: str, headers: Headers, largest: int) -> FetchRequest:
        return FetchRequest(
            url=url, headers=headers, deadline_seconds=self._fetching.deadline_seconds, largest_body=largest
        )

    def _headers(self, host: str, url: str) -> Headers:
        headers = self._who.headers(host)
        cookies = self._jar.header(url) if self._jar is not None else ""
        if not cookies or any(name == "cookie" for name, _ in headers):
            return headers
        return (*headers, ("cookie", cookies))
