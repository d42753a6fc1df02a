"""The ways out of a process that crawls, where its spec names a proxy plan or a delay of addresses."""

from __future__ import annotations

from functools import partial

from weft.clock import seconds
from weft.crawl_ports import FAILED, QUEUED, Given, Outcome
from weft.crawl_spec import CrawlSpec
from weft.crawls.addresses import InLine
from weft.crawls.ledger import Ledger
from weft.crawls.model import CrawlTurn, Question
from weft.crawls.side_line import SideLine
from weft.crawls.stats import Stats
from weft.crawls.steady import steady
from weft.crawls.talk import HungUp, Refused, Talk
from weft.crawls.workbench import Held
from weft.fetching.detours import LONGEST_PAUSE_SECONDS, Detours, PutOff
from weft.fetching.egress import Egress
from weft.fetching.proxy_turns import ProxyTurn, ProxyTurned
from weft.fetching.ways import Ways

AGAIN_SECONDS = 60.0


def way_out(egress: Egress, spec: CrawlSpec) -> Egress | Detours | InLine:
    """The egress itself where the spec names neither a proxy plan nor a delay of addresses."""
    plan, delay, line = spec.fetching.proxies, spec.politeness.address_delay_seconds, SideLine()
    way: Egress | Detours = egress
    if plan:
        way = Detours(egress, Ways(plan, partial(_turned, line)), line.close)
    return InLine(way, delay, SideLine()) if delay else way


async def check(talk: Talk, plan: str) -> None:
    """Raise ``Refused`` where there is no such plan, or a secret of it is missing."""
    if plan:
        await talk.ask(Question(CrawlTurn(proxies=ProxyTurn(plan))))


def put_off(held: Held, given: Given, problem: PutOff, retries: int, ledger: Ledger, stats: Stats) -> None:
    """A site blocks the way, or has blocked all of them: again, by another way or later."""
    at, wait = steady(), min(problem.seconds, LONGEST_PAUSE_SECONDS)
    held.saved = False
    stats.problems += 1
    ledger.settled += 1
    if wait:
        held.manners.block(at + seconds(wait))
        outcome = Outcome(given.key, QUEUED, problem.kind, 0, held.manners.due(), given.tries)
    elif given.tries >= retries:
        outcome = Outcome(given.key, FAILED, problem.kind, tries=given.tries + 1, fetched_at=at)
    else:
        stats.retries += 1
        outcome = Outcome(given.key, QUEUED, problem.kind, 0, held.manners.due(), given.tries + 1)
    held.outcomes.append(outcome)


async def _turned(line: SideLine, turn: ProxyTurn) -> ProxyTurned:
    try:
        answer = await line.ask(Question(CrawlTurn(proxies=turn)))
    except Refused as problem:  # somebody has deleted the plan meanwhile, or a secret of it
        raise PutOff("site_paused", str(problem), AGAIN_SECONDS) from problem
    if answer.turned is None or answer.turned.proxies is None:
        raise HungUp("the run is somebody else's by now")
    return answer.turned.proxies
