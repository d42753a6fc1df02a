"""Spiders that ask for permits, and spiders and crawls that take the ways of a plan: real runs on a real worker."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.limited import Arrival
from experiments.r20 import excess
from tests import servers
from tests.conftest import running
from tests.flows.working import working
from tests.spiders import project
from tests.waiting import eventually
from tests.workers.far_away import far_away, gateway
from weft.app import App, open_app
from weft.config import Config
from weft.errors import Invalid
from weft.ports import Rate
from weft.projects.packing import pack
from weft.runs.model import NewRun, RunSpec, RunState

PROXY_ADDRESS = "127.0.0.77"
RATE, PAGES = 5.0, 4
SPIDERS = """
import scrapy


class Asks(scrapy.Spider):
    name = "asks"
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {
            "weft.agent.limits.PermitMiddleware": 990,
            "weft.agent.proxies.ProxyMiddleware": 740,
        },
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    }

    def __init__(self, base, pages, **kwargs):
        super().__init__(**kwargs)
        self.base, self.pages = base, int(pages)

    async def start(self):
        for number in range(self.pages):
            yield scrapy.Request(f"{self.base}/{number}", callback=self.parse)

    def parse(self, response):
        for each in self.crawler.engine.downloader.middleware.middlewares:
            for ways in getattr(each, "_ways", {}).values():
                self.logger.info("all that I know: %s", ways._plan)
        yield {"status": response.status}
