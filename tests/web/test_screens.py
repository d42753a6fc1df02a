"""Pages that somebody has before them: what they are sent, when, and what never."""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from tests.access.acting import PASSWORD
from tests.api.test_lines import certificate
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import submit
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Grants, Role
from weft.app import App
from weft.http.application import open_server
from weft.http.performer import Performer
from weft.http.server import Server
from weft.web import live_pages
from weft.web.site import WebSite

__all__ = ["certificate"]

pytestmark = on_sqlite

LOGGED_OUT, REFUSED, LATER, BUSY = 4401, 1008, 1012, 1013
SHOP: Grants = {"shop": Role.VIEWER}


class Stage:
    """A site that answers on a port, and whoever comes to look."""

    def __init__(self, app: App, site: WebSite, address: str) -> None:
        self.app, self.site, self.address = app, site, address

    @asynccontextmanager
    async def person(self, name: str, grants: Grants = SHOP) -> AsyncIterator[Surfer]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            somebody = Surfer(session, self.app, self.address)
            await somebody.log_in(name, grants)
            yield somebody


class Line:
    """The WebSocket of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def show(self, page: str, *, hidden: bool = False) -> None:
        await self.socket.send_json({"page": page, "hidden": hidden})

    async def told(self) -> dict[str, Any]:
        """What is sent next."""
        message = await self.socket.receive(timeout=20)
        assert message.type == aiohttp.WSMsgType.BINARY, message
        return dict(msgspec.json.decode(gzip.decompress(message.data)))

    async def told_of(self, words: str) -> dict[str, Any]:
        """What is sent once it has these words in it."""
        while words not in (told := await self.told())["main"]:
            pass
        return told

    async def ends(self) -> int | None:
        """With which code it is closed; whatever comes before that must be nothing."""
        message = await self.socket.receive(timeout=20)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        return self.socket.close_code


@asynccontextmanager
async def line(person: Surfer, page: str = "", **headers: str) -> AsyncIterator[Line]:
    told = {"Origin": person.address} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with person.session.ws_connect(person.address + "/live", headers=told) as socket:
        found = Line(socket)
        if page:
            await found.show(page)
        yield found


@asynccontextmanager
async def staged(app: App, port: int = 0) -> AsyncIterator[Stage]:
    sites: list[WebSite] = []

    def around(of: App, api: Any, performer: Performer) -> WebSite:
        sites.append(WebSite(of, api, performer))
        return sites[0]

    server: Server = open_server(app, around=around)
    port = await server.start("127.0.0.1", port)
    try:
        yield Stage(app, sites[0], f"http://127.0.0.1:{port}")
    finally:
        await server.close()


@pytest_asyncio.fixture
async def stage(app: App) -> AsyncIterator[Stage]:
    async with staged(app) as found:
        yield found


@pytest.fixture(autouse=True)
def faultless(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens to a line, it is no fault that the log tells of."""
    yield
    assert [record.message for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


def keeping() -> list[asyncio.Task[Any]]:
    """The tasks that keep pages."""
    return [task for task in asyncio.all_tasks() if "LivePages" in getattr(task.get_coro(), "__qualname__", "")]


async def test_a_change_is_seen_by_who_has_the_page_before_them(stage: Stage) -> None:
    async with stage.person("ada") as ada, line(ada, "/runs") as screen:
        first = await screen.told()
        assert first["title"].endswith("· weft")
        run_id = await submit(stage.app)
        told = await screen.told_of(f'/runs/{run_id}"')
        assert "<html" not in told["main"]
        await stage.app.runs.cancel(run_id)
        assert 'class="state state-cancelled"' in (await screen.told_of("state-cancelled"))["main"]


async def test_nothing_is_sent_that_is_as_it_was(stage: Stage) -> None:
    async with stage.person("ada") as ada, line(ada, "/runs?project=shop&state=failed") as screen:
        before = await screen.told()
        await submit(stage.app)
        screen_again = await _made_again(stage)
        assert screen_again
        await screen.show("/runs?project=shop")
        assert await screen.told() != before


async def _made_again(stage: Stage) -> bool:
    """True once the only page was made again."""
    [kept] = stage.site.screens._screens.values()
    made_at = kept.made_at
    return bool(await eventually(lambda: kept.made_at > made_at))


async def test_who_has_logged_out_is_told_nothing_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "RECHECK_SECONDS", 0.0)
    async with stage.person("ada") as ada, line(ada, "/runs") as screen:
        await screen.told()
        await ada.send("/logout", (await ada.get("/find")).fields)
        await submit(stage.app)
        assert await screen.ends() == LOGGED_OUT
        assert stage.site.screens.kinds == ()
    await eventually(lambda: not keeping())


async def test_who_was_given_other_rights_is_told_nothing_more_with_the_old_ones(stage: Stage) -> None:
    async with stage.person("ada") as ada, line(ada, "/runs") as screen:
        await screen.told()
        await stage.app.users.grant("ada", {"bank": Role.VIEWER})
        await submit(stage.app)
        assert await screen.ends() == LOGGED_OUT


