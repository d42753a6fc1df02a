"""Why an address is not crawled, in one sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conftest import SetClock, on_sqlite
from tests.crawls.steering import SITE, Share, a_crawl
from weft.app import App
from weft.clock import SECOND, iso
from weft.crawler.politeness import HostState
from weft.crawler.robots import RULES, UNREACHABLE, StoredRobots
from weft.crawls.model import Crawl
from weft.errors import Invalid
from weft.fetching.urls import key_of
from weft.ports import HostReport, Outcome, Turn

pytestmark = on_sqlite


async def asked(app: App, crawl: Crawl, url: str) -> str:
    return (await app.crawls.why(crawl.id, url)).sentence


async def told(partition: Share, **outcome: Any) -> None:
    """Tell what became of the first page."""
    await partition.turn()
    [host] = partition.hosts
    await partition.turn(Turn(reports=[HostReport(host.host, host.fence, [Outcome(key_of(SITE), **outcome)])]))


async def test_an_address_that_nobody_links_to_is_not_found(app: App) -> None:
    crawl = await a_crawl(app)
    assert await asked(app, crawl, f"{SITE}nowhere") == "no page that was fetched links to it"
    batch = await a_crawl(app, follow=False)
    assert "follows no links" in await asked(app, batch, f"{SITE}nowhere")


async def test_an_address_that_lies_outside_is_told_so(app: App) -> None:
    crawl = await a_crawl(app, scope={"deny": [r"\.pdf$"]})
    assert await asked(app, crawl, "https://elsewhere.example/") == "it lies outside of what the crawl may fetch"
    assert await asked(app, crawl, f"{SITE}a.pdf") == "it matches a pattern that the crawl denies"
    assert "trap suspected" in await asked(app, crawl, SITE + "a/" * 30)
    with pytest.raises(Invalid, match="it must be an http or https address"):
        await asked(app, crawl, "gopher://site.example/")


async def test_an_address_that_was_crawled_is_told_with_its_status(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await told(partition, state="done", status=200, fetched_at=clock.now)
    assert await asked(app, crawl, f"{SITE}#top") == f"it was crawled at {iso(clock.now)}, with status 200"


async def test_an_address_that_failed_is_told_with_the_reason(app: App) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await told(partition, state="failed", reason="deadline", tries=3)
    assert await asked(app, crawl, SITE) == "it failed after 3 tries: it took longer than a fetch may take"


async def test_an_address_that_was_skipped_is_told_with_the_reason(app: App) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await told(partition, state="skipped", reason="robots")
    assert await asked(app, crawl, SITE) == "robots.txt does not allow it"


async def test_an_address_in_line_is_told_when_its_turn_is(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    assert "about to be fetched" in await asked(app, crawl, SITE)
    later = clock.now + 60 * SECOND
    await told(partition, state="queued", reason="status_503", next_at=later, tries=1)
    words = await asked(app, crawl, SITE)
    assert words == (
        "it is in line after 1 tries that failed (the server answered with status 503), "
        f"and its turn is not before {iso(later)}"
    )
    await app.crawls.pause(crawl.id)
    assert await asked(app, crawl, SITE) == "it is in line, but the crawl is paused: paused by a person"


@pytest.mark.parametrize(
    ("robots", "errors", "because"),
    [
        (UNREACHABLE, 0, ", because its robots.txt could not be read"),
        (RULES, 5, ", because it failed 5 times in a row"),
        (RULES, 0, ""),
    ],
)
async def test_a_host_that_is_left_alone_is_told_with_what_went_wrong(
    app: App, clock: SetClock, robots: str, errors: int, because: str
) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    [host] = partition.hosts
    kept = {"https://site.example": StoredRobots(at=clock.now, found=robots)}
    state = msgspec.json.encode(HostState(robots=kept, errors=errors)).decode()
    later = clock.now + 60 * SECOND
    outcome = Outcome(key_of(SITE), "queued")
    await partition.turn(
        Turn(reports=[HostReport(host.host, host.fence, [outcome], state=state, next_at=later, release=True)])
    )
    words = f"it is in line, and its host site.example is left alone until {iso(later)}"
    assert await asked(app, crawl, SITE) == words + because


async def test_the_robots_txt_of_a_host_that_is_known_counts(app: App, clock: SetClock) -> None:
    crawl = await a_crawl(app)
    partition = await Share.of(app, crawl)
    await partition.turn()
    [host] = partition.hosts
    rules = StoredRobots(at=clock.now, found=RULES, text="User-agent: *\nDisallow: /private/\n")
    state = msgspec.json.encode(HostState(robots={"https://site.example": rules})).decode()
    await partition.turn(Turn(reports=[HostReport(host.host, host.fence, state=state)]))
    assert await asked(app, crawl, f"{SITE}private/a") == "robots.txt does not allow it"
    assert await asked(app, crawl, f"{SITE}public/a") == "no page that was fetched links to it"
