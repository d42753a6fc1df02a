"""A log in a real browser: followed while it grows, jumped through, and never held whole."""

from __future__ import annotations

from pathlib import Path

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.waiting import eventually
from tests.web.browser import browsing
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


async def test_a_run_is_followed_live_in_a_browser(app: App, surfer: Surfer, tmp_path: Path) -> None:
    go, stop = tmp_path / "go", tmp_path / "stop"
    env = {"HOSTILE": HOSTILE, "GO": str(go), "STOP": str(stop)}
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.VIEWER})
    long = await ended_with(app, said("needle", level="ERROR") + b"".join(said(f"page {n}") for n in range(2, 5401)))
    async with working(app), browsing() as browser:

        async def sees(script: str, words: str) -> None:
            async def seen() -> bool:
                return words in str(await browser.run(script))

            await eventually(seen, timeout=60)

        run_id = await submit(app, kind="shell", spec={"script": SCRIPT, "env": env})
        await browser.size(1280)
        await browser.open(f"{surfer.address}/login?next=/runs/{run_id}/log")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        await sees(SEEN, "begun")
        assert await browser.run(FOLLOWS) == "true"
        go.touch()
        await sees(SEEN, HOSTILE)
        assert await browser.run("document.querySelector('.log-box').scrollTop") == 0
        await browser.run(TOP)
        await sees(FOLLOWS, "false")
        await browser.run(PRESS.format("p"))
        await sees(CURRENT, "the price is missing")
        assert (await browser.run("location.search + location.hash")) == "?attempt=1&line=2#L2"
        stop.touch()
        await ended(app, run_id)
        await sees("document.querySelector('[data-run-state]').innerText", "succeeded")
        await sees(SEEN, "over")
        await browser.run(PRESS.format("n"))
        await sees("document.querySelector('[data-status]').innerText", "No error comes later.")
        assert await browser.run("document.title") == f"Log of run {run_id} · weft"
        await browser.open(surfer.address + long)
        for line in (*range(4701, 0, -500), 1):
            await browser.run(TOP)
            await sees(f"document.querySelector('.log-line').dataset.line === '{line}'", "True")
        assert await browser.run("document.querySelectorAll('[data-lines] .log-line').length") == 5000
        await browser.run(BOTTOM)
        await sees("document.querySelector('[data-lines]').lastElementChild.dataset.line === '5400'", "True")
        assert browser.complaints == []
