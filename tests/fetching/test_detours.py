"""A site that blocks: through a real proxy and back, on the real way out. Only the clock is set."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from tests import servers
from tests.conftest import SetClock, on_sqlite, running
from weft.address_guard import Guard
from weft.app import App
from weft.clock import SECOND
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest
from weft.proxies.client import FetchPostponed, ProxiedEgress, ProxyRouter
from weft.proxies.model import ProxyTurn, ProxyTurnReply

pytestmark = on_sqlite
PROJECT, PLAN = "shop", "ways"
PROXY_ADDRESS = "127.0.0.77"
TWELVE_MINUTES = 720.0


@pytest.fixture
def tinyproxy() -> Iterator[servers.Server]:
    yield from running(servers.tinyproxy)


@dataclass
class Site:
    """Answers whom it lets in; the others get 403."""

    lets_in: set[str]
    came: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        peer = writer.get_extra_info("peername")[0]
        self.came.append(peer)
        status = b"200 OK" if peer in self.lets_in else b"403 Forbidden"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage")
        writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site({PROXY_ADDRESS})
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    server.close()


class Crawl:
    """What a crawl does with its ways out."""

    def __init__(self, app: App, clock: SetClock, site: Site) -> None:
        self._url = f"http://127.0.0.1:{site.port}/"
        self.ways = ProxyRouter(PLAN, self._ask, lambda: clock.now / SECOND)
        self._app = app
        self.detours = ProxiedEgress(Egress(Guard(["127.0.0.0/8"]), user_agent="test"), self.ways, self._hang_up)

    async def _ask(self, turn: ProxyTurn) -> ProxyTurnReply:
        return await self._app.proxies.turn(PROJECT, turn)

    async def _hang_up(self) -> None: ...

    async def fetch(self) -> int | str:
        """The status, or why there is none; then the control plane knows of it."""
        try:
            return (await self.detours.fetch(FetchRequest(url=self._url))).status
        except FetchError as problem:
            return problem.kind
        finally:
            await self.ways.flush()


async def set_up(app: App, proxy: servers.Server, **more: object) -> None:
    await app.secrets.set(PROJECT, "PROXY", "secret-of-tests", by="test")
    url = f"http://weft:{{{{secret:PROXY}}}}@127.0.0.1:{proxy.port}"
    plan = {"sites": ["127.0.0.1:*"], "exits": [{"name": "tiny", "url": url, "per_request": 0.25, **more}]}
    await app.proxies.set(PROJECT, PLAN, plan, by="test")


async def test_a_blocked_site_is_asked_through_the_proxy_and_directly_again_when_probes_are_good(
    app: App, clock: SetClock, site: Site, tinyproxy: servers.Server
) -> None:
    await set_up(app, tinyproxy)
    crawl = Crawl(app, clock, site)
    assert [await crawl.fetch() for _ in range(4)] == ["blocked", "blocked", 200, 200]
    clock.forward(TWELVE_MINUTES)
    assert [await crawl.fetch() for _ in range(2)] == ["blocked", 200]  # a probe, which is bad
    site.lets_in.add("127.0.0.1")
    for _ in range(3):
        clock.forward(2 * TWELVE_MINUTES)
        assert [await crawl.fetch() for _ in range(2)] == [200, 200]
    clock.forward(1)
    assert await crawl.fetch() == 200
    await crawl.detours.close()
    direct, proxied = "127.0.0.1", PROXY_ADDRESS
    up, bad_probe = [direct, direct, proxied, proxied], [direct, proxied]
    assert site.came == [*up, *bad_probe, direct, proxied, direct, proxied, direct, direct, direct]
    (spent,) = [row for row in await app.proxies.spent(PROJECT, PLAN, by="exit") if row["exit"]]
    assert (spent["requests"], spent["cost"]) == (5, 1_250_000)
    assert spent["received"] > 5 * len("page")


async def test_a_proxy_that_is_gone_is_left_alone_and_the_site_is_put_off(
    app: App, clock: SetClock, site: Site, tinyproxy: servers.Server
) -> None:
    await set_up(app, tinyproxy)
    crawl = Crawl(app, clock, site)
    assert [await crawl.fetch() for _ in range(2)] == ["blocked", "blocked"]
    tinyproxy.kill()
    ended = [await crawl.fetch() for _ in range(5)]
    assert ended == ["proxy"] * 3 + ["site_paused"] * 2
    tinyproxy.start()
    clock.forward(60)
    assert await crawl.fetch() == 200
    await crawl.detours.close()


async def test_a_budget_that_is_used_up_puts_the_site_off(
    app: App, clock: SetClock, site: Site, tinyproxy: servers.Server
) -> None:
    await set_up(app, tinyproxy)
    kept = await app.proxies.get(PROJECT, PLAN)
    exits = [{"name": each.name, "url": each.url, "per_request": 0.25} for each in kept.plan.exits]
    plan = {"sites": ["127.0.0.1:*"], "exits": exits, "budget": {"day_stop": 0.5}}
    await app.proxies.set(PROJECT, PLAN, plan, by="test")
    crawl = Crawl(app, clock, site)
    assert [await crawl.fetch() for _ in range(5)] == ["blocked", "blocked", 200, 200, "site_paused"]
    with pytest.raises(FetchPostponed, match=r"the budget of the day, 0\.5, is used up"):
        await crawl.detours.fetch(FetchRequest(url=f"http://127.0.0.1:{site.port}/"))
    await crawl.detours.close()
