"""A log in a real browser: followed while it grows, jumped through, and never held whole."""

from __future__ import annotations

from pathlib import Path

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from tests.waiting import eventually
from tests.web.browser import Browser, browsing
from tests.web.surfing import Surfer
from tests.web.test_log import HOSTILE, ended_with, said
from tests.workers.acting import ended, working
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

SCRIPT = r"""
echo begun
while [ ! -e "$GO" ]; do sleep 0.05; done
echo '2026-11-16 01:02:03 [shop] ERROR: the price is missing'
for number in $(seq 300); do echo "line $number"; done
printf '%s\n' "$HOSTILE"
while [ ! -e "$STOP" ]; do sleep 0.05; done
echo over
"""
TOP = "document.querySelector('.log-box').scrollTop = -document.querySelector('.log-box').scrollHeight"
BOTTOM = "document.querySelector('.log-box').scrollTop = 0"
FOLLOWS = "document.querySelector('[data-follow]').getAttribute('aria-pressed')"
CURRENT = "document.querySelector('.log-line.current')?.innerText ?? ''"
SEEN = "document.querySelector('[data-lines]').textContent"
PRESS = "document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true}}))"


HIDDEN = (
    "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)


async def sees(browser: Browser, script: str, words: str) -> None:
    """Wait until a line of JavaScript gives something that has these words."""

    async def seen() -> bool:
        return words in str(await browser.run(script))

    await eventually(seen, timeout=60)


async def opened(browser: Browser, surfer: Surfer, run_id: int) -> None:
    """Log in on the way to the log of a run."""
    await surfer.app.users.create("ada", PASSWORD, {EVERYWHERE: Role.VIEWER})
    await browser.size(1280)
    await browser.open(f"{surfer.address}/login?next=/runs/{run_id}/log")
    await browser.type("#name", "ada")
    await browser.type("#password", PASSWORD)
    await browser.press("main button")


async def test_a_run_is_followed_live_in_a_browser(app: App, surfer: Surfer, tmp_path: Path) -> None:
    go, stop = tmp_path / "go", tmp_path / "stop"
    env = {"HOSTILE": HOSTILE, "GO": str(go), "STOP": str(stop)}
    long = await ended_with(app, said("needle", level="ERROR") + b"".join(said(f"page {n}") for n in range(2, 5401)))
    async with working(app), browsing() as browser:
        run_id = await submit(app, kind="shell", spec={"script": SCRIPT, "env": env})
        await opened(browser, surfer, run_id)
        await sees(browser, SEEN, "begun")
        await sees(browser, FOLLOWS, "true")
        go.touch()
        await sees(browser, SEEN, HOSTILE)
        assert await browser.run("document.querySelector('.log-box').scrollTop") == 0
        await browser.run(TOP)
        await sees(browser, FOLLOWS, "false")
        await browser.run(PRESS.format("p"))
        await sees(browser, CURRENT, "the price is missing")
        assert (await browser.run("location.search + location.hash")) == "?attempt=1&line=2#L2"
        stop.touch()
        await ended(app, run_id)
        await sees(browser, "document.querySelector('[data-run-state]').innerText", "succeeded")
        await sees(browser, SEEN, "over")
        await browser.run(PRESS.format("n"))
        await sees(browser, "document.querySelector('[data-status]').innerText", "No error comes later.")
        assert await browser.run("document.title") == f"Log of run {run_id} · weft"
        await browser.open(surfer.address + long)
        for line in (*range(4701, 0, -500), 1):
            await browser.run(TOP)
            await sees(browser, f"document.querySelector('.log-line').dataset.line === '{line}'", "True")
        assert await browser.run("document.querySelectorAll('[data-lines] .log-line').length") == 5000
        await browser.run(BOTTOM)
        await sees(browser, "document.querySelector('[data-lines]').lastElementChild.dataset.line === '5400'", "True")
        assert browser.complaints == []


async def test_a_reader_sees_the_next_attempt_and_what_came_while_they_looked_elsewhere(
    app: App, surfer: Surfer
) -> None:
    run_id = await submit(app, retries=1, delay_seconds=0)
    hand = await Hand.join(app)
    async with browsing() as browser:
        await opened(browser, surfer, run_id)
        first = await hand.lease_one()
        await hand.ship(first, b"one\ntwo\n")
        await sees(browser, SEEN, "two")
        await app.blobs.put("one", b"one\ntwo\nthree\n")
        await hand.end(first, "failed", log_key="one", log_bytes=14)
        await sees(browser, SEEN, "three")
        await app.runs.wake_waiting()
        second = await hand.lease_one()
        await hand.ship(second, b"again\n" + b"x\n" * 100)
        await sees(browser, SEEN, "again")
        assert "three" not in await browser.run(SEEN)
        assert "attempt=2" in await browser.run("document.querySelector('.at-line').href")
        await browser.run(TOP)
        await sees(browser, FOLLOWS, "false")
        await hand.ship(second, b"held\n", 1)
        await sees(browser, "document.querySelector('[data-held]').textContent", "1 new")
        assert "held" not in await browser.run(SEEN)
        await browser.run(PRESS.format("f"))
        await sees(browser, SEEN, "held")
        await browser.run(HIDDEN.format("true"))
        await hand.ship(second, b"".join(b"number %d\n" % number for number in range(100_000)), 2)
        await browser.run(HIDDEN.format("false"))
        await sees(browser, SEEN, "number 99999")
        assert "held" not in await browser.run(SEEN)
        assert browser.complaints == []
