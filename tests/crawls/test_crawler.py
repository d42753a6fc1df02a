"""A process that crawls, seen from the sites that it asks and from its worker."""

import asyncio
import gzip
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.answering import Answering, Asked, Said, html
from experiments.clerk import CRAWL, POLICY, Clerk, clerk_in, crawl, crawler
from tests.waiting import eventually
from weft.crawl_spec import CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec, RevisitSpec, ScopeSpec, TrapSpec
from weft.crawler import reasons
from weft.crawler.crawler import CrawlerExit
from weft.fetching.urls import host_of, key_of
from weft.ports import Found, Turn

EAGER = PolitenessSpec(delay_seconds=0.0)
NO_ROBOTS = Said(404)
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def database_kind() -> str:
    return "sqlite"


@dataclass(slots=True)
class Scene:
    """A site, a worker, and a crawl of the one for the other."""

    site: Answering
    clerk: Clerk
    spec: CrawlSpec
    folder: Path

    async def crawl(self) -> CrawlerExit:
        return await crawl(self.folder, self.spec)

    async def state_of(self, path: str) -> tuple[str, str]:
        known = await self.clerk.frontier.look(CRAWL, key_of(self.site.url(path)))
        return (known.state, known.reason) if known is not None else ("", "")

    def kept(self) -> list[str]:
        """The paths of the pages that became items."""
        return sorted(item["url"].partition(f":{self.site.port}")[2] for item in self.clerk.items)


Begin = Callable[..., Any]


@pytest.fixture
async def begin(tmp_path: Path, database_url: str) -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:

        async def begin(
            answer: Callable[[Asked], Said], *paths: str, addresses: tuple[str, ...] = (HERE,), **parts: Any
        ) -> Scene:
            site = await stack.enter_async_context(Answering(answer, addresses).serving())
            defaults = {"follow": True, "politeness": EAGER, "keeping": OutputSpec(warc=False), "traps": TrapSpec()}
            seeds = tuple(site.url(path) for path in paths or ("/",))
            spec = CrawlSpec(**{"urls": seeds, **defaults, **parts})
            clerk = await stack.enter_async_context(clerk_in(tmp_path, database_url, spec))
            return Scene(site, clerk, spec, tmp_path)

        yield begin


def pages(links: dict[str, list[str]], robots: Said = NO_ROBOTS, **others: Said) -> Callable[[Asked], Said]:
    """A site with these pages, each with these links."""

    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return robots
        if asked.path in others:
            return others[asked.path]
        if asked.path not in links:
            return Said(404)
        return html(*links[asked.path], title=f"page {asked.path}", text=f"{asked.path} " * 50)

    return answer


SMALL = {"/": ["/a", "/b"], "/a": ["/c", "/"], "/b": ["/c", "/d"], "/c": [], "/d": ["/e"], "/e": ["/gone"]}


async def test_every_page_that_can_be_reached_is_kept_once(begin: Begin) -> None:
    scene = await begin(pages(SMALL))
    assert await scene.crawl() == CrawlerExit("finished")
    assert scene.kept() == sorted(SMALL)
    assert sorted(scene.site.paths()) == sorted(["/robots.txt", *SMALL, "/gone"])
    assert await scene.state_of("/gone") == ("failed", "status_404")
    assert scene.clerk.stats["item_scraped_count"] == len(SMALL)


async def test_without_follow_only_the_seeds_are_fetched(begin: Begin) -> None:
    scene = await begin(pages(SMALL), "/", "/d", follow=False)
    await scene.crawl()
    assert scene.kept() == ["/", "/d"]


async def test_requests_come_one_at_a_time_and_the_delay_passes_between_them(begin: Begin) -> None:
    scene = await begin(pages(SMALL), politeness=PolitenessSpec(delay_seconds=0.2))
    await scene.crawl()
    gaps = scene.site.gaps(HERE)
    assert sum(gaps) >= 0.2 * (len(gaps) - 1)  # a busy machine may let the server read one of them late
    assert scene.site.most_at_once == {HERE: 1}