async def test_no_reader_is_sent_what_was_made_with_the_rights_of_another(stage: Stage) -> None:
    """A reader whose rights have just grown makes no page for those who shared it."""
    async with (
        stage.person("ada") as ada,
        stage.person("bob") as bob,
        line(ada, "/runs") as one,
        line(bob, "/runs") as other,
    ):
        await one.told()
        await other.told()
        [kept] = stage.site.screens._screens.values()
        for reader in kept.readers:
            reader.checked_at = float("inf")  # so that it is not asked again whether the rights are the same
            reader.visit.session = {**reader.visit.session, "grants": {"shop": "viewer", "news": "viewer"}}
        await submit(stage.app, project="shop")
        assert {await one.ends(), await other.ends()} == {LATER}


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
async def test_a_page_of_another_site_sees_nothing(stage: Stage, origin: str) -> None:
    async with stage.person("ada") as ada:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with line(ada, Origin=origin):
                pass
        assert refused.value.status == 403


async def test_another_host_is_not_served(stage: Stage) -> None:
    async with stage.person("ada") as ada:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with line(ada, Host="evil.example"):
                pass
        assert refused.value.status == 403


async def test_who_is_not_logged_in_is_sent_to_do_so(stage: Stage) -> None:
    async with aiohttp.ClientSession() as session, line(Surfer(session, stage.app, stage.address), "/runs") as screen:
        assert await screen.ends() == LOGGED_OUT


async def test_a_page_that_nobody_sees_is_not_made(stage: Stage) -> None:
    async with stage.person("ada") as ada, line(ada, "/runs") as screen:
        await screen.told()
        await screen.show("/runs", hidden=True)
        await eventually(lambda: stage.site.screens.kinds == ())
        await eventually(lambda: keeping() == [])
        run_id = await submit(stage.app)
        await screen.show("/runs")
        assert f'/runs/{run_id}"' in (await screen.told())["main"]


async def test_readers_with_the_same_rights_share_a_page_that_has_no_ones_token(stage: Stage) -> None:
    async with (
        stage.person("ada") as ada,
        stage.person("bob") as bob,
        line(ada, "/runs") as one,
        line(bob, "/runs") as other,
    ):
        await one.told(), await other.told()
        assert len(stage.site.screens.kinds) == 1
        run_id = await submit(stage.app)
        seen, also = await one.told_of(f'/runs/{run_id}"'), await other.told_of(f'/runs/{run_id}"')
        assert seen["token"] == also["token"]
        for person in (ada, bob):
            assert (await person.get("/find")).fields["csrf"] not in seen["main"] + also["main"]


async def test_readers_with_other_rights_languages_or_names_do_not_share(stage: Stage) -> None:
    async with (
        stage.person("ada") as ada,
        stage.person("bob") as bob,
        stage.person("cy", {"bank": Role.VIEWER}) as cy,
        line(ada, "/runs") as first,
        line(ada, "/runs", Accept_Language="ja") as second,
        line(cy, "/runs") as third,
        line(ada, "/find") as fourth,
        line(bob, "/find") as fifth,
    ):
        for each in (first, second, third, fourth, fifth):
            await each.told()
        assert len(stage.site.screens.kinds) == 5
        hidden_run = await submit(stage.app, project="bank")
        assert f'/runs/{hidden_run}"' in (await third.told_of(f'/runs/{hidden_run}"'))["main"]
        shown_run = await submit(stage.app, project="shop")
        assert f'/runs/{hidden_run}"' not in (await first.told_of(f'/runs/{shown_run}"'))["main"]


async def test_readers_who_reach_weft_by_other_names_do_not_share_its_commands(stage: Stage) -> None:
    """Whoever asks by another name or port must not put it into what others copy."""
    run_id, port = await submit(stage.app), stage.address.rpartition(":")[2]
    async with (
        stage.person("eve") as eve,
        stage.person("ada") as ada,
        line(eve, f"/runs/{run_id}", Host="localhost:6666") as odd,
        line(ada, f"/runs/{run_id}") as plain,
    ):
        assert "http://localhost:6666/v1/runs" in (await odd.told())["main"]
        seen = (await plain.told())["main"]
        assert f"http://127.0.0.1:{port}/v1/runs" in seen
        assert "6666" not in seen


@pytest.mark.parametrize(
    "message", [b"\xff", "", "x", "[]", '{"page": 7}', '{"page": "runs"}', '{"page": "/' + "x" * 9000 + '"}']
)
async def test_what_is_no_wish_ends_the_conversation(stage: Stage, message: str | bytes) -> None:
    async with stage.person("ada") as ada, line(ada) as screen:
        await (screen.socket.send_bytes(message) if isinstance(message, bytes) else screen.socket.send_str(message))
        assert await screen.ends() == REFUSED


