"""A run that does a partition of a crawl asks for work, through whichever way its worker speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import OpenApp, SetClock
from tests.runs.acting import Hand, submit
from tests.workers.far_away import Speaker, gateway
from weft.app import App
from weft.clock import SECOND
from weft.crawler.messages import CrawlTurn, CrawlTurnReply, Skip
from weft.crawler.politeness import HostState, read_state, write_state
from weft.crawler.robots import StoredRobots
from weft.crawler.steady_clock import clock_offset, shifted_reply
from weft.crawls import store
from weft.errors import LeaseLost
from weft.events import newest
from weft.fetching.urls import host_of, key_of
from weft.ports import DONE, FAILED, QUEUED, Found, HostLease, HostReport, Outcome, Turn, Turned
from weft.runs.model import Lease

SEEDS = ["http://one.example/", "http://two.example/"]
ALL = Turn(hosts=10)

Speak = Callable[[App], Awaitable[App]]


@pytest_asyncio.fixture(params=["direct", "remote"])
async def app(request: pytest.FixtureRequest, another_app: OpenApp) -> AsyncIterator[App]:
    """One whose workers speak the protocol as the parameter says."""
    async with AsyncExitStack() as stack:
        made = await another_app()
        if request.param == "remote":
            address = await stack.enter_async_context(gateway(made))
            speaker = await stack.enter_async_context(Speaker(made, address))
            made = replace(made, protocol=speaker)  # type: ignore[arg-type]
        yield made


async def leased(app: App, hand: Hand, task: str = "site", **spec: Any) -> Lease:
    await submit(app, kind="crawl", task=task, spec={"urls": SEEDS, "follow": True, **spec})
    return await hand.lease_one()


async def asked(app: App, hand: Hand, lease: Lease, turn: Turn = ALL, **more: Any) -> CrawlTurnReply:
    return await app.protocol.frontier(hand.id, lease.run_id, lease.attempt, CrawlTurn(turn, **more))


def done_with(given: HostLease, *, release: bool = True) -> HostReport:
    outcomes = [Outcome(each.key, DONE, status=200, fetched_at=1) for each in given.urls]
    return HostReport(given.host, given.fence, outcomes, release=release)


def failed_with(given: HostLease, reason: str) -> HostReport:
    outcomes = [Outcome(each.key, FAILED, reason, fetched_at=1) for each in given.urls]
    return HostReport(given.host, given.fence, outcomes, release=True)


async def test_the_first_turn_of_a_run_begins_its_crawl_and_gives_its_seeds(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    answer = await asked(app, hand, lease)
    assert sorted(url.url for host in answer.turned.leases for url in host.urls) == SEEDS
    crawl = await app.db.read(lambda tx: store.by_run(tx, lease.run_id))
    assert crawl is not None
    assert (crawl.id, crawl.state, crawl.seeded) == (answer.crawl, "active", True)
    assert (await app.datasets.get("shop", "pages")).key_fields == ("url",)


async def test_a_crawl_is_over_once_all_of_it_is_done_and_given_back(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    given = (await asked(app, hand, lease)).turned.leases
    page = "http://one.example/2"
    found = [Found(key_of(page), page, host_of(page), depth=1)]
    turn = Turn(found=found, reports=[done_with(each) for each in given], hosts=10)
    again = await asked(app, hand, lease, turn)
    assert (again.stop, [url.url for host in again.turned.leases for url in host.urls]) == ("", [page])
    last = await asked(app, hand, lease, Turn(reports=[done_with(again.turned.leases[0])], hosts=10))
    assert (last.stop, last.turned.leases) == ("done", [])
    kinds = [event.kind for event in await app.db.read(lambda tx: newest(tx, 100))]
    assert (kinds.count("crawl_started"), kinds.count("crawl_finished")) == (1, 1)


async def test_two_runs_that_name_a_crawl_partition_it(app: App) -> None:
    hand = await Hand.join(app)
    first = await leased(app, hand)
    begun = await asked(app, hand, first, Turn(hosts=1))
    second = await leased(app, hand, crawl=begun.crawl, urls=[])
    joined = await asked(app, hand, second)
    assert joined.crawl == begun.crawl
    hosts = [each.host for answer in (begun, joined) for each in answer.turned.leases]
    assert sorted(hosts) == ["one.example", "two.example"]


async def test_a_run_that_its_worker_does_not_hold_gets_nothing(app: App) -> None:
    hand, other = await Hand.join(app), await Hand.join(app, "other")
    lease = await leased(app, hand)
    with pytest.raises(LeaseLost):
        await asked(app, other, lease)
    with pytest.raises(LeaseLost):
        await app.protocol.frontier(hand.id, lease.run_id, lease.attempt + 1, CrawlTurn(ALL))


async def test_a_paused_crawl_takes_what_is_done_and_gives_nothing(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    answer = await asked(app, hand, lease, Turn(hosts=1))
    await app.db.transact(lambda tx: store.change_state(tx, answer.crawl, ["active"], "paused", "by ann", None))
    reports = [done_with(each) for each in answer.turned.leases]
    stopped = await asked(app, hand, lease, Turn(reports=reports, hosts=10))
    assert (stopped.stop, stopped.reason, stopped.turned.leases) == ("paused", "by ann", [])
    assert (await app.frontier.counts(answer.crawl)).done == 1


async def test_a_crawl_ends_when_its_time_is_used_up(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, budget={"seconds": 60})
    assert (await asked(app, hand, lease, Turn(hosts=1))).stop == ""
    clock.forward(61)
    late = await asked(app, hand, lease)
    assert (late.stop, late.turned.leases) == ("done", [])
    assert "60 s" in late.reason


async def test_a_crawl_of_so_many_pages_ends_with_them(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, budget={"pages": 1})
    given = (await asked(app, hand, lease)).turned.leases
    assert sum(len(each.urls) for each in given) == 1
    last = await asked(app, hand, lease, Turn(reports=[done_with(each) for each in given], hosts=10))
    assert (last.stop, last.reason) == ("done", "its budget of 1 pages is used up")


async def test_a_crawl_of_which_every_page_failed_says_so_to_all_who_do_it(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    given = (await asked(app, hand, lease)).turned.leases
    reports = [failed_with(each, "connect") for each in given]
    last = await asked(app, hand, lease, Turn(reports=reports, hosts=10))
    said = "no page was fetched: all 2 addresses on 2 hosts failed, because nobody answers at its address"
    assert (last.stop, last.failed, last.reason) == ("done", True, said)
    crawl = await app.db.read(lambda tx: store.by_run(tx, lease.run_id))
    assert crawl is not None
    assert (crawl.state, crawl.reason) == ("done", said)
    again = await asked(app, hand, lease)
    assert (again.stop, again.failed, again.reason) == ("done", True, said)


async def test_a_crawl_that_brought_one_page_has_not_failed(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    first, second = (await asked(app, hand, lease)).turned.leases
    last = await asked(app, hand, lease, Turn(reports=[done_with(first), failed_with(second, "status_500")], hosts=10))
    assert (last.stop, last.failed, last.reason) == ("done", False, "nothing is left")


async def test_pages_that_will_be_visited_again_are_not_taken_for_nothing(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, budget={"seconds": 60}, revisit={"policy": "fixed"})
    first, second = (await asked(app, hand, lease)).turned.leases
    later = [Outcome(each.key, QUEUED, status=200, fetched_at=1, next_at=2**60) for each in first.urls]
    reports = [HostReport(first.host, first.fence, later, release=True), failed_with(second, "status_404")]
    await asked(app, hand, lease, Turn(reports=reports))
    clock.forward(61)
    late = await asked(app, hand, lease)
    assert (late.stop, late.failed, late.reason) == ("done", False, "its time of 60 s is used up")


async def test_what_is_left_out_is_counted_by_its_reason(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    skip = Skip("scope", "three.example", "", "http://three.example/", 5)
    answer = await asked(app, hand, lease, skips=[skip])
    await asked(app, hand, lease, skips=[skip])
    query = store.skips.select().where(store.skips.c.crawl_id == answer.crawl)
    rows = await app.db.read(lambda tx: tx.rows(query))
    assert [(row.reason, row.host, row.count, row.example) for row in rows] == [
        ("scope", "three.example", 10, "http://three.example/")
    ]


async def test_what_is_left_out_counts_once_where_a_turn_is_told_again(app: App) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand)
    skip = Skip("scope", "three.example", "", "http://three.example/", 5)
    for number in (1, 1, 2, 1, 2):
        answer = await asked(app, hand, lease, skips=[skip], number=number)
    assert [(each.reason, each.count) for each in (await app.crawls.report(answer.crawl)).skips] == [("scope", 10)]
    assert [each.count for each in await app.crawls.skips(answer.crawl)] == [10]


async def test_what_a_crawl_discovers_feeds_another(app: App) -> None:
    hand = await Hand.join(app)
    taker = await leased(app, hand, "pages", tier="fetch", urls=[])
    began = await asked(app, hand, taker)
    assert (began.stop, began.turned.leases) == ("", [])
    finder = await leased(app, hand, "links", tier="discover", feeds="pages")
    await asked(app, hand, finder, Turn(), feed=["http://three.example/item"])
    fed = await asked(app, hand, taker)
    assert [url.url for host in fed.turned.leases for url in host.urls] == ["http://three.example/item"]


async def test_a_partition_that_has_nothing_to_do_is_made_known_to_the_others(app: App, clock: SetClock) -> None:
    hand = await Hand.join(app)
    first = await leased(app, hand)
    begun = await asked(app, hand, first)
    second = await leased(app, hand, crawl=begun.crawl, urls=[])
    hungry = await asked(app, hand, second, hungry=True)
    assert (hungry.turned.leases, hungry.others_hungry) == ([], False)
    assert (await asked(app, hand, first, Turn())).others_hungry
    clock.forward(5)
    assert not (await asked(app, hand, first, Turn())).others_hungry


AHEAD = 10 * 365 * 86_400 * SECOND


async def test_the_moments_of_a_process_on_another_clock_are_told_on_that_of_the_frontier(
    app: App, clock: SetClock
) -> None:
    hand = await Hand.join(app)
    lease = await leased(app, hand, urls=SEEDS[:1])
    began, theirs = clock(), clock() + AHEAD
    answer = await asked(app, hand, lease, at=theirs)
    (given,) = answer.turned.leases
    state = write_state(HostState(blocked_until=theirs + 60 * SECOND, robots={"o": StoredRobots(theirs, "none")}))
    outcomes = [Outcome(given.urls[0].key, QUEUED, next_at=theirs + 300 * SECOND)]
    reports = [HostReport(given.host, given.fence, outcomes, theirs + 30 * SECOND, state, release=True)]
    assert (await asked(app, hand, lease, Turn(reports=reports), at=theirs)).at == clock()
    (known,) = await app.frontier.hosts(answer.crawl)
    assert known.next_at == began + 30 * SECOND
    clock.forward(301)
    told = await asked(app, hand, lease, Turn(hosts=10))
    (again,) = told.turned.leases
    kept = read_state(again.state)
    assert (kept.blocked_until, kept.robots["o"].at) == (began + 60 * SECOND, began)
    assert [each.key for each in again.urls] == [given.urls[0].key]
    (there,) = shifted_reply(told.turned, clock_offset(told.at, clock() + AHEAD)).leases
    assert there.next_at == again.next_at + AHEAD
    assert read_state(there.state).blocked_until == theirs + 60 * SECOND


def test_clocks_that_differ_by_seconds_are_alike() -> None:
    turned = Turned(next_at=7)
    assert (clock_offset(0, AHEAD), clock_offset(AHEAD, AHEAD + 4 * SECOND), clock_offset(AHEAD, 0)) == (0, 0, -AHEAD)
    assert shifted_reply(turned, 0) is turned
