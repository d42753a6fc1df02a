"""The ways out of a spider: how the next request to a site goes, by what the control plane last said of it."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import Any

from scrapy import signals
from scrapy.exceptions import IgnoreRequest

from . import patterns
from .hosts import host_of
from .worker_channel import WayLine

TIERS = ("cheap", "dear")
BLOCKS = ("soft_block", "hard_block")
TELL_SECONDS = 2.0
LOOKED_AT = 64 << 10
"""Bytes of a body."""


class Paused(Exception):
    """A site is not asked at all for a while."""


class Ways:
    """Under one plan. What was used is told with the next question, and after a while by itself."""

    def __init__(self, plan: str, line: WayLine) -> None:
        self._name, self._line = plan, line
        self._revision, self._stop = 0, ""
        self._plan: dict[str, Any] = {}
        self._sites: dict[str, list[Any]] = {}
        """Rung, whether the next request is a probe, and when to ask again."""
        self._ill: dict[str, float] = {}
        self._worn: dict[str, float] = {}
        self._sessions: dict[str, tuple[str, float]] = {}
        self._used: dict[tuple[str, str, int, str], list[float]] = {}
        self._told_at = time.monotonic()

    async def choose(self, site: str, session: str) -> tuple[int, str, str]:
        """The rung, the name and the address of the proxy, which are empty where there is none. Raises ``Paused``."""
        known = self._sites.get(site)
        if known is None or time.monotonic() >= known[2]:
            await self._turn([site])
            known = self._sites[site]
        rung, known[1] = known[0] - bool(known[1]), False
        if rung == 0 or (self._stop and self._budget("then") == "direct"):
            return 0, "", ""
        if rung > len(self._tiers) or self._stop:
            raise Paused(f"{site} is not asked now: {self._stop or 'it has blocked every way'}")
        return (rung, *self._pick(site, self._tiers[rung - 1], session))

    async def tell(self, site: str, way: tuple[int, str], verdict: str, size: tuple[int, int], seconds: float) -> None:
        """What became of a request. A block is told at once, and the answer may move the site."""
        rung, name = way
        counts = self._used.setdefault((site, name, rung, verdict), [0, 0, 0, 0.0])
        for place, more in enumerate((1, *size, seconds)):
            counts[place] += more
        stands = self._sites.get(site, [0])[0]
        if verdict in BLOCKS or rung < stands:
            await self._turn([site])
        elif verdict == "proxy_error" or time.monotonic() - self._told_at > TELL_SECONDS:
            await self._turn([])

    def covers(self, site: str) -> bool:
        return any(fnmatchcase(site, each) for each in self._plan.get("sites", ()))

    def verdict(self, status: int, headers: Any, body: bytes) -> str:
        """What an answer is taken for, by the rules of the plan and then of weft."""
        for rule in self._plan.get("rules", ()):
            if _is_so(rule, status, headers, body):
                return str(rule["verdict"])
        return "ok"

    def last_words(self) -> None:
        """Tell what is left to tell, and wait for no answer."""
        if self._used:
            self._line.tell(self._question([]))

    async def _turn(self, sites: list[str]) -> None:
        answer = await self._line.ask(self._question(sites))
        turned = (answer.get("turned") or {}).get("proxies")
        if turned is None:
            raise Paused(answer.get("problem") or "the run is somebody else's by now")
        now = time.monotonic()
        self._revision, self._plan = turned["revision"], turned.get("plan") or self._plan
        self._stop = turned.get("stop", "")
        self._ill = {name: now + left for name, left in turned.get("ill", {}).items()}
        for site, rung, probe, again in turned.get("site_states", ()):
            self._sites[site] = [rung, probe, now + max(0.5, again) if rung else float("inf")]

    def _question(self, sites: list[str]) -> dict[str, Any]:
        used = [[*key, int(c[0]), int(c[1]), int(c[2]), c[3]] for key, c in self._used.items()]
        self._used, self._told_at = {}, time.monotonic()
        turn = {"plan": self._name, "revision": self._revision, "used": used, "sites": sites}
        return {"asked": {"proxies": turn}}

    @property
    def _tiers(self) -> list[str]:
        return [tier for tier in TIERS if any(each.get("tier", "cheap") == tier for each in self._plan["exits"])]

    def _budget(self, name: str) -> Any:
        return self._plan.get("budget", {}).get(name)

    def _pick(self, site: str, tier: str, session: str) -> tuple[str, str]:
        """The exit of a session, or the one that was left alone the longest, as its weight allows."""
        now = time.monotonic()
        able = [
            each
            for each in self._plan["exits"]
            if each.get("tier", "cheap") == tier and now >= self._ill.get(each["name"], 0.0)
        ]
        if not able:
            raise Paused(f"{site} is not asked now: no {tier} proxy is well")
        name, until = self._sessions.get(session, ("", 0.0))
        kept = [each for each in able if session and each["name"] == name and now < until]
        chosen = kept[0] if kept else min(able, key=lambda each: (self._worn.get(each["name"], 0.0), each["name"]))
        least = min(self._worn.get(each["name"], 0.0) for each in able)
        worn = max(self._worn.get(chosen["name"], 0.0), least)
        self._worn[chosen["name"]] = worn + 1 / chosen.get("weight", 1.0)
        if session and not kept:
            self._sessions[session] = (chosen["name"], now + chosen.get("sticky_seconds", 600.0))
        return chosen["name"], chosen["url"]


def _is_so(rule: dict[str, Any], status: int, headers: Any, body: bytes) -> bool:
    if rule.get("status") and status not in rule["status"]:
        return False
    if rule.get("shorter_than") and len(body) >= rule["shorter_than"]:
        return False
    if rule.get("header"):
        values = [value.decode("latin-1").encode() for value in headers.getlist(rule["header"])]
        if not any(patterns.is_in(rule.get("matches", ""), value) for value in values):
            return False
    return not rule.get("body") or patterns.is_in(rule["body"], body[:LOOKED_AT])


WAY = "weft_way"
TRIES = "weft_way_tries"
PLAIN_REFUSALS = (429, 503)
"""Who answers with these says when to come back; Scrapy's own retries listen."""


class ProxyMiddleware:
    def __init__(self, crawler: Any) -> None:
        patterns.load()
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
