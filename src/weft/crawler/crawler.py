"""Runs the process that crawls: holds hosts, fetches from them politely, and reports to its worker."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from weft.address_guard import Guard
from weft.clock import SECOND, Moment, iso, seconds
from weft.crawl_spec import CrawlSpec
from weft.crawler import reasons
from weft.crawler.egress import egress_for, postpone
from weft.crawler.host_scheduler import AuxiliaryRequest, HeldHost, HostScheduler
from weft.crawler.messages import FINISHED as CRAWL_DONE
from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlPolicy, CrawlTurnReply, UrlMetadata
from weft.crawler.pages import PageReader
from weft.crawler.reporter import PendingReport, PendingRequest, Reporter
from weft.crawler.requests import RequestBuilder, identity
from weft.crawler.robots import token_of
from weft.crawler.robots_fetcher import CrossHostFetcher, RobotsFetcher
from weft.crawler.scope import ScopeFilter
from weft.crawler.stats import CrawlStats
from weft.crawler.steady_clock import steady_now
from weft.crawler.traps import TrapDetector
from weft.crawler.visits import BACK_OFF_STATUSES, PERMANENT_ERRORS, TRANSIENT_STATUSES, Visits
from weft.crawler.warc import WarcWriteError, WarcWriter
from weft.crawler.worker_channel import SideChannel, WorkerChannel, WorkerGone, split_request
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError
from weft.fetching.urls import canonical, host_of
from weft.ports import Given
from weft.proxies.client import FetchPostponed

EXIT_FILE = "end.json"
FINISHED, STOPPED, LOST, FAILED = "finished", "stopped", "lost", "failed"
"""Reasons besides those by which a crawl itself stops (``paused``)."""


@dataclass(frozen=True, slots=True)
class CrawlerExit:
    """Why it ended; the message says what went wrong, where something did."""

    reason: str
    message: str = ""

    @property
    def code(self) -> int:
        return 1 if self.reason == FAILED else 0


def write_exit_file(folder: Path, end: CrawlerExit) -> None:
    """Write the note, so that it is there whole or not at all."""
    draft = folder / f"{EXIT_FILE}.new"
    draft.write_bytes(msgspec.json.encode({"reason": end.reason, "message": end.message}))
    draft.replace(folder / EXIT_FILE)


log = logging.getLogger(__name__)

ENOUGH_OUTCOMES = 800
"""Outcomes that are worth a question."""
TICK_SECONDS, LONG_TICK_SECONDS, MANY_OUTCOMES = 0.25, 0.5, 200
"""How long anything waits to be told; who has so many outcomes soon has more, and tells of all of them together."""
SHORTEST_GAP_SECONDS = 0.02
GRACE_SECONDS = 5.0
"""How long what is under way may take once the process is to end."""
LAST_REPORT_SECONDS = 20.0
LOG_EVERY_SECONDS = 10.0
COMPLAIN_EVERY: Moment = 60 * SECOND
"""One line for each host that has problems."""
MOST_AT_ONCE_BYTES = 16 << 20
"""In one question."""


class UnreadableResponse(FetchError):
    """An answer that this process fails to read, which it would again."""

    def __init__(self, problem: Exception) -> None:
        super().__init__("parser", f"{type(problem).__name__}: {problem}")


class Crawler:
    """One partition of a crawl."""

    def __init__(self, spec: CrawlSpec, policy: CrawlPolicy, channel: WorkerChannel, folder: Path) -> None:
        who = identity(spec, spec.fetching.contact or policy.contact)
        self._spec, self._channel, self._who, self._request_builder = spec, channel, who, RequestBuilder(spec, who)
        self._pending, self.stats = PendingReport(), CrawlStats()
        reader = PageReader(spec)
        self._warc = WarcWriter(folder, spec.keeping.warc_bytes) if spec.keeping.warc else None
        scope, traps = ScopeFilter(spec, spec.urls), TrapDetector(spec)
        self._visits = Visits(spec, self._pending, self.stats, reader, scope, traps, self._warc)
        self._robots_fetcher = RobotsFetcher(
            spec, token_of(who.user_agent), self._visits.refuse, self._sitemap_listed, self._visits.trap_of
        )
        self.scheduler = HostScheduler(spec, self._robots_fetcher.admit)
        self._reporter = Reporter(self.scheduler, self._pending, self.stats, policy.lease_seconds)
        egress = Egress(
            Guard(policy.allowed_networks),
            user_agent=who.user_agent,
            verify_tls=spec.fetching.verify_tls,
            http2=spec.fetching.http2,
            connections_per_host=spec.politeness.at_once_per_host,
        )
        self._egress = egress_for(egress, spec)
        self._cross_host = CrossHostFetcher(self.scheduler, self._egress, SideChannel(channel.path))
        self._news = asyncio.Event()
        self._stopping: CrawlerExit | None = None
        for url in spec.sitemaps:
            self._seed_sitemap(url)

    def stop(self, reason: str = STOPPED, message: str = "") -> None:
        """End soon, and give back what is held."""
        self._stopping = self._stopping or CrawlerExit(reason, message)
        self.scheduler.closed = True
        self.scheduler.wake_all()
        self._news.set()

    async def run(self) -> CrawlerExit:
        """Until nothing is left, or the crawl is to stop."""
        log.info("crawling as %s, %d requests at once", self._who.user_agent, self.scheduler.at_once)
        fetchers = [asyncio.create_task(self._fetch_loop()) for _ in range(self.scheduler.at_once)]
        telling = asyncio.create_task(self._log_progress())
        talking = asyncio.create_task(self._report_loop())
        try:
            end = await talking
            if end.reason != LOST:
                await self._give_back(fetchers)
            return end
        except WorkerGone as problem:
            return CrawlerExit(LOST, str(problem))
        finally:
            for task in (talking, telling, *fetchers):
                task.cancel()
            await asyncio.gather(telling, *fetchers, return_exceptions=True)
            await self._egress.close()
            await self._cross_host.close()
            if self._warc is not None:
                self._warc.close()

    async def _report_loop(self) -> CrawlerExit:
        while self._stopping is None:
            told = self._reporter.compose()
            answer = await self._send_report(told)
            if answer.lost or answer.turned is None:
                return CrawlerExit(LOST, "the run is somebody else's by now")
            if self._warc is not None:
                self._warc.crawl = answer.turned.crawl
            self._reporter.take(told, answer.turned)
            self._resume()
            if answer.turned.stop:
                return _end_of(answer.turned)
            await self._wait_for_news()
        return self._stopping

    async def _send_report(self, told: PendingRequest) -> CrawlerReply:
        """What is too long for one question goes ahead of what became of the pages."""
        *ahead, last = split_request(told.question, told.items, MOST_AT_ONCE_BYTES)
        for question, items in ahead:
            answer = await self._channel.ask(question, items)
            if answer.lost:
                return answer
        return await self._channel.ask(*last)

    def _resume(self) -> None:
        if self.scheduler.paused and not self._pending.full:
            self.scheduler.paused = False
            self.scheduler.wake_all()

    async def _wait_for_news(self) -> None:
        began = time.monotonic()
        while not self._stopping and self._pending.settled < ENOUGH_OUTCOMES and not self.scheduler.paused:
            asleep = time.monotonic()
            await asyncio.sleep(SHORTEST_GAP_SECONDS)
            self._reporter.load.woken(time.monotonic() - asleep - SHORTEST_GAP_SECONDS)
            passed = time.monotonic() - began
            patience = LONG_TICK_SECONDS if self._pending.settled > MANY_OUTCOMES else TICK_SECONDS
            if self._reporter.is_urgent() or (passed >= patience and self._reporter.has_news()):
                return
            self._news.clear()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _give_back(self, fetchers: list[asyncio.Task[None]]) -> None:
        """Let what is under way come to its end, within reason; tell of it; release every host."""
        self.scheduler.closed = True
        self.scheduler.wake_all()
        await asyncio.wait(fetchers, timeout=GRACE_SECONDS)
        for task in fetchers:
            task.cancel()
        told = self._reporter.compose(last=True)
        try:
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                await self._send_report(told)
        except TimeoutError:
            log.info("the worker did not take the last report")

    async def _fetch_loop(self) -> None:
        scheduler, pending, news = self.scheduler, self._pending, self._news
        while not scheduler.closed:
            taken = scheduler.take()
            if taken is None:
                news.set()
                await scheduler.rest()
                continue
            held, work = taken
            try:
                await self._visit(held, work)
            except (WarcWriteError, WorkerGone) as problem:  # nothing is told of the page, so that it is fetched again
                self.stop(FAILED, str(problem))
            except Exception as problem:
                log.exception("%s broke the crawler", work.url)
                self._missed(held, work, UnreadableResponse(problem))
            finally:
                scheduler.finished(held)
            if pending.settled >= ENOUGH_OUTCOMES or pending.full:
                news.set()
                scheduler.paused = pending.full

    async def _visit(self, held: HeldHost, work: Given | AuxiliaryRequest) -> None:
        self.stats.requests += 1
        ask, is_elsewhere = (
            self._request_builder.ask(held.name, work),
            isinstance(work, AuxiliaryRequest) and work.host != held.name,
        )
        try:
            exchange = await (self._cross_host.fetch(held, ask) if is_elsewhere else self._egress.fetch(ask))
        except FetchError as problem:
            self._missed(held, work, problem)
            return
        politeness = held.politeness
        if not is_elsewhere:
            politeness.was_sent(round(exchange.sent_after * SECOND))
            politeness.state.address = exchange.address
        self._request_builder.answered(exchange)
        if held.gone:
            return
        if exchange.status in BACK_OFF_STATUSES or exchange.status in TRANSIENT_STATUSES:
            politeness.state.trouble = reasons.status_problem(exchange.status)
            self._complain(held, work.url, f"the answer has status {exchange.status}")
        elif politeness.state.trouble:
            politeness.state.trouble, held.saved = "", False
        if not isinstance(work, AuxiliaryRequest):
            self._visits.arrived(held, work, exchange)
        elif work.is_probe:
            self._visits.probed(work, exchange)
        else:
            self._robots_fetcher.arrived(held, work, exchange)

    def _complain(self, held: HeldHost, url: str, sentence: str) -> None:
        at = steady_now()
        if at - held.complained_at > COMPLAIN_EVERY:
            held.complained_at = at
            log.info("%s: %s", url, sentence)

    def _missed(self, held: HeldHost, work: Given | AuxiliaryRequest, problem: FetchError) -> None:
        """Nobody knows whether the host has seen the request, or when."""
        held.politeness.wait_one_delay(steady_now())
        if problem.kind not in PERMANENT_ERRORS:
            held.politeness.state.trouble = reasons.error_problem(problem)
        self._complain(held, work.url, str(problem))
        if isinstance(problem, FetchPostponed) and not isinstance(work, AuxiliaryRequest):
            postpone(held, work, problem, self._spec.fetching.retries, self._pending, self.stats)
        elif not isinstance(work, AuxiliaryRequest):
            self._visits.missed(held, work, problem)
        elif work.is_probe:
            self._visits.probed(work, None)
        else:
            self._robots_fetcher.missed(held, work, problem)

    def _seed_sitemap(self, url: str) -> None:
        found = canonical(url)
        if found is not None:
            self._visits.seed(found, UrlMetadata(sitemap=1))

    def _sitemap_listed(self, held: HeldHost, url: str) -> None:
        """A robots.txt names it; one of another host could name anything."""
        if self._spec.scope.sitemaps and (found := canonical(url)) is not None:
            if host_of(found) == held.name:
                self._seed_sitemap(found)
            else:
                self._pending.skip("sitemap_host", found)

    async def _log_progress(self) -> None:
        """A line now and then for whoever reads the log."""
        before, at = 0, time.monotonic()
        while True:
            await asyncio.sleep(LOG_EVERY_SECONDS)
            rate = (self.stats.responses - before) / (time.monotonic() - at)
            before, at = self.stats.responses, time.monotonic()
            log.info(
                "%d answers, %.1f a second, %d hosts held%s", before, rate, len(self.scheduler.hosts), self._waits()
            )

    def _waits(self) -> str:
        """Why nothing happens, where that will last."""
        if self._channel.problem:
            return f", waiting: {self._channel.problem}"
        until = self._reporter.waits_until
        if self.scheduler.hosts or until - steady_now() < seconds(LOG_EVERY_SECONDS):
            return ""
        return f", waiting: all hosts that are left must be left alone until {iso(until)}"


def _end_of(turned: CrawlTurnReply) -> CrawlerExit:
    """A crawl that no page came of has failed, and its runs with it."""
    if turned.failed:
        return CrawlerExit(FAILED, turned.reason)
    return CrawlerExit(FINISHED if turned.stop == CRAWL_DONE else turned.stop)


async def first_answer(channel: WorkerChannel) -> CrawlPolicy:
    """Who the worker says that we are."""
    answer = await channel.ask(CrawlerRequest())
    return answer.policy or CrawlPolicy()