async def test_hosts_do_not_wait_for_one_another(begin: Begin) -> None:
    addresses = tuple(f"127.0.0.{number}" for number in range(1, 9))
    scene = await begin(pages({"/": []}), addresses=addresses, politeness=PolitenessSpec(delay_seconds=0.4))
    urls = [scene.site.url("/", address) for address in addresses]
    await scene.clerk.frontier.turn(CRAWL, "seeds", Turn(found=[Found(key_of(url), url, host_of(url)) for url in urls]))
    await scene.crawl()
    assert len(scene.clerk.items) == len(addresses)
    waited = sum(sum(scene.site.gaps(address)) for address in addresses)
    assert waited > 2 * (scene.site.log[-1].at - scene.site.log[0].at)


async def test_what_robots_txt_forbids_is_never_asked_for_and_that_is_told(begin: Begin) -> None:
    robots = Said(body=b"User-agent: *\nDisallow: /b")
    scene = await begin(pages(SMALL, robots))
    await scene.crawl()
    assert scene.site.paths()[0] == "/robots.txt"
    assert "/b" not in scene.site.paths()
    assert await scene.state_of("/b") == ("skipped", "robots")
    assert scene.clerk.skipped()["robots"] == 1


async def test_a_crawl_delay_is_obeyed(begin: Begin) -> None:
    robots = Said(body=b"User-agent: *\nCrawl-delay: 0.3")
    scene = await begin(pages({"/": ["/a"], "/a": ["/b"], "/b": []}, robots))
    await scene.crawl()
    assert sum(scene.site.gaps(HERE)[1:]) >= 0.3


async def test_a_host_that_asks_for_too_long_a_delay_is_left_out_and_that_is_told(begin: Begin) -> None:
    scene = await begin(pages(SMALL, Said(body=b"User-agent: *\nCrawl-delay: 999")))
    await scene.crawl()
    assert scene.site.paths() == ["/robots.txt"]
    assert await scene.state_of("/") == ("skipped", "crawl_delay")


async def test_while_robots_txt_is_broken_nothing_is_fetched_and_the_host_is_deferred(begin: Begin) -> None:
    scene = await begin(pages(SMALL, Said(503, headers={"Retry-After": "1000"})))
    running = asyncio.create_task(scene.crawl())

    async def is_deferred() -> bool:
        (host,) = await scene.clerk.frontier.hosts(CRAWL)
        return bool(host.next_at > 0 and not host.holder and host.state)

    await eventually(is_deferred)
    scene.clerk.stop = "stopped"
    assert (await running).reason == "stopped"
    assert scene.site.paths() == ["/robots.txt"]
    assert (await scene.state_of("/"))[0] == "queued"


async def test_where_robots_txt_stays_out_of_reach_the_addresses_fail_in_the_end(begin: Begin) -> None:
    scene = await begin(pages(SMALL, Said(500)), fetching=FetchingSpec(retries=0))
    await scene.crawl()
    assert scene.site.paths() == ["/robots.txt"]
    assert await scene.state_of("/") == ("failed", "robots_unreachable")


@pytest.mark.parametrize(
    ("url", "reason"), [("http://127.0.0.1:1/", "connect"), ("http://no-such-host.invalid/", "name")]
)
async def test_of_a_host_that_cannot_be_reached_the_addresses_say_why(begin: Begin, url: str, reason: str) -> None:
    scene = await begin(pages(SMALL), urls=(url,), fetching=FetchingSpec(retries=0))
    await scene.crawl()
    known = await scene.clerk.frontier.look(CRAWL, key_of(url))
    assert (known.state, known.reason) == ("failed", reason)


async def test_what_is_wrong_with_a_host_is_known_while_it_is_left_alone(begin: Begin) -> None:
    scene = await begin(pages(SMALL, Said(503, headers={"Retry-After": "1000"})))
    running = asyncio.create_task(scene.crawl())

    async def is_told() -> bool:
        (host,) = await scene.clerk.frontier.hosts(CRAWL)
        return reasons.host_problem(host) == "answers with status 503"

    await eventually(is_told)
    scene.clerk.stop = "stopped"
    await running