"""


@dataclass
class Site:
    """Notes who came and when."""

    lets_in: set[str]
    came: list[tuple[float, str]] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        peer = writer.get_extra_info("peername")[0]
        self.came.append((time.monotonic(), peer))
        status = b"200 OK" if peer in self.lets_in else b"403 Forbidden"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage")
        writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site({"127.0.0.1"})
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    server.close()


@pytest.fixture
async def idle(tmp_path: Path, remembered_checks: None) -> AsyncIterator[App]:
    """Nobody works here yet."""
    app = await open_app(
        Config(
            data_dir=str(tmp_path / "data"),
            port=0,
            heartbeat_seconds=0.1,
            host_rate=RATE,
            allowed_networks="127.0.0.0/8",
        )
    )
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS), file)
    await app.projects.deploy("shop", archive, "1")
    yield app
    await app.close()


@pytest.fixture
async def weft(idle: App) -> AsyncIterator[App]:
    async with working(idle):
        yield idle


async def run_all(app: App, site: Site, runs: int, **settings: str) -> None:
    spec = RunSpec(
        spec={
            "spider": "asks",
            "args": {"base": f"http://127.0.0.1:{site.port}", "pages": str(PAGES)},
            "settings": settings,
        }
    )
    new = NewRun(project="shop", task="asks", kind="spider", spec=spec)
    submitted = await app.runs.submit([new] * runs)

    async def are_over() -> bool:
        states = [(await app.runs.get(each.run_id)).state for each in submitted]
        return all(state in (RunState.SUCCEEDED, RunState.FAILED) for state in states)

    await eventually(are_over, timeout=90)


async def test_spiders_of_two_runs_ask_a_host_no_more_often_together_than_one_may(weft: App, site: Site) -> None:
    await run_all(weft, site, runs=2)
    assert len(site.came) == 2 * PAGES
    times = [at for at, _ in site.came]
    late = 0.15  # a permit is used up to 0.1 s late, and the site's clock is read a little later
    assert times[-1] - times[0] >= (len(times) - 1) / RATE - late
    assert min(b - a for a, b in pairwise(times)) > 0.0


@pytest.mark.quiet
async def test_spiders_of_remote_workers_ask_a_host_no_more_often_together_than_one_may(idle: App, site: Site) -> None:
    """Each has a URL and a token, and one place, so that each has a run."""
    async with gateway(idle) as address, AsyncExitStack() as far:
        for number in range(3):
            remote = far_away(idle, address, f"far-{number}", capacity=1, allowed_networks="127.0.0.0/8")
            await far.enter_async_context(remote)
        await run_all(idle, site, runs=3)
        workers = {run.worker for run in await idle.runs.find({}, limit=10)}
    assert workers == {"far-0", "far-1", "far-2"}
    assert len(site.came) == 3 * PAGES
    assert excess([Arrival(at) for at, _ in site.came], Rate(RATE)) == 0


@pytest.fixture
def tinyproxy() -> Iterator[servers.Server]:
    yield from running(servers.tinyproxy)


async def set_plan(app: App, proxy: servers.Server) -> None:
    await app.secrets.set("shop", "PROXY", "secret-of-tests", by="test")
    url = f"http://weft:{{{{secret:PROXY}}}}@127.0.0.1:{proxy.port}"
    plan = {"sites": ["127.0.0.1:*"], "exits": [{"name": "tiny", "url": url, "per_request": 1.0}]}
    await app.proxies.set("shop", "ways", plan, by="test")


async def test_a_spider_gets_to_a_site_that_blocks_it_through_the_proxy_of_its_plan(
    weft: App, site: Site, tinyproxy: servers.Server
) -> None:
    site.lets_in = {PROXY_ADDRESS}
    await set_plan(weft, tinyproxy)
    await run_all(weft, site, runs=1, PROXY_PLAN="ways")
    assert [peer for _, peer in site.came].count(PROXY_ADDRESS) == PAGES
    assert site.came[-1][1] == PROXY_ADDRESS
    (spent,) = [row for row in await weft.proxies.spent("shop", "ways", by="exit") if row["exit"]]
    assert (spent["requests"], spent["ok"], spent["cost"]) == (PAGES, PAGES, PAGES * 1_000_000)
    (log,) = [
        gzip.decompress(await weft.blobs.get(key) or b"") for key in await weft.blobs.keys("logs") if ".gz" in key
    ]
    assert b"all that I know: " in log
    assert b"secret-of-tests" not in log


async def test_a_crawl_gets_to_a_site_that_blocks_it_through_the_proxy_of_its_plan(
    weft: App, site: Site, tinyproxy: servers.Server
) -> None:
    site.lets_in = {PROXY_ADDRESS}
    await set_plan(weft, tinyproxy)
    spec = {
        "urls": [f"http://127.0.0.1:{site.port}/{number}" for number in range(PAGES)],
        "politeness": {"delay_seconds": 0.0, "robots": False},
        "fetching": {"proxies": "ways", "contact": "test@shop.example", "retry_seconds": 0.1},
        "keeping": {"warc": False},
    }
    crawl = await weft.crawls.create("shop", spec, by="test")

    async def is_over() -> bool:
        return (await weft.crawls.get(crawl.id)).state == "done"

    await eventually(is_over, timeout=90)
    counts = await weft.crawls.counts(crawl.id)
    assert (counts.done, counts.failed) == (PAGES, 0)
    assert [peer for _, peer in site.came].count(PROXY_ADDRESS) == PAGES


async def test_a_crawl_that_names_no_plan_of_its_project_says_so(weft: App, site: Site) -> None:
    spec = {
        "urls": [f"http://127.0.0.1:{site.port}/"],
        "fetching": {"proxies": "nowhere", "contact": "test@shop.example"},
    }
    with pytest.raises(Invalid, match="it must be a proxy plan of project shop"):
        await weft.crawls.create("shop", spec, by="test")
    await weft.runs.submit([NewRun(project="shop", task="asks", kind="crawl", spec=RunSpec(spec=spec))])

    async def is_said() -> bool:
        return any(each.reason == "there is no proxy plan shop/nowhere" for each in await weft.runs.find({}, limit=10))

    await eventually(is_said, timeout=90)
    assert site.came == []


async def test_two_crawls_of_one_address_ask_it_no_more_often_together_than_one_may(weft: App, site: Site) -> None:
    """Their hosts are two names of one machine."""
    delay = 0.2
    crawls = []
    for host in ("127.0.0.1", "localhost"):
        spec = {
            "urls": [f"http://{host}:{site.port}/{number}" for number in range(PAGES)],
            "politeness": {"delay_seconds": 0.0, "robots": False, "address_delay_seconds": delay},
            "fetching": {"contact": "test@shop.example"},
            "keeping": {"warc": False},
        }
        crawls.append(await weft.crawls.create("shop", spec, name=host, by="test"))

    async def are_over() -> bool:
        return all([(await weft.crawls.get(each.id)).state == "done" for each in crawls])

    await eventually(are_over, timeout=90)
    assert len(site.came) == 2 * PAGES
    times = [at for at, _ in site.came]
    assert times[-1] - times[0] >= (len(times) - 1) * delay - 0.15
