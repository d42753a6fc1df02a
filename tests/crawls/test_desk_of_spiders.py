"""Runs of a spider that ask for work: those that name the same frontier do one crawl."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from scrapy import Request
from scrapy.utils.request import fingerprint

from tests.conftest import SetClock
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.clock import SECOND
from weft.crawler.messages import CrawlTurn, CrawlTurnReply
from weft.crawler.politeness import LONGEST_SHARED_DELAY
from weft.crawls.project_scope import LONGEST_LEASE_SECONDS
from weft.ports import DONE, Found, HostReport, Outcome, Turn
from weft.runs.model import Lease, RunState

URL = "http://one.example/?b=2&a=1"
KEY = int.from_bytes(fingerprint(Request(URL))[:8], "big", signed=True)
PAGE = Found(KEY, URL, "one.example", data='{"callback":"parse_thing"}')
FIRST = Turn(found=[PAGE], hosts=5)
CLOSED = '{"robots": {"http://one.example": {"at": 1, "found": "rules", "text": "User-agent: *\\nDisallow: /"}}}'


async def leased(app: App, hand: Hand, task: str = "prices", **spec: Any) -> Lease:
    """A run of a spider, as if its code had been deployed."""
    await submit(app, kind="noop", task=task, spec=spec)
    lease = await hand.lease_one()
    await app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE runs SET kind = 'spider'"))
    return lease


async def asked(app: App, hand: Hand, lease: Lease, turn: Turn = FIRST, crawl: int = 0) -> CrawlTurnReply:
    return await app.protocol.frontier(hand.id, lease.run_id, lease.attempt, CrawlTurn(turn, crawl=crawl))


async def finished(app: App, hand: Hand, lease: Lease, answer: CrawlTurnReply) -> CrawlTurnReply:
    """Tell that all that was given is done."""
    outcomes = [Outcome(PAGE.key, DONE, status=200, fetched_at=1)]
    reports = [HostReport(each.host, each.fence, outcomes, release=True) for each in answer.turned.leases]
    return await asked(app, hand, lease, Turn(reports=reports, hosts=5), answer.crawl)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"frontier": True}, {"frontier": "prices"}),
        ({}, {"frontier": True}),
        ({"task": "morning", "frontier": "all"}, {"task": "evening", "frontier": "all"}),
    ],
)
async def test_runs_that_begin_at_once_do_one_crawl(app: App, one: dict[str, Any], other: dict[str, Any]) -> None:
    hand = await Hand.join(app)
    leases = [await leased(app, hand, **one), await leased(app, hand, **other)]
    answers = await asyncio.gather(*(asked(app, hand, lease) for lease in leases))

    assert answers[0].crawl == answers[1].crawl
    given = [url for answer in answers for host in answer.turned.leases for url in host.urls]
    assert [(url.url, url.data) for url in given] == [(PAGE.url, PAGE.data)]


async def test_runs_of_other_tasks_do_crawls_of_their_own(app: App) -> None:
    hand = await Hand.join(app)
    leases = [await leased(app, hand, task, frontier=True) for task in ("prices", "stock")]
    assert len({(await asked(app, hand, lease)).crawl for lease in leases}) == 2


async def test_a_spider_joins_no_crawl_of_a_site_that_has_its_name(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, frontier=True)
    spec = {"urls": ["http://one.example/"], "fetching": {"contact": "us@weft.example"}}
    site = await app.crawls.create("shop", spec, name="prices")
    assert (await asked(app, hand, lease)).crawl != site.id


async def test_a_run_stays_with_its_crawl_when_that_is_over_and_the_next_begins_anew(app: App) -> None:
    hand = await Hand.join(app)
    first, second = await leased(app, hand, frontier=True), await leased(app, hand, frontier=True)
    begun, joined = await asked(app, hand, first), await asked(app, hand, second)
    last = await finished(app, hand, first, begun)
    late = await asked(app, hand, second, Turn(hosts=5), joined.crawl)
    third = await leased(app, hand, frontier=True)

    assert (last.stop, late.stop, late.crawl) == ("done", "done", begun.crawl)
    assert (await asked(app, hand, third)).crawl != begun.crawl


async def test_a_run_that_comes_to_a_paused_crawl_is_told_so(app: App) -> None:
    hand = await Hand.join(app)
    begun = await asked(app, hand, await leased(app, hand, frontier=True))
    await app.crawls.pause(begun.crawl)
    late = await asked(app, hand, await leased(app, hand, frontier=True))

    assert (late.crawl, late.stop, late.turned.leases) == (begun.crawl, "paused", [])


async def test_it_is_told_why_a_page_of_a_spider_is_not_there(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, frontier=True)
    begun = await asked(app, hand, lease)
    before = await app.crawls.why(begun.crawl, URL)
    await finished(app, hand, lease, begun)

    assert before.sentence.startswith("it is about to be fetched")
    assert (await app.crawls.why(begun.crawl, "http://one.example/?a=1&b=2")).sentence.startswith("it was crawled")
    never = await app.crawls.why(begun.crawl, "http://one.example/never")
    assert never.sentence == "no page that was fetched made the spider ask for it"


@pytest.mark.parametrize("change", ["stop", "pause"])
async def test_a_run_that_was_paused_by_itself_is_cancelled_with_its_crawl(app: App, change: str) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, frontier=True)
    crawl = (await asked(app, hand, lease)).crawl
    await app.pauses.pause(lease.run_id)
    await hand.end_all([lease], "released")
    assert (await app.runs.get(lease.run_id)).state is RunState.PAUSED

    await (app.crawls.stop(crawl) if change == "stop" else app.crawls.pause(crawl))
    run = await app.runs.get(lease.run_id)
    assert (run.state, run.outcome) == (RunState.CANCELLED, "cancelled")
    assert run.reason == f"crawl {crawl} is {'stopped' if change == 'stop' else 'paused'}"


async def test_a_run_that_is_asked_to_pause_is_not_held_back_once_its_crawl_is_stopped(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, frontier=True)
    crawl = (await asked(app, hand, lease)).crawl
    await app.pauses.pause(lease.run_id)
    await app.crawls.stop(crawl)
    assert (await hand.beat()).pause == ()
    await hand.end_all([lease], "released")  # its worker had been asked already
    assert (await app.runs.get(lease.run_id)).state is RunState.QUEUED
    again = await hand.lease_one()
    assert (await asked(app, hand, again)).stop == "stopped"


async def test_a_spider_keeps_a_host_from_its_own_crawl_for_long_and_from_others_for_a_moment(
    app: App, clock: SetClock
) -> None:
    hand = await Hand.join(app)
    mine = await leased(app, hand, "prices", frontier=True)
    held = (await asked(app, hand, mine)).turned.leases[0]
    report = HostReport(held.host, held.fence, next_at=clock.now + 86_400 * SECOND, state=CLOSED, release=True)
    await asked(app, hand, mine, Turn(reports=[report], lease_seconds=1e9))
    theirs = await leased(app, hand, "stock", frontier=True)
    await asked(app, hand, theirs)
    clock.forward(LONGEST_SHARED_DELAY / SECOND + 1)
    again = await asked(app, hand, theirs, Turn(hosts=5))
    assert [each.host for each in again.turned.leases] == [held.host]
    assert [each.state for each in again.turned.leases] == [""]
    assert (await asked(app, hand, mine, Turn(hosts=5))).turned.leases == []


async def test_a_spider_holds_a_host_for_minutes_at_most_without_saying_so_again(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    await asked(app, hand, await leased(app, hand, "prices", frontier=True), replace(FIRST, lease_seconds=1e9))
    theirs = await leased(app, hand, "stock", frontier=True)
    assert not (await asked(app, hand, theirs)).turned.leases
    clock.forward(LONGEST_LEASE_SECONDS + 1)
    assert (await asked(app, hand, theirs, Turn(hosts=5))).turned.leases