async def test_robots_txt_may_be_elsewhere_within_five_redirects(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return Said(302, headers={"Location": "/1"})
        if asked.path in ("/1", "/2", "/3", "/4"):
            return Said(302, headers={"Location": f"/{int(asked.path[1:]) + 1}"})
        if asked.path == "/5":
            return Said(body=b"User-agent: *\nDisallow: /b")
        return html("/b")

    scene = await begin(answer)
    await scene.crawl()
    assert scene.site.paths() == ["/robots.txt", "/1", "/2", "/3", "/4", "/5", "/"]


async def test_no_request_comes_before_the_moment_that_retry_after_names(begin: Begin) -> None:
    refused: list[float] = []

    def answer(asked: Asked) -> Said:
        if asked.path == "/a" and not refused:
            refused.append(asked.at)
            return Said(429, headers={"Retry-After": "1"})
        return pages(SMALL)(asked)

    scene = await begin(answer)
    await scene.crawl()
    after = [asked.at for asked in scene.site.log if asked.at > refused[0]]
    assert min(after) >= refused[0] + 1.0
    assert scene.kept() == sorted(SMALL)


async def test_a_page_that_fails_is_tried_again_and_then_given_up(begin: Begin) -> None:
    fetching = FetchingSpec(retries=2, retry_seconds=0.05)
    scene = await begin(pages({"/": ["/bad"]}, **{"/bad": Said(500)}), fetching=fetching)
    await scene.crawl()
    assert scene.site.paths().count("/bad") == 3
    assert await scene.state_of("/bad") == ("failed", "status_500")


async def test_redirects_are_followed_page_by_page_up_to_the_limit(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path.startswith("/hop"):
            return Said(301, headers={"Location": f"/hop{int(asked.path[4:]) + 1}"})
        return pages({"/": ["/hop1"]})(asked)

    scene = await begin(answer, fetching=FetchingSpec(redirects=3))
    await scene.crawl()
    assert [path for path in scene.site.paths() if "hop" in path] == ["/hop1", "/hop2", "/hop3", "/hop4"]
    assert await scene.state_of("/hop1") == ("done", "redirect")
    assert await scene.state_of("/hop4") == ("failed", "redirects")


async def test_a_redirect_out_of_the_crawl_is_not_followed(begin: Begin) -> None:
    away = Said(301, headers={"Location": "http://127.0.0.77:1/"})
    scene = await begin(pages({"/": ["/away"]}, **{"/away": away}))
    await scene.crawl()
    assert scene.clerk.skipped()["scope"] == 1


async def test_the_addresses_of_sitemaps_and_of_their_indexes_are_crawled(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        here = f"http://{HERE}:{port[0]}"
        if asked.path == "/robots.txt":
            return Said(body=f"User-agent: *\nSitemap: {here}/index.xml".encode())
        if asked.path == "/index.xml":
            return Said(body=f"<sitemapindex><sitemap><loc>{here}/1.xml.gz</loc></sitemap></sitemapindex>".encode())
        if asked.path == "/1.xml.gz":
            far = "http://127.0.0.77:1/far"
            listed = "".join(f"<url><loc>{url}</loc></url>" for url in (f"{here}/c", f"{here}/d", far))
            return Said(body=gzip.compress(f"<urlset>{listed}</urlset>".encode()))
        return pages(SMALL)(asked)

    port = [0]
    scene = await begin(answer, follow=False, scope=ScopeSpec(sitemaps=True))
    port[0] = scene.site.port
    await scene.crawl()
    assert scene.kept() == ["/", "/c", "/d"]
    assert scene.clerk.skipped()["sitemap_host"] == 1


async def test_an_unchanged_page_is_asked_for_with_conditions_and_kept_once(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return NO_ROBOTS
        if asked.headers.get("if-none-match") == '"one"':
            return Said(304)
        page = html(title="one")
        return Said(200, page.body, {**page.headers, "ETag": '"one"', "Last-Modified": "x"})

    again = RevisitSpec(policy="fixed", seconds=1.0, least_seconds=1.0)
    scene = await begin(answer, revisit=again)
    running = asyncio.create_task(scene.crawl())
    await eventually(lambda: scene.site.paths().count("/") >= 3)
    scene.clerk.stop = "paused"
    assert (await running).reason == "paused"
    assert scene.kept() == ["/"]
    assert scene.site.log[-1].headers["if-modified-since"] == "x"


async def test_a_paused_crawl_goes_on_where_it_was(begin: Begin) -> None:
    many = {"/": [f"/{number}" for number in range(60)], **{f"/{number}": [] for number in range(60)}}
    alike = TrapSpec(near_duplicates=0)
    scene = await begin(pages(many), politeness=PolitenessSpec(delay_seconds=0.01), traps=alike)
    running = asyncio.create_task(scene.crawl())
    await eventually(lambda: len(scene.clerk.items) >= 5)
    scene.clerk.stop = "paused"
    assert (await running).reason == "paused"
    assert len(scene.clerk.items) < len(many)
    assert (await scene.clerk.frontier.counts(CRAWL)).leased == 0
    scene.clerk.stop = ""
    assert (await scene.crawl()).reason == "finished"
    assert scene.kept() == sorted(many)


async def test_while_the_control_plane_is_away_fetching_goes_on_and_nothing_is_lost(begin: Begin) -> None:
    scene = await begin(pages(SMALL), politeness=PolitenessSpec(delay_seconds=0.05))
    running = asyncio.create_task(scene.crawl())
    await eventually(lambda: "/a" in scene.site.paths())
    scene.clerk.problem = "the database is away"
    await eventually(lambda: "/b" in scene.site.paths())
    scene.clerk.problem = ""
    assert (await running).reason == "finished"
    assert scene.kept() == sorted(SMALL)


async def test_pages_that_are_all_alike_are_a_trap_that_ends_and_is_told(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        number = asked.path.rpartition("/")[2] or "0"
        if not number.isdigit():
            return Said(404)
        return html(f"/day/{int(number) + 1}", title=f"day {number}", text="nothing happens today " * 50)

    scene = await begin(answer, scope=ScopeSpec(depth=1_000))
    assert (await scene.crawl()).reason == "finished"
    assert {(skip.reason, skip.pattern) for skip in scene.clerk.skips if skip.is_trap} == {
        ("near_duplicates", "/day/{number}")
    }
    assert len(scene.site.log) < 100


async def test_a_login_goes_to_the_hosts_of_the_seeds_only(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return NO_ROBOTS
        return html(f"http://{THERE}:{port[0]}/there") if asked.host == HERE else html()

    port = [0]
    fetching = FetchingSpec(username="me", password="secret", headers={"X-One": "1"})
    scene = await begin(answer, addresses=(HERE, THERE), fetching=fetching, scope=ScopeSpec(within="any"))
    port[0] = scene.site.port
    await scene.crawl()
    shown = {asked.host: asked.headers for asked in scene.site.log}
    assert shown[HERE]["authorization"].startswith("Basic ")
    assert "authorization" not in shown[THERE]
    assert {headers["x-one"] for headers in shown.values()} == {"1"}
    assert all("crawl@weft.example" in headers["user-agent"] for headers in shown.values())


async def test_a_process_reads_its_order_and_ends_with_a_note_when_it_is_told_to(begin: Begin) -> None:
    scene = await begin(pages({"/": ["/a"], "/a": []}), politeness=PolitenessSpec(delay_seconds=30.0))
    async with crawler(scene.folder, scene.spec) as process:
        await eventually(lambda: "/robots.txt" in scene.site.paths())
        assert not (scene.folder / "order.json").exists()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert json.loads((scene.folder / "end.json").read_text()) == {"reason": "stopped", "message": ""}
    counts = await scene.clerk.frontier.counts(CRAWL)
    assert (counts.leased, counts.queued) == (0, 1)


async def test_cookies_go_back_to_the_host_that_set_them(begin: Begin) -> None:
    def answer(asked: Asked) -> Said:
        page = pages({"/": ["/a"], "/a": []})(asked)
        return Said(page.status, page.body, {**page.headers, "Set-Cookie": "visit=1; Path=/"})

    scene = await begin(answer)
    await scene.crawl()
    assert scene.site.log[-1].headers["cookie"] == "visit=1"


async def test_no_pattern_of_a_scope_holds_a_crawl(begin: Begin) -> None:
    trap = "/" + "a" * 60 + "!"
    scene = await begin(pages({"/": [trap, "/aaa"], trap: [], "/aaa": []}), scope=ScopeSpec(deny=("(a+)+$",)))
    await scene.crawl()
    assert scene.kept() == ["/", trap]


async def test_a_site_below_a_public_suffix_sets_no_cookie_for_its_neighbours(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return NO_ROBOTS
        at = f"github.io:{port[0]}"
        links = {"/": [f"http://a.{at}/set"], "/set": [f"http://a.{at}/own"]}
        links["/own"] = [f"http://a.{at}/again", f"http://b.{at}/other"]
        domain = {"/set": "github.io", "/own": "a.github.io"}.get(asked.path, "")
        page = html(*links.get(asked.path, []))
        return Said(page.status, page.body, {**page.headers, "Set-Cookie": f"at={domain}; Path=/; Domain={domain}"})

    look_up = socket.getaddrinfo

    def github(host: Any, *rest: Any, **more: Any) -> Any:
        return look_up(HERE if str(host).endswith(".github.io") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", github)
    port = [0]
    scene = await begin(answer, scope=ScopeSpec(within="any"))
    port[0] = scene.site.port
    await scene.crawl()
    sent = {asked.path: asked.headers.get("cookie", "") for asked in scene.site.log}
    assert (sent["/own"], sent["/other"], sent["/again"]) == ("", "", "at=a.github.io")


async def test_a_host_whose_lease_may_be_over_is_not_asked_any_more(begin: Begin, monkeypatch: Any) -> None:
    many = {"/": [f"/{name}" for name in "abcdefgh"], **{f"/{name}": [] for name in "abcdefgh"}}
    scene = await begin(pages(many), politeness=PolitenessSpec(delay_seconds=0.3))
    monkeypatch.setattr("experiments.clerk.POLICY", msgspec.structs.replace(POLICY, lease_seconds=1.0))
    running = asyncio.create_task(scene.crawl())
    await eventually(lambda: "/a" in scene.site.paths())
    scene.clerk.problem = "the database is away"
    await eventually(lambda: time.monotonic() - scene.site.log[-1].at > 1.0)
    assert len(scene.site.log) < len(many)
    scene.clerk.problem = ""
    assert (await running).reason == "finished"
    assert scene.kept() == sorted(many)


@pytest.mark.parametrize("follow", [True, False])
async def test_a_crawl_that_discovers_hands_addresses_on_and_keeps_no_page(begin: Begin, follow: bool) -> None:
    listed = Said(body=b"http://127.0.0.1:PORT/c\nhttp://127.0.0.1:PORT/d\n")

    def answer(asked: Asked) -> Said:
        if asked.path == "/map.txt":
            return Said(body=listed.body.replace(b"PORT", str(port[0]).encode()))
        if asked.path == "/robots.txt":
            return Said(body=f"Sitemap: http://{HERE}:{port[0]}/map.txt".encode())
        return pages(SMALL)(asked)

    port = [0]
    scene = await begin(answer, follow=follow, tier="discover", feeds="other", scope=ScopeSpec(sitemaps=True))
    port[0] = scene.site.port
    await scene.crawl()
    assert scene.clerk.items == []
    fed = sorted({url.partition(f":{port[0]}")[2] for url in scene.clerk.feed})
    assert fed == (sorted([*SMALL, "/gone"]) if follow else ["/", "/c", "/d"])
    assert ("/c" in scene.site.paths()) is follow


async def test_items_that_are_many_stop_the_fetching_and_are_told_in_pieces(begin: Begin, monkeypatch: Any) -> None:
    monkeypatch.setattr("weft.crawler.reporter.MOST_BYTES", 3_000)
    monkeypatch.setattr("weft.crawler.crawler.MOST_AT_ONCE_BYTES", 1_000)
    names = [f"/{one}{two}" for one in "abcdefg" for two in "abcdefg"]
    scene = await begin(pages({"/": names, **{name: ["/"] for name in names}}), traps=TrapSpec(near_duplicates=0))
    assert (await scene.crawl()).reason == "finished"
    assert scene.kept() == sorted(["/", *names])
    assert scene.clerk.largest < 5_000  # the page with all links is larger than a piece