@pytest.mark.parametrize("page", ["/nowhere", "/runs/999999", "/static/x", "/logout", "/runs.json", "/\x00", "//x"])
async def test_a_page_that_there_is_not_is_no_fault_and_others_follow(stage: Stage, page: str) -> None:
    async with stage.person("ada") as ada, line(ada, page) as screen:
        await eventually(lambda: [each for each in stage.site.screens._screens.values() if each.made_at > 0])
        await screen.show("/runs")
        assert "main" in await screen.told()


async def test_there_are_only_so_many_and_one_person_has_not_all_of_them(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.web.live_pages.MOST_VIEWERS", 3)
    async with staged(app) as stage, stage.person("ada") as ada, stage.person("bob") as bob:
        async with line(ada, "/runs") as one, line(ada, "/runs") as two:
            await one.told(), await two.told()
            async with line(ada) as third:
                assert await third.ends() == BUSY
            async with line(bob, "/runs") as other:
                await other.told()
                async with line(bob) as last:
                    assert await last.ends() == BUSY
        async with line(ada, "/runs") as again:
            await again.told()


async def test_nothing_is_left_behind_when_all_have_gone(stage: Stage) -> None:
    async with stage.person("ada") as ada:
        for page in ("/runs", "/dead-letters", "/find"):
            async with line(ada, page) as screen:
                await screen.told()
        async with line(ada, "/runs") as one, line(ada, "/dead-letters") as other:
            await one.told(), await other.told()
            await eventually(lambda: len(keeping()) == 3)
    await eventually(lambda: not keeping() and stage.site.screens.kinds == ())


async def test_all_are_sent_away_when_the_server_ends(app: App) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with staged(app) as stage:
            ada = Surfer(session, app, stage.address)
            await ada.log_in("ada", SHOP)
            ours = {"Origin": stage.address}
            sockets = [await session.ws_connect(f"{stage.address}/live", headers=ours) for _ in range(2)]
            for each in sockets:
                await each.send_json({"page": "/runs"})
                await Line(each).told()
            ending = [asyncio.create_task(Line(each).ends()) for each in sockets]
            await asyncio.sleep(0)
        assert await asyncio.gather(*ending) == [LATER, LATER]
    await eventually(lambda: not keeping())


async def test_links_begin_with_the_path_that_a_proxy_tells_and_names_may_have_any_character(
    another_app: OpenApp,
) -> None:
    app = await another_app(trusted_proxies="127.0.0.1")
    told = {"X_Forwarded_Prefix": "/weft", "X_Forwarded_Proto": "https"}
    async with staged(app) as stage, stage.person("ada") as ada, line(ada, "/runs?q=%C3%A9", **told) as screen:
        run_id = await submit(app)
        await screen.show("/runs")
        assert f'href="/weft/runs/{run_id}"' in (await screen.told_of(f"/runs/{run_id}"))["main"]
        assert {kind.scheme for kind in stage.site.screens.kinds} == {"https"}


async def test_pages_are_live_over_tls(another_app: OpenApp, certificate: tuple[Path, Path]) -> None:
    chain, private = certificate
    app = await another_app(tls_certificate=str(chain), tls_key=str(private))
    line_of = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(chain)))
    async with staged(app) as stage, aiohttp.ClientSession(connector=line_of) as session:
        ada = Surfer(session, app, stage.address.replace("http://127.0.0.1", "https://localhost"))
        assert "Secure" in (await ada.log_in("ada", SHOP)).headers["Set-Cookie"]
        async with line(ada, "/runs") as screen:
            run_id = await submit(app)
            await screen.told_of(f'/runs/{run_id}"')
            assert {kind.scheme for kind in stage.site.screens.kinds} == {"https"}


def shows(run_id: int) -> str:
    """A line of JavaScript that tells whether the page shows a run."""
    return f"document.querySelector('main').innerHTML.includes('/runs/{run_id}\"')"


async def test_a_browser_says_when_the_server_is_away_and_comes_back_by_itself(another_app: OpenApp) -> None:
    async with browsing() as browser:
        app = await another_app()
        await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.VIEWER})
        async with staged(app) as stage:
            await browser.open(stage.address + "/login?next=/runs")
            await browser.type("#name", "ada")
            await browser.type("#password", PASSWORD)
            await browser.press("main button.btn-primary")
            await browser.run("window.stayed = true")
            first = await submit(app)
            await eventually(lambda: browser.run(shows(first)))
            assert await browser.run("document.querySelector('#away').hidden")
        await eventually(lambda: browser.run("!document.querySelector('#away').hidden"))
        assert "Reconnecting" in await browser.text("#away")
        port = int(stage.address.rpartition(":")[2])
        second_app = await another_app()
        second = await submit(second_app)
        async with staged(second_app, port):
            await eventually(lambda: browser.run("document.querySelector('#away').hidden"), timeout=60)
            await eventually(
                lambda: browser.run(f"document.querySelector('main').innerHTML.includes('/runs/{second}\"')"),
                timeout=60,
            )
            assert await browser.run("window.stayed") is True
