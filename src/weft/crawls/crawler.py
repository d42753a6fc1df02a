"""The process that crawls: holds hosts, fetches from them politely, and reports to its worker."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from weft.addresses import Guard
from weft.clock import SECOND, Moment, iso, seconds
from weft.crawl_ports import Given
from weft.crawl_spec import CrawlSpec
from weft.crawls import trouble
from weft.crawls.abroad import Abroad
from weft.crawls.asking import Asking
from weft.crawls.carried import Carried
from weft.crawls.dialogue import Dialogue, Told
from weft.crawls.ending import FAILED, FINISHED, LOST, STOPPED, End
from weft.crawls.errands import Errands
from weft.crawls.identity import identity
from weft.crawls.ledger import Ledger
from weft.crawls.model import FINISHED as CRAWL_DONE
from weft.crawls.model import Answer, CrawlTurned, Policy, Question
from weft.crawls.pages import PageReader
from weft.crawls.pieces import in_pieces
from weft.crawls.robots import token_of
from weft.crawls.scope import Scope
from weft.crawls.side_line import SideLine
from weft.crawls.stats import Stats
from weft.crawls.steady import steady
from weft.crawls.talk import HungUp, Talk
from weft.crawls.traps import Traps
from weft.crawls.visits import FINAL, PASSING, REFUSALS, Visits
from weft.crawls.warc import CannotKeep, WarcWriter
from weft.crawls.ways_out import put_off, way_out
from weft.crawls.workbench import Errand, Held, Workbench
from weft.fetching.detours import PutOff
from weft.fetching.egress import Egress
from weft.fetching.exchange import NoAnswer
from weft.fetching.urls import canonical, host_of

log = logging.getLogger(__name__)

ENOUGH = 800
"""Outcomes that are worth a question."""
TICK_SECONDS, LONG_TICK_SECONDS, MANY = 0.25, 0.5, 200
"""How long anything waits to be told; who has so many outcomes soon has more, and tells of all of them together."""
SHORTEST_GAP_SECONDS = 0.02
GRACE_SECONDS = 5.0
"""How long what is under way may take once the process is to end."""
LAST_WORD_SECONDS = 20.0
TOLD_EVERY_SECONDS = 10.0
COMPLAIN_EVERY: Moment = 60 * SECOND
"""One line for each host that has problems."""
MOST_AT_ONCE_BYTES = 16 << 20
"""In one question."""


class Unreadable(NoAnswer):
    """An answer that this process fails to read, which it would again."""

    def __init__(self, problem: Exception) -> None:
        super().__init__("parser", f"{type(problem).__name__}: {problem}")


class Crawler:
    """One share of a crawl."""

    def __init__(self, spec: CrawlSpec, policy: Policy, talk: Talk, folder: Path) -> None:
        who = identity(spec, spec.fetching.contact or policy.contact)
        self._spec, self._talk, self._who, self._asking = spec, talk, who, Asking(spec, who)
        self._ledger, self.stats = Ledger(), Stats()
        reader = PageReader(spec)
        self._warc = WarcWriter(folder, spec.keeping.warc_bytes) if spec.keeping.warc else None
        scope, traps = Scope(spec, spec.urls), Traps(spec)
        self._visits = Visits(spec, self._ledger, self.stats, reader, scope, traps, self._warc)
        self._errands = Errands(
            spec, token_of(who.user_agent), self._visits.refuse, self._sitemap_listed, traps.trap_of
        )
        self.bench = Workbench(spec, self._errands.admit)
        self._dialogue = Dialogue(self.bench, self._ledger, self.stats, policy.lease_seconds)
        egress = Egress(
            Guard(policy.allowed_networks),
            user_agent=who.user_agent,
            verify_tls=spec.fetching.verify_tls,
            http2=spec.fetching.http2,
            connections_per_host=spec.politeness.at_once_per_host,
        )
        self._egress = way_out(egress, spec)
        self._abroad = Abroad(self.bench, self._egress, SideLine(talk.path))
        self._news = asyncio.Event()
        self._stopping: End | None = None
        for url in spec.sitemaps:
            self._seed_sitemap(url)

    def stop(self, reason: str = STOPPED, message: str = "") -> None:
        """End soon, and give back what is held."""
        self._stopping = self._stopping or End(reason, message)
        self.bench.closed = True
        self.bench.wake_all()
        self._news.set()

    async def run(self) -> End:
        """Until nothing is left, or the crawl is to stop."""
        log.info("crawling as %s, %d requests at once", self._who.user_agent, self.bench.at_once)
        fetchers = [asyncio.create_task(self._fetch_on()) for _ in range(self.bench.at_once)]
        telling = asyncio.create_task(self._tell())
        talking = asyncio.create_task(self._talk_on())
        try:
            end = await talking
            if end.reason != LOST:
                await self._give_back(fetchers)
            return end
        except HungUp as problem:
            return End(LOST, str(problem))
        finally:
            for task in (talking, telling, *fetchers):
                task.cancel()
            await asyncio.gather(telling, *fetchers, return_exceptions=True)
            await self._egress.close()
            await self._abroad.close()
            if self._warc is not None:
                self._warc.close()

    async def _talk_on(self) -> End:
        while self._stopping is None:
            told = self._dialogue.compose()
            answer = await self._tell_of(told)
            if answer.lost or answer.turned is None:
                return End(LOST, "the run is somebody else's by now")
            if self._warc is not None:
                self._warc.crawl = answer.turned.crawl
            self._dialogue.take(told, answer.turned)
            self._go_on()
            if answer.turned.stop:
                return _end_of(answer.turned)
            await self._until_worth_telling()
        return self._stopping

    async def _tell_of(self, told: Told) -> Answer:
        """What is too long for one question goes ahead of what became of the pages."""
        *ahead, last = in_pieces(told.question, told.items, MOST_AT_ONCE_BYTES)
        for question, items in ahead:
            answer = await self._talk.ask(question, items)
            if answer.lost:
                return answer
        return await self._talk.ask(*last)

    def _go_on(self) -> None:
        if self.bench.paused and not self._ledger.full:
            self.bench.paused = False
            self.bench.wake_all()

    async def _until_worth_telling(self) -> None:
        began = time.monotonic()
        while not self._stopping and self._ledger.settled < ENOUGH and not self.bench.paused:
            asleep = time.monotonic()
            await asyncio.sleep(SHORTEST_GAP_SECONDS)
            self._dialogue.load.woken(time.monotonic() - asleep - SHORTEST_GAP_SECONDS)
            passed = time.monotonic() - began
            patience = LONG_TICK_SECONDS if self._ledger.settled > MANY else TICK_SECONDS
            if self._dialogue.is_urgent() or (passed >= patience and self._dialogue.has_news()):
                return
            self._news.clear()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _give_back(self, fetchers: list[asyncio.Task[None]]) -> None:
        """Let what is under way come to its end, within reason; tell of it; release every host."""
        self.bench.closed = True
        self.bench.wake_all()
        await asyncio.wait(fetchers, timeout=GRACE_SECONDS)
        for task in fetchers:
            task.cancel()
        told = self._dialogue.compose(last=True)
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._tell_of(told)
        except TimeoutError:
            log.info("the worker did not take the last report")

    async def _fetch_on(self) -> None:
        bench, ledger, news = self.bench, self._ledger, self._news
        while not bench.closed:
            taken = bench.take()
            if taken is None:
                news.set()
                await bench.rest()
                continue
            held, work = taken
            try:
                await self._visit(held, work)
            except (CannotKeep, HungUp) as problem:  # nothing is told of the page, so that it is fetched again
                self.stop(FAILED, str(problem))
            except Exception as problem:
                log.exception("%s broke the crawler", work.url)
                self._missed(held, work, Unreadable(problem))
            finally:
                bench.finished(held)
            if ledger.settled >= ENOUGH or ledger.full:
                news.set()
                bench.paused = ledger.full

    async def _visit(self, held: Held, work: Given | Errand) -> None:
        self.stats.requests += 1
        ask, is_elsewhere = self._asking.ask(held.name, work), isinstance(work, Errand) and work.host != held.name
        try:
            exchange = await (self._abroad.fetch(held, ask) if is_elsewhere else self._egress.fetch(ask))
        except NoAnswer as problem:
            self._missed(held, work, problem)
            return
        manners = held.manners
        if not is_elsewhere:
            manners.was_sent(round(exchange.sent_after * SECOND))
            manners.state.address = exchange.address
        self._asking.answered(exchange)
        if held.gone:
            return
        if exchange.status in REFUSALS or exchange.status in PASSING:
            manners.state.trouble = trouble.answered_with(exchange.status)
            self._complain(held, work.url, f"the answer has status {exchange.status}")
        elif manners.state.trouble:
            manners.state.trouble, held.saved = "", False
        if not isinstance(work, Errand):
            self._visits.arrived(held, work, exchange)
        elif work.is_probe:
            self._visits.probed(work.url, exchange)
        else:
            self._errands.arrived(held, work, exchange)

    def _complain(self, held: Held, url: str, sentence: str) -> None:
        at = steady()
        if at - held.complained_at > COMPLAIN_EVERY:
            held.complained_at = at
            log.info("%s: %s", url, sentence)

    def _missed(self, held: Held, work: Given | Errand, problem: NoAnswer) -> None:
        """Nobody knows whether the host has seen the request, or when."""
        held.manners.wait_one_delay(steady())
        if problem.kind not in FINAL:
            held.manners.state.trouble = trouble.without_answer(problem)
        self._complain(held, work.url, str(problem))
        if isinstance(problem, PutOff) and not isinstance(work, Errand):
            put_off(held, work, problem, self._spec.fetching.retries, self._ledger, self.stats)
        elif not isinstance(work, Errand):
            self._visits.missed(held, work, problem)
        elif work.is_probe:
            self._visits.probed(work.url, None)
        else:
            self._errands.missed(held, work, problem)

    def _seed_sitemap(self, url: str) -> None:
        found = canonical(url)
        if found is not None:
            self._visits.seed(found, Carried(sitemap=1))

    def _sitemap_listed(self, held: Held, url: str) -> None:
        """A robots.txt names it; one of another host could name anything."""
        if self._spec.scope.sitemaps and (found := canonical(url)) is not None:
            if host_of(found) == held.name:
                self._seed_sitemap(found)
            else:
                self._ledger.skip("sitemap_host", found)

    async def _tell(self) -> None:
        """A line now and then for whoever reads the log."""
        before, at = 0, time.monotonic()
        while True:
            await asyncio.sleep(TOLD_EVERY_SECONDS)
            rate = (self.stats.responses - before) / (time.monotonic() - at)
            before, at = self.stats.responses, time.monotonic()
            log.info("%d answers, %.1f a second, %d hosts held%s", before, rate, len(self.bench.hosts), self._waits())

    def _waits(self) -> str:
        """Why nothing happens, where that will last."""
        if self._talk.problem:
            return f", waiting: {self._talk.problem}"
        until = self._dialogue.waits_until
        if self.bench.hosts or until - steady() < seconds(TOLD_EVERY_SECONDS):
            return ""
        return f", waiting: all hosts that are left must be left alone until {iso(until)}"


def _end_of(turned: CrawlTurned) -> End:
    """A crawl that no page came of has failed, and its runs with it."""
    if turned.failed:
        return End(FAILED, turned.reason)
    return End(FINISHED if turned.stop == CRAWL_DONE else turned.stop)


async def first_answer(talk: Talk) -> Policy:
    """Who the worker says that we are."""
    answer = await talk.ask(Question())
    return answer.policy or Policy()
