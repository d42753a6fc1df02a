"""A person with a real browser follows a run of the example spider from start to finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.access.acting import PASSWORD
from tests.runs.acting import submit
from tests.servers.server import free_port
from tests.waiting import eventually
from tests.web.browser import Browser, browsing
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_app, open_worker
from weft.cli.serve import EXAMPLE_PROJECT, deploy_example
from weft.config import Config
from weft.http.application import open_server
from weft.web.site import WebSite
from weft.workers.heartbeat import Heartbeats

MINUTE = 60.0
HOSTILE = (
    "</pre></dd><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    + "\u202e" + "שלום" * 40 + "👩\u200d👩\u200d👧" * 30 + "Donaudampfschifffahrt" * 40
)  # fmt: skip
NARROWER = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
STATE = "document.querySelector('.run-heading .state').className"
SEES = """
window.seen = new Set([document.querySelector('.run-heading .state').className]);
new MutationObserver(() => window.seen.add(document.querySelector('.run-heading .state')?.className))
  .observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true, characterData: true });
"""


@asynccontextmanager
async def weft_with_example(folder: Path) -> AsyncIterator[App]:
    """A weft with the example project and the site that it crawls, and nobody who executes anything."""
    app = await open_app(Config(data_dir=str(folder), port=free_port(), heartbeat_seconds=0.2))
    server = open_server(app, demo=True, around=WebSite)
    try:
        await app.add_examples()
        await server.start("127.0.0.1", app.config.port)
        await deploy_example(app)
        await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.OPERATOR})
        yield app
    finally:
        await server.close()
        await app.close()


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    heartbeats = Heartbeats(app.protocol, 0.2)
    worker = open_worker(app, "w1", heartbeats)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await task
        heartbeats.close()


async def logged_in(browser: Browser, address: str) -> None:
    await browser.open(f"{address}/login")
    await browser.type("#name", "ada")
    await browser.type("#password", PASSWORD)
    await browser.press("main button")


async def test_a_run_is_followed_from_start_to_finish_without_a_reload(tmp_path: Path) -> None:
    async with weft_with_example(tmp_path / "data") as app, browsing() as browser:
        address = f"http://127.0.0.1:{app.config.port}"
        run_id = (await app.tasks.start(EXAMPLE_PROJECT, "quotes")).run_id
        await logged_in(browser, address)
        await browser.open(f"{address}/runs/{run_id}")
        assert await browser.run(STATE) == "state state-queued"
        await browser.run(SEES)
        await browser.run("document.querySelector('#calls ~ details:last-of-type').open = true")
        async with working(app):
            await eventually(lambda: browser.run(f"{STATE} === 'state state-succeeded'"), timeout=MINUTE)
        seen = await browser.run("[...window.seen].join(' ')")
        assert "state-queued" in seen
        items = (await app.items.stats(run_id))[-1].items
        assert items > 0
        await eventually(lambda: has_text(browser, ".run-figures", str(items)))
        assert await browser.run("document.querySelectorAll('.curve .uplot canvas').length") >= 2
        assert "First item" in await browser.text(".timeline-of-run")
        assert await browser.run("document.querySelector('#calls ~ details:last-of-type').open")
        assert browser.complaints == []
        await shows_hostile_values_as_text(app, browser, address)


async def shows_hostile_values_as_text(app: App, browser: Browser, address: str) -> None:
    """On a phone: nothing runs, nothing is wider than the screen."""
    spec = {"fail": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}, "args": {HOSTILE: HOSTILE}}
    run_id = await submit(app, spec=spec, tags=("a" * 60,), labels=("b" * 60,))
    await app.runs.cancel(run_id, HOSTILE)
    for width, dark in ((390, True), (1280, False)):
        await browser.size(width, dark=dark)
        await browser.open(f"{address}/runs/{run_id}")
        assert HOSTILE[:80] in await browser.run("document.querySelector('main').textContent")
        assert await browser.run(NARROWER), f"it is wider than {width}"
        assert "owned" not in await browser.run("document.title")
    assert browser.complaints == []


async def has_text(browser: Browser, selector: str, text: str) -> bool:
    return text in await browser.text(selector)
