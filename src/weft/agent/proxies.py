"""Requests go the way that their site needs: directly, or through the proxies of a plan.

``DOWNLOADER_MIDDLEWARES = {"weft.agent.proxies.ProxyMiddleware": 740}`` and ``PROXY_PLAN = "ways"``. A request may name
another plan, or none, by ``meta["proxy_plan"]``, and a session that keeps its proxy by ``meta["proxy_session"]``.
"""

from __future__ import annotations

import time
from typing import Any

from scrapy import signals
from scrapy.exceptions import IgnoreRequest

from .hosts import host_of
from .way_line import WayLine
from .ways import BLOCKS, Paused, Ways

WAY = "weft_way"
TRIES = "weft_way_tries"
PLAIN_REFUSALS = (429, 503)
"""Who answers with these says when to come back; Scrapy's own retries listen."""


class ProxyMiddleware:
    def __init__(self, crawler: Any) -> None:
        self._line, self._stats = WayLine.of(crawler), crawler.stats
        self._plan = crawler.settings.get("PROXY_PLAN") or ""
        self._most_tries = crawler.settings.getint("PROXY_TRIES", 4)
        self._ways: dict[str, Ways] = {}
        crawler.signals.connect(self._close, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> ProxyMiddleware:
        return cls(crawler)

    async def process_request(self, request: Any, spider: Any = None) -> None:
        """Choose the way. A request with a proxy of its own keeps it."""
        plan = request.meta.get("proxy_plan", self._plan)
        if WAY in request.meta:  # a retry, or a redirect
            del request.meta[WAY]
            request.meta.pop("proxy", None)
        if not plan or "proxy" in request.meta or not request.url.startswith(("http:", "https:")):
            return
        ways = self._ways.setdefault(plan, Ways(plan, self._line))
        try:
            rung, name, url = await ways.choose(host_of(request.url), str(request.meta.get("proxy_session", "")))
        except Paused as paused:
            self._stats.inc_value("weft/ways/paused")
            raise IgnoreRequest(str(paused)) from None
        request.meta[WAY] = {"plan": plan, "rung": rung, "exit": name, "at": time.monotonic()}
        if url:
            request.meta["proxy"] = url

    async def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        way = request.meta.get(WAY)
        if way is None:
            return response
        ways, site = self._ways[way["plan"]], host_of(request.url)
        verdict = ways.verdict(response.status, response.headers, response.body)
        await self._tell(request, verdict, response)
        tries = request.meta.get(TRIES, 0) + 1
        blocked = verdict in BLOCKS and response.status not in PLAIN_REFUSALS and ways.covers(site)
        if not blocked or tries > self._most_tries:
            return response
        again = request.replace(dont_filter=True)
        again.meta[TRIES] = tries
        return again

    async def process_exception(self, request: Any, exception: Exception, spider: Any = None) -> None:
        way = request.meta.get(WAY)
        if way is None or isinstance(exception, IgnoreRequest):
            return
        words = f"{type(exception).__name__} {exception}"
        through = bool(way["exit"]) and any(each in words for each in ("Tunnel", "Refused", "Proxy", "407"))
        await self._tell(request, "proxy_error" if through else "origin_error", None)

    async def _tell(self, request: Any, verdict: str, response: Any) -> None:
        way = request.meta[WAY]
        sent = len(request.url) + len(request.headers.to_string()) + len(request.body)
        received = 0 if response is None else len(response.headers.to_string()) + len(response.body)
        self._stats.inc_value(f"weft/ways/{verdict}")
        try:
            await self._ways[way["plan"]].tell(
                host_of(request.url),
                (way["rung"], way["exit"]),
                verdict,
                (sent, received),
                time.monotonic() - way["at"],
            )
        except Paused:  # nobody listens any more
            self._stats.inc_value("weft/ways/untold")

    def _close(self) -> None:
        for each in self._ways.values():
            each.last_words()
        self._line.close()
