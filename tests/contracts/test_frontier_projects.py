"""Projects that share a host share its pace, and nothing of what went wrong for one of them, on every frontier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from experiments.answering import Answering, Asked, Said, html
from experiments.clerk import clerk_of, crawl
from tests.contracts.frontiers import KINDS
from weft.clock import SECOND, now
from weft.crawl_spec import CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec
from weft.crawler.politeness import HostState, read_state, write_state
from weft.crawls.project_scope import state_for
from weft.fetching.urls import key_of
from weft.ports import Found, Frontier, HostReport, Limits, Turn

FIRST, SECOND_CRAWL = 1, 2


@pytest_asyncio.fixture(params=KINDS)
async def frontier(request: pytest.FixtureRequest) -> AsyncIterator[Frontier]:
    async with KINDS[request.param](request, now) as place:
        frontier = place.opened()
        yield frontier
        await frontier.close()


def answer(asked: Asked) -> Said:
    if asked.path == "/robots.txt":
        return Said(200, b"User-agent: *\nAllow: /\n", wait=0.05)
    return Said(200, html("/a", "/b").body, {"Content-Type": "text/html"}, wait=0.05)


@pytest.mark.parametrize(
    ("fetching", "politeness"),
    [
        (FetchingSpec(deadline_seconds=0.001, retries=0), PolitenessSpec(delay_seconds=0.0)),
        (FetchingSpec(deadline_seconds=0.001), PolitenessSpec(delay_seconds=0.0)),
        (FetchingSpec(deadline_seconds=0.001), PolitenessSpec(delay_seconds=0.0, robots=False, errors_in_a_row=1)),
    ],
    ids=["no-retries", "short-deadline", "one-error"],
)
async def test_a_crawl_whose_spec_makes_a_host_fail_keeps_no_other_project_from_it(
    frontier: Frontier, tmp_path: Path, fetching: FetchingSpec, politeness: PolitenessSpec
) -> None:
    keeping = OutputSpec(warc=False)
    async with Answering(answer).serving() as site:
        failing = CrawlSpec(urls=(site.url(),), fetching=fetching, politeness=politeness, keeping=keeping, follow=True)
        healthy = CrawlSpec(
            urls=(site.url(),), politeness=PolitenessSpec(delay_seconds=0.0), keeping=keeping, follow=True
        )
        async with clerk_of(frontier, _folder(tmp_path, "a"), failing, crawl=FIRST, project="failing"):
            first = asyncio.create_task(crawl(tmp_path / "a", failing))
            await asyncio.wait([first], timeout=2.0)
            async with clerk_of(
                frontier, _folder(tmp_path, "b"), healthy, crawl=SECOND_CRAWL, project="healthy"
            ) as one:
                async with asyncio.timeout(20):
                    await crawl(tmp_path / "b", healthy)
                urls = await frontier.urls(SECOND_CRAWL)
            first.cancel()
            await asyncio.wait([first])
    assert {each.state for each in urls} == {"done"}
    assert len(one.items) == 3


async def test_a_host_that_is_released_for_later_waits_for_its_own_crawl_and_for_no_other(frontier: Frontier) -> None:
    for number in (FIRST, SECOND_CRAWL):
        await frontier.open(number, Limits())
        await frontier.turn(number, "finder", Turn(found=[_found()]))
    held = (await frontier.turn(FIRST, "1:1", Turn(hosts=1))).leases[0]
    until = now() + 3_600 * SECOND
    told = await frontier.turn(
        FIRST, "1:1", Turn(reports=[HostReport(held.host, held.fence, release=True, own_next_at=until)], hosts=1)
    )
    assert (told.leases, told.next_at) == ([], until)
    again = (await frontier.turn(SECOND_CRAWL, "2:1", Turn(hosts=1))).leases[0]
    assert again.host == held.host
    await frontier.turn(SECOND_CRAWL, "2:1", Turn(reports=[HostReport(again.host, again.fence, release=True)]))
    assert (await frontier.turn(FIRST, "1:1", Turn(hosts=1))).leases == []


async def test_what_a_project_knows_of_a_host_is_there_when_the_host_comes_back_to_it(frontier: Frontier) -> None:
    await frontier.open(FIRST, Limits())
    await frontier.turn(FIRST, "finder", Turn(found=[_found()]))
    states: list[HostState] = []
    state = ""
    for project in ("a", "b", "a"):
        held = (await frontier.turn(FIRST, "1:1", Turn(hosts=1))).leases[0]
        states.append(read_state(state_for(project, held.state, now())))
        state = write_state(HostState(project=project, others=states[-1].others, errors=len(states)))
        await frontier.turn(FIRST, "1:1", Turn(reports=[HostReport(held.host, held.fence, state=state, release=True)]))
    assert [each.errors for each in states] == [0, 0, 1]
    assert states[2].others["b"].errors == 2


def _found() -> Found:
    return Found(key_of("http://a.example/"), "http://a.example/", "a.example")


def _folder(base: Path, name: str) -> Path:
    (base / name).mkdir()
    return base / name
