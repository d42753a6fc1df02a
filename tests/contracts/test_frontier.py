"""What every frontier promises: an address is known once, a host is held by one, and nothing is lost or given twice.

The kinds are in ``frontiers.py``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import SetClock
from tests.contracts.frontiers import KINDS, Place
from weft.clock import SECOND, seconds
from weft.errors import FrontierDown, FrontierLost, Invalid
from weft.fetching.urls import key_of
from weft.ports import (
    DONE,
    FAILED,
    LEASED,
    QUEUED,
    SKIPPED,
    Counts,
    Found,
    Frontier,
    HostLease,
    HostReport,
    Limits,
    Outcome,
    Turn,
    Turned,
)

CRAWL, OTHER = 1, 2
LEASE = 60.0


@pytest_asyncio.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, clock: SetClock) -> AsyncIterator[Place]:
    async with KINDS[request.param](request, clock) as place:
        yield place


@pytest_asyncio.fixture
async def frontier(place: Place) -> AsyncIterator[Frontier]:
    frontier = place.opened()
    await frontier.open(CRAWL, Limits())
    await frontier.open(OTHER, Limits())
    yield frontier
    await frontier.close()


def found(path: str, host: str = "a.example", **known: Any) -> Found:
    url = f"http://{host}/{path}"
    return Found(key_of(url), url, host, **known)


def numbered(count: int, host: str = "a.example", **known: Any) -> list[Found]:
    return [found(f"{number:04d}", host, **known) for number in range(count)]


async def add(frontier: Frontier, *urls: Found, crawl: int = CRAWL) -> int:
    return (await frontier.turn(crawl, "finder", Turn(found=list(urls)))).new


async def ask(
    frontier: Frontier, hosts: int = 1, urls: int = 50, *, crawl: int = CRAWL, holder: str = "one"
) -> list[HostLease]:
    turn = Turn(hosts=hosts, urls_per_host=urls, lease_seconds=LEASE)
    return (await frontier.turn(crawl, holder, turn)).leases


async def lease(frontier: Frontier, urls: int = 50, *, crawl: int = CRAWL, holder: str = "one") -> HostLease:
    (only,) = await ask(frontier, 1, urls, crawl=crawl, holder=holder)
    return only


async def tell(frontier: Frontier, held: HostLease, *outcomes: Outcome, crawl: int = CRAWL, **more: Any) -> Turned:
    report = HostReport(held.host, held.fence, list(outcomes), **more)
    return await frontier.turn(crawl, "one", Turn(reports=[report], lease_seconds=LEASE))


async def release(frontier: Frontier, held: HostLease, *outcomes: Outcome, crawl: int = CRAWL, **more: Any) -> bool:
    turned = await tell(frontier, held, *outcomes, crawl=crawl, release=True, **more)
    return turned.kept[0].held


def done(key: int, **more: Any) -> Outcome:
    return Outcome(key, DONE, status=200, **{"fetched_at": 1} | more)


def keys(held: HostLease) -> list[int]:
    return [each.key for each in held.urls]


def paths(held: HostLease) -> list[str]:
    return [each.url.rsplit("/", 1)[1] for each in held.urls]


async def test_an_address_is_new_once(frontier: Frontier) -> None:
    assert await add(frontier, found("x"), found("y"), found("x")) == 2
    assert await add(frontier, found("y"), found("z")) == 1
    held = await lease(frontier)
    await release(frontier, held, *map(done, keys(held)))
    assert await add(frontier, found("x"), found("z")) == 0
    assert await frontier.counts(CRAWL) == Counts(done=3, hosts=1)


async def test_an_address_that_is_found_twice_at_once_is_as_it_was_found_first(frontier: Frontier) -> None:
    assert await add(frontier, found("x", depth=1, data="first"), found("y"), found("x", depth=2, data="second")) == 2
    held = await lease(frontier)
    assert [(each.url[-1], each.depth, each.data) for each in held.urls] == [("x", 1, "first"), ("y", 0, "")]


async def test_very_many_addresses_may_be_found_at_once(place: Place, frontier: Frontier) -> None:
    count, hosts = (300, 3) if place.is_slow else (6_000, 150)
    many = [found(f"{number}", f"h{number % hosts}.example") for number in range(count)]
    assert await add(frontier, *many) == count
    assert await add(frontier, *many) == 0
    assert await frontier.counts(CRAWL) == Counts(queued=count, hosts=hosts)


async def test_crawls_know_nothing_of_each_others_addresses(frontier: Frontier) -> None:
    await add(frontier, found("x"), crawl=CRAWL)
    assert await add(frontier, found("x"), crawl=OTHER) == 1
    assert (await frontier.counts(OTHER)).queued == 1


async def test_what_was_found_comes_back_with_its_address(frontier: Frontier) -> None:
    text = '{"body": "naïve 🕸 \\u0000 \' \\" %s :x"}'
    await add(frontier, found("x", depth=3, priority=-7, found_on=12, data=text))
    (given,) = (await lease(frontier)).urls
    assert (given.url, given.depth, given.priority, given.data) == ("http://a.example/x", 3, -7, text)
    assert (given.tries, given.etag, given.digest, given.interval) == (0, "", "", 0.0)


async def test_a_higher_priority_comes_first_and_among_equals_the_older(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, found("old"), found("old too"), found("low", priority=-1000))
    clock.forward(1)
    await add(frontier, found("young"), found("high", priority=1000), found("some", priority=1))
    assert paths(await lease(frontier)) == ["high", "some", "old", "old too", "young", "low"]


async def test_as_many_are_given_as_are_asked_for_and_the_rest_when_the_host_is_kept(frontier: Frontier) -> None:
    await add(frontier, *numbered(10))
    held = await lease(frontier, urls=4)
    assert paths(held) == ["0000", "0001", "0002", "0003"]
    turned = await tell(frontier, held, done(held.urls[1].key), want=3)
    assert [each.url[-4:] for each in turned.kept[0].urls] == ["0004", "0005", "0006"]
    turned = await tell(frontier, held, want=50)
    assert [each.url[-4:] for each in turned.kept[0].urls] == ["0007", "0008", "0009"]
    assert await frontier.counts(CRAWL) == Counts(leased=9, done=1, hosts=1)


async def test_what_is_found_while_a_host_is_held_comes_in_its_place(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(8))
    held = await lease(frontier, 4)
    clock.forward(1)
    await add(frontier, found("high", priority=3), found("low", priority=-3))
    seen = []
    for _ in range(7):
        seen += [each.url.rsplit("/", 1)[1] for each in (await tell(frontier, held, want=1)).kept[0].urls]
    assert seen == ["high", "0004", "0005", "0006", "0007", "low"]


async def test_addresses_that_were_found_in_one_moment_are_each_given_once(frontier: Frontier) -> None:
    """The clock stands still, so that many stand at one place in line."""
    for number in range(14):
        await add(frontier, found(f"{number:02d}"))
    held = await lease(frontier, 5)
    seen = paths(held)
    back = Outcome(held.urls[2].key, QUEUED)
    for outcomes in ((), (back,), (), (), ()):
        seen += [each.url[-2:] for each in (await tell(frontier, held, *outcomes, want=3)).kept[0].urls]
    assert sorted(seen) == sorted([f"{number:02d}" for number in range(14)] + [paths(held)[2]])


async def test_an_address_is_not_given_before_its_time(frontier: Frontier, clock: SetClock) -> None:
    then = clock.now + 10 * SECOND
    await add(frontier, found("later", not_before=then, priority=9), found("even later", not_before=then + 5 * SECOND))
    turned = await frontier.turn(CRAWL, "one", Turn(hosts=1))
    assert (turned.leases, turned.next_at) == ([], then)
    clock.now = then
    held = await lease(frontier)
    assert paths(held) == ["later"]
    await release(frontier, held, done(held.urls[0].key))
    assert (await frontier.turn(CRAWL, "one", Turn(hosts=1))).next_at == then + 5 * SECOND


async def test_addresses_for_later_do_not_block_others_of_their_host(frontier: Frontier, clock: SetClock) -> None:
    then = clock.now + 100 * SECOND
    await add(frontier, *[found(f"late{n}", priority=5, not_before=then) for n in range(20)], *numbered(3))
    held = await lease(frontier, urls=2)
    assert paths(held) == ["0000", "0001"]
    back = Outcome(held.urls[0].key, QUEUED, "timeout", next_at=clock.now + 5 * SECOND, tries=1)
    turned = await tell(frontier, held, back, done(held.urls[1].key), want=9)
    assert [each.url[-4:] for each in turned.kept[0].urls] == ["0002"]
    clock.forward(5)
    turned = await tell(frontier, held, want=9)
    assert [(each.url[-4:], each.tries) for each in turned.kept[0].urls] == [("0000", 1)]
    assert (await frontier.counts(CRAWL)).queued == 20


async def test_a_host_is_held_by_one(place: Place, frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(10), found("x", "b.example"))
    elsewhere = place.opened()
    first, second = await lease(frontier, 2), await lease(elsewhere, holder="two")
    assert {first.host, second.host} == {"a.example", "b.example"}
    turned = await elsewhere.turn(CRAWL, "two", Turn(hosts=5))
    assert turned.leases == []
    assert turned.next_at == clock.now + seconds(LEASE)
    await elsewhere.close()


async def test_hosts_that_were_due_longest_come_first(frontier: Frontier, clock: SetClock) -> None:
    due_after = {"a.example": 3, "b.example": 2, "c.example": 1}
    await add(frontier, *(found("x", name) for name in due_after))
    for held in await ask(frontier, 3):
        await release(frontier, held, next_at=clock.now + seconds(due_after[held.host]))
    clock.forward(10)
    assert [each.host for each in await ask(frontier, 2)] == ["c.example", "b.example"]


async def test_finding_more_on_hosts_does_not_change_who_waits_longest(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, found("known", "young.example"), crawl=OTHER)
    await add(frontier, found("x", "old.example"))
    clock.forward(1)
    more = [found("y", "young.example"), found("y", "old.example")]
    turned = await frontier.turn(CRAWL, "one", Turn(found=more, hosts=1))
    assert [(each.host, paths(each)) for each in turned.leases] == [("old.example", ["x", "y"])]


async def test_a_host_that_was_released_stands_behind_those_that_wait(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *(one for name in "abc" for one in numbered(5, f"{name}.example")))
    seen = []
    for _ in range(6):
        clock.forward(1)
        held = await lease(frontier, 1)
        seen.append(held.host)
        turned = await frontier.turn(CRAWL, "one", Turn(reports=[HostReport(held.host, held.fence, release=True)]))
        assert turned.kept[0].held
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3


async def test_a_host_may_be_released_and_leased_in_one_turn(frontier: Frontier) -> None:
    await add(frontier, *numbered(5))
    held = await lease(frontier, 2)
    report = HostReport(held.host, held.fence, [done(held.urls[0].key)], release=True)
    turned = await frontier.turn(CRAWL, "one", Turn(reports=[report], hosts=1, urls_per_host=2))
    assert (turned.kept[0].held, turned.kept[0].urls) == (True, [])
    assert paths(turned.leases[0]) == ["0001", "0002"]
    assert turned.leases[0].fence > held.fence


async def test_nobody_gets_a_host_before_its_next_time_whatever_the_crawl(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(2))
    await add(frontier, *numbered(2), crawl=OTHER)
    held = await lease(frontier, 1)
    then = clock.now + 30 * SECOND
    await release(frontier, held, done(held.urls[0].key), next_at=then, state='{"delay": 30}')
    for crawl in (CRAWL, OTHER):
        turned = await frontier.turn(crawl, "one", Turn(hosts=1))
        assert (turned.leases, turned.next_at) == ([], then)
    clock.now = then
    held = await lease(frontier, crawl=OTHER)
    assert (held.state, held.unclean) == ('{"delay": 30}', False)


async def test_two_crawls_of_one_host_take_turns(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(100))
    await add(frontier, *numbered(100), crawl=OTHER)
    crawls, held = [CRAWL], await lease(frontier, 5)
    for _ in range(4):
        mine, theirs = crawls[-1], CRAWL + OTHER - crawls[-1]
        clock.forward(10)
        assert await ask(frontier, crawl=theirs) == []
        turned = await tell(frontier, held, *map(done, keys(held)), want=5, crawl=mine)
        assert turned.kept[0].held
        assert turned.kept[0].urls == []
        await release(frontier, held, crawl=mine)
        assert await ask(frontier, crawl=mine) == []
        held = await lease(frontier, 5, crawl=theirs)
        assert not held.unclean
        crawls.append(theirs)
    assert crawls == [CRAWL, OTHER, CRAWL, OTHER, CRAWL]


async def test_a_host_that_is_wanted_and_not_fetched_goes_back(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(10))
    await add(frontier, *numbered(10), crawl=OTHER)
    held = await lease(frontier, 5)
    assert await ask(frontier, crawl=OTHER) == []
    await release(frontier, held)
    clock.forward(300)
    assert (await lease(frontier)).host == held.host


async def test_a_lease_that_ran_out_is_given_again_as_unclean_under_a_higher_fence(
    frontier: Frontier, clock: SetClock
) -> None:
    await add(frontier, *numbered(5))
    old = await lease(frontier, 3)
    await tell(frontier, old, done(old.urls[0].key), state="told", next_at=7)
    clock.forward(LEASE - 1)
    assert await ask(frontier, holder="two") == []
    clock.forward(1)
    new = await lease(frontier, 50, holder="two")
    assert new.fence > old.fence
    assert new.unclean
    assert (new.state, new.next_at) == ("told", 7)
    assert paths(new) == ["0001", "0002", "0003", "0004"]
    assert await frontier.counts(CRAWL) == Counts(leased=4, done=1, hosts=1)


async def test_each_report_keeps_the_host_for_another_while(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(5))
    held = await lease(frontier, 3)
    for _ in range(3):
        clock.forward(LEASE - 1)
        assert (await tell(frontier, held)).kept[0].held
    assert await ask(frontier, holder="two") == []


async def test_a_holder_that_is_late_and_alone_still_holds(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(5))
    held = await lease(frontier, 3)
    clock.forward(LEASE * 3)
    assert (await tell(frontier, held, done(held.urls[0].key))).kept[0].held
    assert await ask(frontier, holder="two") == []


async def test_what_a_late_holder_tells_changes_nothing(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(5))
    old = await lease(frontier, 3)
    clock.forward(LEASE + 1)
    new = await lease(frontier, 3, holder="two")
    before = await everything(frontier)
    late = [Outcome(key, FAILED, "late", status=500) for key in keys(old)]
    turned = await tell(frontier, old, *late, state="late", next_at=clock.now * 2, want=10)
    assert (turned.kept[0].held, turned.kept[0].urls) == (False, [])
    assert not await release(frontier, old, *late)
    assert await everything(frontier) == before
    assert (await tell(frontier, new)).kept[0].held


async def test_what_was_released_comes_back_clean_with_all_that_was_not_told(frontier: Frontier) -> None:
    await add(frontier, *numbered(4))
    old = await lease(frontier, 3)
    assert await release(frontier, old, done(old.urls[1].key))
    assert await frontier.counts(CRAWL) == Counts(queued=3, done=1, hosts=1)
    new = await lease(frontier)
    assert not new.unclean
    assert new.fence > old.fence
    assert paths(new) == ["0000", "0002", "0003"]


async def test_a_report_that_comes_twice_does_no_harm(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, *numbered(4))
    held = await lease(frontier, 3)
    later = Outcome(held.urls[1].key, QUEUED, "timeout", next_at=clock.now + SECOND, tries=1, size=10)
    outcomes = [done(held.urls[0].key, size=10), later]
    report = HostReport(held.host, held.fence, outcomes, want=1)
    turn = Turn(found=[found("new")], reports=[report])
    assert (await frontier.turn(CRAWL, "one", turn)).new == 1
    before = await frontier.counts(CRAWL)
    assert before == Counts(queued=2, leased=2, done=1, hosts=1, size=20)
    again = await frontier.turn(CRAWL, "one", Turn(found=turn.found, reports=[HostReport(*report_of(report, want=0))]))
    assert again.new == 0
    assert again.kept[0].held
    assert await frontier.counts(CRAWL) == before
    assert await release(frontier, held, *outcomes)
    whole = await everything(frontier)
    assert not await release(frontier, held, *outcomes)
    assert await everything(frontier) == whole


async def test_a_host_whose_lease_was_lost_on_the_way_comes_back_when_it_ends(
    frontier: Frontier, clock: SetClock
) -> None:
    await add(frontier, *numbered(4))
    lost = await lease(frontier)
    assert await ask(frontier) == []
    clock.forward(LEASE)
    again = await lease(frontier)
    assert keys(again) == keys(lost)
    assert again.unclean


async def test_an_outcome_of_an_address_that_was_not_given_is_not_taken(frontier: Frontier) -> None:
    await add(frontier, *numbered(3))
    held = await lease(frontier, 1)
    not_given, unknown = numbered(3)[2].key, found("nowhere").key
    assert (await tell(frontier, held, done(not_given), done(unknown))).kept[0].held
    assert await frontier.counts(CRAWL) == Counts(queued=2, leased=1, hosts=1)


async def test_an_address_that_is_put_back_for_now_is_given_again(frontier: Frontier) -> None:
    await add(frontier, *numbered(2))
    held = await lease(frontier)
    back = [Outcome(key, QUEUED, tries=2) for key in keys(held)]
    turned = await tell(frontier, held, *back, want=5)
    assert [(each.key, each.tries) for each in turned.kept[0].urls] == [(key, 2) for key in keys(held)]


async def test_what_is_known_of_the_content_comes_with_the_next_visit(frontier: Frontier, clock: SetClock) -> None:
    await add(frontier, found("x"))
    held = await lease(frontier)
    then = clock.now + 60 * SECOND
    told: dict[str, Any] = {"etag": 'W/"1"', "last_modified": "Mon", "digest": "d" * 64, "interval": 60.5, "size": 7}
    fetched = Outcome(held.urls[0].key, QUEUED, "revisit", 200, then, fetched_at=5, **told)
    await release(frontier, held, fetched)
    clock.now = then
    held = await lease(frontier)
    given = held.urls[0]
    assert (given.etag, given.last_modified, given.digest, given.interval) == ('W/"1"', "Mon", "d" * 64, 60.5)
    await release(frontier, held, Outcome(given.key, QUEUED, "timeout", next_at=then + 1, tries=1))
    known = await frontier.look(CRAWL, given.key)
    assert known is not None
    assert (known.digest, known.fetched_at, known.reason, known.tries) == ("d" * 64, 5, "timeout", 1)
    clock.forward(1)
    assert (await lease(frontier)).urls[0].etag == 'W/"1"'


async def test_counts_add_up(frontier: Frontier) -> None:
    await add(frontier, *numbered(6), *numbered(2, "b.example"))
    a = next(each for each in await ask(frontier, 2, 5) if each.host == "a.example")
    states = [DONE, FAILED, SKIPPED, QUEUED]
    turned = await tell(
        frontier, a, *[Outcome(key, state, size=3) for key, state in zip(keys(a), states, strict=False)]
    )
    assert turned.kept[0].held
    wanted = Counts(queued=2, leased=3, done=1, failed=1, skipped=1, hosts=2, size=12)
    assert await frontier.counts(CRAWL) == wanted
    of_hosts = {each.host: each.counts for each in await frontier.hosts(CRAWL)}
    assert of_hosts["a.example"] == Counts(queued=2, leased=1, done=1, failed=1, skipped=1, hosts=1, size=12)
    assert of_hosts["b.example"] == Counts(leased=2, hosts=1)


async def test_it_says_when_nothing_is_left_and_not_before(frontier: Frontier, clock: SetClock) -> None:
    assert (await frontier.turn(CRAWL, "one", Turn(hosts=1))).next_at is None
    await add(frontier, *numbered(2))
    held = await lease(frontier)
    assert (await frontier.turn(CRAWL, "two", Turn(hosts=1))).next_at == clock.now + seconds(LEASE)
    assert (await tell(frontier, held, done(held.urls[0].key))).next_at == clock.now + seconds(LEASE)
    assert (await tell(frontier, held, done(held.urls[1].key))).next_at is None
    assert await release(frontier, held)
    assert (await frontier.turn(CRAWL, "two", Turn(hosts=1))).next_at is None


async def test_what_one_turn_finds_it_may_give_as_well(frontier: Frontier) -> None:
    turned = await frontier.turn(CRAWL, "one", Turn(found=numbered(3), hosts=1))
    assert paths(turned.leases[0]) == ["0000", "0001", "0002"]


async def test_no_more_pages_are_given_than_a_crawl_may_have(place: Place, frontier: Frontier, clock: SetClock) -> None:
    await frontier.open(CRAWL, Limits(pages=25))
    await add(frontier, *(one for n in range(5) for one in numbered(20, f"{n}.example")))
    elsewhere = [place.opened() for _ in range(3)]
    leased = [held for some in await asyncio.gather(*(ask(each, 2, 7) for each in elsewhere)) for held in some]
    leased += await ask(frontier, 9, 50)
    assert sum(len(each.urls) for each in leased) == 25
    turned = await frontier.turn(CRAWL, "two", Turn(hosts=9))
    assert turned.leases == []
    assert turned.next_at == clock.now + seconds(LEASE)
    first, *rest = leased
    assert len(first.urls) > 1
    back = [Outcome(key, FAILED if number else SKIPPED, "robots") for number, key in enumerate(keys(first))]
    await release(frontier, first, *back)
    again = await ask(frontier, 9)
    assert sum(len(each.urls) for each in again) == len(back)
    for held in rest + again:
        assert await release(frontier, held, *map(done, keys(held)))
    turned = await frontier.turn(CRAWL, "two", Turn(hosts=9))
    assert (turned.leases, turned.next_at) == ([], None)
    assert (await frontier.counts(CRAWL)).done == 25
    for each in elsewhere:
        await each.close()


async def test_what_a_holder_that_died_was_given_does_not_count(frontier: Frontier, clock: SetClock) -> None:
    await frontier.open(CRAWL, Limits(pages=3, pages_per_host=3))
    await add(frontier, *numbered(5), *numbered(5, "b.example"))
    assert len((await lease(frontier)).urls) == 3
    clock.forward(LEASE)
    assert sum(len(each.urls) for each in await ask(frontier, 5)) == 3


async def test_no_more_pages_of_a_host_are_given_than_it_may_have(frontier: Frontier, clock: SetClock) -> None:
    await frontier.open(CRAWL, Limits(pages_per_host=3))
    await add(frontier, *numbered(5), *numbered(2, "b.example"))
    a, b = sorted(await ask(frontier, 5, 2), key=lambda each: each.host)
    turned = await tell(frontier, a, done(a.urls[0].key), Outcome(a.urls[1].key, QUEUED), want=50)
    assert len(turned.kept[0].urls) == 2
    outcomes = [done(each.key) for each in turned.kept[0].urls]
    assert await release(frontier, a, *outcomes)
    assert await release(frontier, b, *map(done, keys(b)))
    turned = await frontier.turn(CRAWL, "one", Turn(hosts=5))
    assert (turned.leases, turned.next_at) == ([], None)
    assert await frontier.counts(CRAWL) == Counts(queued=2, done=5, hosts=2)
    await frontier.open(CRAWL, Limits(pages_per_host=4))
    assert len((await lease(frontier)).urls) == 1


async def test_opening_again_changes_nothing_but_the_limits(frontier: Frontier) -> None:
    await frontier.open(CRAWL, Limits(pages=2))
    await add(frontier, *numbered(5))
    held = await lease(frontier)
    await release(frontier, held, done(held.urls[0].key), done(held.urls[1].key))
    await frontier.open(CRAWL, Limits(pages=2))
    assert await ask(frontier) == []
    await frontier.open(CRAWL, Limits(pages=3))
    assert len((await lease(frontier)).urls) == 1


@pytest.mark.parametrize("state", [FAILED, SKIPPED])
async def test_addresses_of_a_state_can_be_put_back_in_line(frontier: Frontier, state: str) -> None:
    await add(frontier, *numbered(5), *numbered(1, "b.example"))
    for held in await ask(frontier, 2):
        outcomes = [Outcome(key, state, "gone", 410, tries=3) for key in keys(held)[:3]]
        await release(frontier, held, *outcomes, *map(done, keys(held)[3:]))
    assert await frontier.requeue(CRAWL, state) == 4
    assert await frontier.requeue(CRAWL, state) == 0
    assert await frontier.counts(CRAWL) == Counts(queued=4, done=2, hosts=2)
    again = {each.host: each for each in await ask(frontier, 2)}
    assert sorted(paths(again["a.example"])) == ["0000", "0001", "0002"]
    assert {each.tries for each in again["a.example"].urls} == {0}


@pytest.mark.parametrize("state", [DONE, LEASED, QUEUED, "lost"])
async def test_only_what_failed_or_was_skipped_can_be_put_back(frontier: Frontier, state: str) -> None:
    with pytest.raises(Invalid, match=state):
        await frontier.requeue(CRAWL, state)


async def test_a_crawl_that_is_forgotten_leaves_only_the_politeness_of_its_hosts(frontier: Frontier) -> None:
    await add(frontier, *numbered(5))
    await add(frontier, *numbered(3), crawl=OTHER)
    held = await lease(frontier)
    await release(frontier, held, *map(done, keys(held)), state="polite")
    await frontier.forget(CRAWL)
    assert await frontier.counts(CRAWL) == Counts()
    assert (await frontier.urls(CRAWL), await frontier.hosts(CRAWL)) == ([], [])
    assert await frontier.look(CRAWL, keys(held)[0]) is None
    with suppress(FrontierLost):  # that is what some say of a crawl that they do not know
        assert await ask(frontier) == []
    assert (await frontier.counts(OTHER)).queued == 3
    again = await lease(frontier, crawl=OTHER)
    assert again.state == "polite"
    assert again.fence > held.fence


async def test_everything_that_is_known_of_an_address_can_be_looked_at(frontier: Frontier, clock: SetClock) -> None:
    one = found("x", depth=2, priority=4, found_on=99)
    await add(frontier, one)
    known = await frontier.look(CRAWL, one.key)
    assert known is not None
    assert (known.url, known.host, known.state, known.depth) == (one.url, "a.example", QUEUED, 2)
    assert (known.priority, known.found_on) == (4, 99)
    held = await lease(frontier)
    known = await frontier.look(CRAWL, one.key)
    assert known is not None
    assert known.state == LEASED
    await release(frontier, held, Outcome(one.key, FAILED, "http", 404, tries=2, fetched_at=clock.now))
    known = await frontier.look(CRAWL, one.key)
    assert known is not None
    assert (known.state, known.reason, known.status, known.tries) == (FAILED, "http", 404, 2)
    assert known.fetched_at == clock.now
    assert await frontier.look(CRAWL, 12345) is None


async def test_addresses_are_listed_in_pages_by_state_and_host(frontier: Frontier) -> None:
    every = numbered(7) + numbered(6, "b.example")
    await add(frontier, *every)
    held = await lease(frontier, 4)
    outcomes = [done(held.urls[0].key), *(Outcome(key, FAILED, "http") for key in keys(held)[1:3])]
    await tell(frontier, held, *outcomes)
    assert await pages(frontier) == sorted(one.key for one in every)
    assert await pages(frontier, host="b.example") == sorted(one.key for one in every if one.host == "b.example")
    assert await pages(frontier, DONE) == keys(held)[:1]
    assert await pages(frontier, FAILED) == sorted(keys(held)[1:3])
    assert await pages(frontier, LEASED) == keys(held)[3:]
    assert await pages(frontier, SKIPPED) == []
    assert len(await pages(frontier, QUEUED)) == 9
    assert len(await pages(frontier, QUEUED, held.host)) == len(numbered(7 if held.host == "a.example" else 6)) - 4


async def pages(frontier: Frontier, state: str = "", host: str = "") -> list[int]:
    """The keys of all, asked for by twos."""
    seen: list[int] = []
    while some := await frontier.urls(CRAWL, state, host, seen[-1] if seen else None, 2):
        assert len(some) <= 2
        assert all(each.state == state or not state for each in some)
        seen += [each.key for each in some]
    return seen


async def test_hosts_are_listed_in_pages(frontier: Frontier, clock: SetClock) -> None:
    names = [f"{letter}.example" for letter in "dacbe"]
    await add(frontier, *(found("x", name) for name in names))
    held = await lease(frontier)
    await tell(frontier, held, state="polite", next_at=7)
    seen: list[str] = []
    while some := await frontier.hosts(CRAWL, seen[-1] if seen else "", 2):
        seen += [each.host for each in some]
        for each in some:
            if each.host == held.host:
                assert (each.state, each.next_at, each.holder) == ("polite", 7, "one")
                assert each.leased_until == clock.now + seconds(LEASE)
    assert seen == sorted(names)


async def test_holders_side_by_side_are_never_given_the_same(place: Place, frontier: Frontier) -> None:
    """Several who take, tell and find at once: every host is held by one, every address is given once."""
    await frontier.open(CRAWL, Limits())
    hosts, each, holders = (5, 6, 3) if place.is_slow else (12, 10, 8)
    names = [f"h{number}.example" for number in range(hosts)]
    await add(frontier, *(one for name in names for one in numbered(each, name)))
    holding: dict[str, str] = {}
    given: Counter[int] = Counter()

    async def hold(number: int) -> None:
        mine, holder = place.opened(), f"holder {number}"
        while True:
            turned = await mine.turn(CRAWL, holder, Turn(hosts=2, urls_per_host=3))
            if turned.next_at is None and not turned.leases:
                break
            for held in turned.leases:
                assert holding.setdefault(held.host, holder) == holder
            for held in turned.leases:
                given.update(keys(held))
                more = [found(f"more/{key % 7}", name) for key in keys(held) for name in names[:3]]
                del holding[held.host]
                report = HostReport(held.host, held.fence, [done(key) for key in keys(held)], release=True)
                (kept,) = (await mine.turn(CRAWL, holder, Turn(found=more, reports=[report]))).kept
                assert kept.held
        await mine.close()

    async with asyncio.TaskGroup() as group:
        for number in range(holders):
            group.create_task(hold(number))
    assert set(given.values()) == {1}
    assert await frontier.counts(CRAWL) == Counts(done=hosts * each + 3 * 7, hosts=hosts)


async def test_a_store_that_is_away_is_told_as_such(place: Place) -> None:
    away = place.away()
    with pytest.raises(FrontierDown):
        await away.turn(CRAWL, "one", Turn(found=[found("x")], hosts=1))
    with pytest.raises(FrontierDown):
        await away.counts(CRAWL)
    await away.close()


async def everything(frontier: Frontier) -> object:
    return await frontier.urls(CRAWL), await frontier.hosts(CRAWL), await frontier.counts(CRAWL)


def report_of(report: HostReport, *, want: int) -> tuple[Any, ...]:
    return report.host, report.fence, report.outcomes, report.next_at, report.state, report.release, want
