"""What goes wrong while a process crawls, and that no page is lost by it and nobody is asked too often."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from experiments.answering import Asked, Said
from experiments.clerk import CRAWL
from tests.crawls.exchanges import exchange
from tests.crawls.test_crawler import HERE, SMALL, THERE, Begin, begin, database_kind, pages
from tests.waiting import eventually
from weft.clock import SECOND
from weft.crawl_spec import BudgetSpec, CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec, ScopeSpec
from weft.crawler.crawler import CrawlerExit
from weft.crawler.host_scheduler import AuxiliaryRequest, HeldHost, HostScheduler
from weft.crawler.politeness import LONGEST_RETRY_AFTER_SECONDS, write_state
from weft.crawler.robots_fetcher import RobotsFetcher
from weft.crawler.steady_clock import steady_now
from weft.crawler.worker_channel import OVERHEAD
from weft.fetching.urls import host_of, key_of
from weft.ports import Found, Given, HostLease, Rate, Turn, Turned
from weft.proxies.client import FetchPostponed

__all__ = ["begin", "database_kind"]

HTTP, HTTPS = "http://site.example", "https://site.example"


def held_and_errands(*urls: str, **terms: Any) -> tuple[HeldHost, RobotsFetcher]:
    """A host that is held, of which these addresses are to be fetched."""
    spec = CrawlSpec(urls=urls, politeness=PolitenessSpec(**terms))
    errands = RobotsFetcher(spec, "weft", lambda *_: None, lambda *_: None, lambda _: None)
    given = [Given(number, url) for number, url in enumerate(urls)]
    return HostScheduler(spec, errands.admit).add(HostLease("site.example", 1, given), steady_now()), errands


def answers_robots(text: str) -> Callable[[HeldHost, RobotsFetcher, str], None]:
    def answer(held: HeldHost, errands: RobotsFetcher, origin: str) -> None:
        admitted = errands.admit(held, steady_now())
        assert admitted == AuxiliaryRequest(origin, f"{origin}/robots.txt")
        errands.arrived(held, admitted, exchange(text, f"{origin}/robots.txt", content_type="text/plain"))

    return answer


def test_the_delay_that_one_origin_of_a_host_asks_for_outlives_the_robots_txt_of_the_other() -> None:
    held, errands = held_and_errands(f"{HTTPS}/1", f"{HTTP}/2", f"{HTTPS}/3")
    answers_robots("User-agent: *\nCrawl-delay: 20")(held, errands, HTTPS)
    assert isinstance(errands.admit(held, steady_now()), Given)
    answers_robots("User-agent: *\nAllow: /")(held, errands, HTTP)
    assert isinstance(errands.admit(held, steady_now()), Given)
    assert held.politeness.delay >= 20 * SECOND


def test_whoever_takes_over_from_one_who_died_waits_as_long_as_robots_txt_asked_that_one_to() -> None:
    held, errands = held_and_errands(f"{HTTPS}/1")
    answers_robots("User-agent: *\nCrawl-delay: 200")(held, errands, HTTPS)
    assert isinstance(errands.admit(held, steady_now()), Given)
    assert not held.saved
    spec, at = CrawlSpec(urls=(HTTPS,)), steady_now()
    left = HostLease("site.example", 2, [], state=write_state(held.politeness.state), unclean=True)
    assert HostScheduler(spec, errands.admit).add(left, at).politeness.due() >= at + 200 * SECOND


def test_a_robots_txt_that_no_proxy_leads_to_at_the_moment_is_asked_for_later_and_no_try_is_lost() -> None:
    held, errands = held_and_errands(f"{HTTP}/1")
    for _ in range(10):
        asked = errands.admit(held, steady_now())
        assert isinstance(asked, AuxiliaryRequest)
        errands.missed(held, asked, FetchPostponed("site_paused", "it has blocked every way", 120.0))
    assert 100 * SECOND < held.politeness.due() - steady_now() <= 120 * SECOND
    assert held.politeness.state.robots == {}


@pytest.mark.parametrize("told", ["99999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_robots_txt_that_asks_to_come_back_in_a_thousand_years_is_asked_for_again_in_a_week(told: str) -> None:
    held, errands = held_and_errands(f"{HTTP}/1")
    asked = errands.admit(held, steady_now())
    assert isinstance(asked, AuxiliaryRequest)
    errands.arrived(held, asked, exchange(url=asked.url, status=503, headers=(("Retry-After", told),)))
    assert held.politeness.due() - steady_now() <= (LONGEST_RETRY_AFTER_SECONDS + 1) * SECOND


async def test_a_robots_txt_that_is_elsewhere_is_found_however_long_the_delay_is(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.crawler.reporter.FAR", SECOND // 20)  # a host that must wait longer is given back
    moved = Said(301, headers={"Location": "/rules.txt"})

    def answer(asked: Asked) -> Said:
        return moved if asked.path == "/robots.txt" else pages({"/": []}, **{"/rules.txt": Said()})(asked)

    scene = await begin(answer, politeness=PolitenessSpec(delay_seconds=0.3))
    assert (await scene.crawl()).reason == "finished"
    assert scene.site.paths() == ["/robots.txt", "/rules.txt", "/"]


async def test_a_page_that_wants_to_see_its_cookie_first_is_fetched_once_it_has_it(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt" or "seen=1" in asked.headers.get("cookie", ""):
            return pages(SMALL)(asked)
        return Said(302, headers={"Location": asked.path, "Set-Cookie": "seen=1; Path=/"})

    scene = await begin(answer)
    assert (await scene.crawl()).reason == "finished"
    assert scene.kept() == sorted(SMALL)


async def test_a_page_that_leads_to_itself_for_ever_fails(begin: Begin) -> None:
    around = Said(302, headers={"Location": "/around"})
    scene = await begin(pages({"/": ["/around"]}, **{"/around": around}), fetching=FetchingSpec(retries=2))
    assert (await scene.crawl()).reason == "finished"
    assert scene.site.paths().count("/around") == 3
    assert await scene.state_of("/around") == ("failed", "redirects")


async def test_a_page_that_was_skipped_and_is_put_back_in_line_is_kept_although_it_has_not_changed(
    begin: Begin,
) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return Said(404)
        if "if-none-match" in asked.headers:
            return Said(304)
        page = b"<html><head><meta name=robots content=noindex></head><body>text</body></html>"
        return Said(200, page, {"Content-Type": "text/html", "ETag": '"1"'})

    scene = await begin(answer, scope=ScopeSpec(noindex=True))
    await scene.crawl()
    assert await scene.state_of("/") == ("skipped", "noindex")
    await scene.clerk.frontier.requeue(CRAWL, "skipped")
    scene.spec = CrawlSpec(urls=scene.spec.urls, politeness=scene.spec.politeness, keeping=scene.spec.keeping)
    await scene.crawl()
    assert scene.kept() == ["/"]


async def test_a_page_with_more_links_than_one_question_holds_is_told_in_pieces_and_none_is_lost(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.crawler.crawler.MOST_AT_ONCE_BYTES", 2_000)
    turns: list[int] = []
    names = [f"/{one}{two}" for one in "abcdefgh" for two in "abcdefgh"]
    scene = await begin(pages({"/": names, **{name: [] for name in names}}))
    taken = scene.clerk.frontier.turn

    async def turn(crawl: int, holder: str, turn: Turn) -> Turned:
        turns.append(len(turn.found))
        turned: Turned = await taken(crawl, holder, turn)
        return turned

    monkeypatch.setattr(scene.clerk.frontier, "turn", turn)
    assert (await scene.crawl()).reason == "finished"
    assert scene.kept() == sorted(["/", *names])
    assert max(turns) * OVERHEAD < 2_000


async def test_where_there_is_no_room_for_raw_pages_the_run_fails_and_its_pages_stay_in_line(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene = await begin(pages(SMALL), keeping=OutputSpec())
    monkeypatch.setattr("weft.crawler.warc.os.write", full)
    assert await scene.crawl() == CrawlerExit("failed", "raw pages cannot be kept: No space left on device")
    assert await scene.state_of("/") == ("queued", "")


async def test_a_process_that_has_to_leave_all_hosts_alone_says_until_when(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("weft.crawler.crawler.LOG_EVERY_SECONDS", 0.2)
    refusal = Said(503, headers={"Retry-After": "3600"})
    caplog.set_level("INFO", "weft.crawler.crawler")
    scene = await begin(pages({}, **{"/": refusal}))
    running = asyncio.create_task(scene.crawl())
    await eventually(lambda: "all hosts that are left must be left alone until 20" in caplog.text)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_where_nobody_says_which_proxy_to_take_any_more_no_page_fails_for_that(begin: Begin) -> None:
    scene = await begin(pages(SMALL), fetching=FetchingSpec(proxies="ways"))  # of which this worker knows nothing
    assert (await scene.crawl()).reason == "failed"
    assert await scene.state_of("/") == ("queued", "")


def robots_elsewhere(asked: Asked) -> Said:
    """The robots.txt of all hosts is on the host HERE, where only /secret is forbidden."""
    if asked.path == "/robots.txt" and asked.host != HERE:
        port = asked.headers["host"].partition(":")[2]
        return Said(301, headers={"Location": f"http://{HERE}:{port}/robots.txt"})
    return pages({"/": [], "/1": [], "/2": [], "/secret": []}, Said(body=b"User-agent: *\nDisallow: /secret"))(asked)


async def test_whoever_needs_the_robots_txt_of_another_host_stands_in_the_line_of_that_host(begin: Begin) -> None:
    others = tuple(f"127.0.0.{number}" for number in range(2, 5))
    scene = await begin(robots_elsewhere, addresses=(HERE, *others))
    scene.spec = structs.replace(scene.spec, urls=())
    await scene.clerk.frontier.forget(CRAWL)
    await scene.clerk.limiter.set({"host:": Rate(4.0)})
    urls = [scene.site.url(path, address) for address in others for path in ("/", "/secret")]
    await scene.clerk.frontier.turn(CRAWL, "seeds", Turn(found=[Found(key_of(url), url, host_of(url)) for url in urls]))
    await scene.crawl()
    assert {key for each in scene.clerk.permits for key in each.keys} == {f"host:{HERE}:{scene.site.port}"}
    assert scene.site.paths(HERE) == ["/robots.txt"] * len(others)
    assert sum(scene.site.gaps(HERE)) >= 0.25 * (len(others) - 2)  # a busy machine may let the server read one late
    assert scene.kept() == ["/"] * len(others)


async def test_a_robots_txt_on_another_host_that_is_held_waits_for_its_turn_there(begin: Begin) -> None:
    others = tuple(f"127.0.0.{number}" for number in range(2, 5))
    delay = PolitenessSpec(delay_seconds=0.3)
    scene = await begin(robots_elsewhere, "/", "/1", "/2", addresses=(HERE, *others), politeness=delay)
    urls = [scene.site.url("/", address) for address in others]
    await scene.clerk.frontier.turn(CRAWL, "seeds", Turn(found=[Found(key_of(url), url, host_of(url)) for url in urls]))
    await scene.crawl()
    assert sorted(scene.site.paths(HERE)) == ["/", "/1", "/2", *["/robots.txt"] * 4]
    gaps = scene.site.gaps(HERE)
    assert sum(gaps) >= 0.3 * (len(gaps) - 1)  # a busy machine may let the server read one of them late
    assert scene.site.most_at_once[HERE] == 1
    assert scene.clerk.permits == []


async def test_hosts_that_send_one_another_for_their_robots_txt_are_crawled_in_the_end(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path != "/robots.txt":
            return pages({"/": []})(asked)
        other, port = THERE if asked.host == HERE else HERE, asked.headers["host"].partition(":")[2]
        return Said(301, headers={"Location": f"http://{other}:{port}/robots.txt"})

    scene = await begin(answer, addresses=(HERE, THERE), politeness=PolitenessSpec(delay_seconds=0.05))
    url = scene.site.url("/", THERE)
    await scene.clerk.frontier.turn(CRAWL, "seeds", Turn(found=[Found(key_of(url), url, host_of(url))]))
    async with asyncio.timeout(60):
        await scene.crawl()
    assert scene.kept() == ["/", "/"]
    assert scene.site.most_at_once == {HERE: 1, THERE: 1}


async def test_what_is_never_asked_for_uses_up_no_page_of_the_budget(begin: Begin) -> None:
    scene = await begin(pages(SMALL), budget=BudgetSpec(pages=len(SMALL) + 1))  # one more is not there
    inside = [f"http://10.1.1.1/{number}" for number in range(5)]
    seeds = [Found(key_of(url), url, host_of(url), priority=1) for url in inside]
    await scene.clerk.frontier.turn(CRAWL, "seeds", Turn(found=seeds))
    await scene.crawl()
    assert scene.kept() == sorted(SMALL)
    known = [await scene.clerk.frontier.look(CRAWL, key_of(url)) for url in inside]
    assert {(each.state, each.reason) for each in known if each is not None} <= {
        ("failed", "refused_address"),
        ("queued", ""),
    }
