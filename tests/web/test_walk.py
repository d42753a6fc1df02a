"""Every page, opened in a real browser: wide, in the dark, and on a phone.

Each must be there, be no wider than the screen, make the browser complain of nothing, and have no serious finding of
axe. With ``WEFT_PICTURES=folder`` it is photographed as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.conftest import SetClock, on_sqlite
from tests.web.browser import Browser, browsing
from tests.web.furnishing import furnish
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.web.site import PAGES

AXE = Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = os.environ.get("WEFT_PICTURES", "")
WIDTH, PHONE = 1280, 390
LOOK = """(() => ({
  status: performance.getEntriesByType("navigation")[0].responseStatus,
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  title: document.title,
  headings: [...document.querySelectorAll("main h1")].length,
}))()"""
SCAN = """axe.run(document, {resultTypes: ["violations"] %s}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => each.id + ": " + each.nodes.slice(0, 3)
    .map((node) => node.html.slice(0, 160) + " (" + node.failureSummary.slice(0, 200) + ")").join(" | ")))"""
EVERY_RULE, CONTRAST = "", ', runOnly: ["color-contrast"]'

EXAMPLES: dict[str, list[str]] = {
    "/": ["/"],
    "/login": [],
    "/runs": ["/runs", "/runs?state=failed", "/runs?project=nowhere"],
    "/runs/{run_id}": ["/runs/{run_id}", "/runs/{failed_run}", "/runs/{running_run}", "/runs/{cancelled_run}"],
    "/runs/{run_id}/again": ["/runs/{run_id}/again"],
    "/runs/{run_id}/log": ["/runs/{failed_run}/log", "/runs/{running_run}/log"],
    "/runs/{run_id}/log/errors": ["/runs/{failed_run}/log/errors"],
    "/runs/{run_id}/items": ["/runs/{run_id}/items"],
    "/runs/{run_id}/items/{attempt}/{seq}": ["/runs/{run_id}/items/{attempt}/{seq}"],
    "/datasets": ["/datasets"],
    "/datasets/{project}/{name}": ["/datasets/shop/prices"],
    "/datasets/{project}/{name}/runs": ["/datasets/shop/prices/runs"],
    "/datasets/{project}/{name}/records/{record_id}": ["/datasets/shop/prices/records/{record_id}"],
    "/datasets/{project}/{name}/fields": ["/datasets/shop/prices/fields"],
    "/datasets/{project}/{name}/destinations": ["/datasets/shop/prices/destinations"],
    "/dead-letters": ["/dead-letters"],
    "/dead-letters/{dead_letter_id}": ["/dead-letters/{dead_letter_id}"],
    "/find": ["/find?q=prices"],
    "/guest/{token}": ["/guest/{token}", "/guest/{dataset_token}"],
    "/guest/{token}/datasets/{name}": ["/guest/{token}/datasets/prices"],
    "/guest/{token}/datasets/{name}/export": [],
    "/tasks": ["/tasks"],
    "/tasks/{project}/{name}": ["/tasks/shop/prices", "/tasks/shop/tidy"],
    "/tasks/new": ["/tasks/new"],
    "/tasks/{project}/{name}/edit": ["/tasks/shop/prices/edit"],
    "/tasks/import": ["/tasks/import"],
    "/tasks/export": [],
    "/tasks/graph": ["/tasks/graph"],
    "/schedules": ["/schedules"],
    "/schedules/preview": [],
    "/projects": ["/projects"],
    "/projects/{project}": ["/projects/shop"],
    "/projects/{project}/settings": ["/projects/shop/settings"],
    "/projects/{project}/versions": ["/projects/shop/versions"],
    "/projects/{project}/versions/{version}": ["/projects/shop/versions/1.1"],
    "/projects/{project}/deploy": ["/projects/shop/deploy"],
    "/projects/{project}/deploys/{deploy}": ["/projects/shop/deploys/{deploy}", "/projects/shop/deploys/unknown"],
    "/projects/{project}/spiders/{spider:path}": ["/projects/shop/spiders/prices"],
    "/projects/{project}/spiders/{spider:path}/run": ["/projects/shop/spiders/prices/run"],
    "/projects/{project}/guest-links": ["/projects/shop/guest-links"],
    "/crawls": ["/crawls", "/crawls?state=stopped"],
    "/crawls/new": ["/crawls/new"],
    "/crawls/{crawl_id}": ["/crawls/{crawl_id}?url=https://elsewhere.example/"],
    "/crawls/{crawl_id}/hosts": ["/crawls/{crawl_id}/hosts"],
    "/crawls/{crawl_id}/urls": ["/crawls/{crawl_id}/urls?state=done"],
    "/crawls/{crawl_id}/skips": ["/crawls/{crawl_id}/skips"],
    "/workers": ["/workers"],
    "/workers/enrol": ["/workers/enrol"],
    "/workers/{name}": ["/workers/north-1"],
    "/webhooks": ["/webhooks"],
    "/webhooks/new": ["/webhooks/new"],
    "/webhooks/{webhook_id}": ["/webhooks/{webhook_id}"],
    "/webhooks/{webhook_id}/edit": ["/webhooks/{webhook_id}/edit"],
    "/settings": ["/settings"],
    "/settings/keys": ["/settings/keys"],
    "/settings/keys/new": ["/settings/keys/new"],
    "/settings/keys/{key_id}": ["/settings/keys/{key_id}"],
    "/settings/users": ["/settings/users"],
    "/settings/users/new": ["/settings/users/new"],
    "/settings/users/{name}": ["/settings/users/grace"],
    "/settings/secrets": ["/settings/secrets"],
    "/settings/audit": ["/settings/audit"],
    "/settings/audit/verify": ["/settings/audit/verify"],
    "/settings/about": ["/settings/about"],
    "/account": ["/account"],
}
"""An address for each page, or several for one that looks different; none for what is a file, or seen before the login.
Names in brackets are those of the furnisher."""


def test_every_page_has_an_example_to_walk_to() -> None:
    pages = {path for path, methods in PAGES.items() if "GET" in methods}
    assert pages - EXAMPLES.keys() == set(), "give each of these an address in EXAMPLES"
    assert EXAMPLES.keys() - pages == set(), "these are no pages"


class Walker:
    """Goes from page to page, and keeps a list of what is wrong."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address
        self.wrong: list[str] = []
        self._axe = AXE.read_text(encoding="utf-8")

    async def visit(self, path: str, status: int = 200) -> None:
        await self.browser.size(WIDTH)
        await self.browser.open(self.address + path)
        await self._look(path, status, f"{WIDTH}")
        await self._scan(path, EVERY_RULE, "light")
        await self._photograph(path, "wide")
        await self.browser.size(WIDTH, dark=True)
        await self._scan(path, CONTRAST, "dark")
        await self._photograph(path, "dark")
        await self.browser.size(PHONE, height=844)
        await self._look(path, status, f"{PHONE}")
        await self._photograph(path, "phone")
        self.wrong += [f"{path}: {each}" for each in self.browser.complaints if not _is_expected(each, status)]
        self.browser.complaints.clear()

    async def _look(self, path: str, status: int, width: str) -> None:
        seen: dict[str, Any] = await self.browser.run(LOOK)
        if seen["status"] != status:
            self.wrong.append(f"{path} answers {seen['status']}")
        if seen["wide"] > 0:
            self.wrong.append(f"{path} is {seen['wide']} wider than {width}")
        if seen["headings"] != 1:
            self.wrong.append(f"{path} has {seen['headings']} first headings")
        if "owned" in seen["title"]:
            self.wrong.append(f"{path} has run a script of somebody else's")

    async def _scan(self, path: str, rules: str, look: str) -> None:
        if await self.browser.run("typeof axe") == "undefined":
            await self.browser.run(self._axe + ";0")
        answer = await self.browser.say(
            "Runtime.evaluate", expression=SCAN % rules, awaitPromise=True, returnByValue=True
        )
        self.wrong += [f"{path} ({look}): {each}" for each in answer["result"]["value"]]

    async def _photograph(self, path: str, look: str) -> None:
        if PICTURES:
            folder = Path(PICTURES)
            await asyncio.sleep(0.3)  # what scripts draw is drawn by then; nothing is checked by it
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", _short(path).lower()).strip("-") or "overview"
            await self.browser.photograph(folder / f"{name}.{look}.png")


def _short(path: str) -> str:
    """An address without the long token of a guest."""
    return re.sub(r"/guest/[\w-]+", "/guest", path)


def _is_expected(complaint: str, status: int) -> bool:
    """A browser says so itself where a page is a problem."""
    return status != 200 and f"status of {status}" in complaint


@on_sqlite
@pytest.mark.timeout(600)
async def test_every_page_is_sound_wide_in_the_dark_and_on_a_phone(app: App, clock: SetClock, surfer: Surfer) -> None:
    values = await furnish(app, clock)
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.ADMIN})
    async with browsing() as browser:
        walker = Walker(browser, surfer.address)
        await walker.visit("/login?next=/runs")
        await browser.size(WIDTH)
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button.btn-primary")
        for path in (each.format(**values) for examples in EXAMPLES.values() for each in examples):
            await walker.visit(path)
        await walker.visit("/runs/999999", 404)
        await walker.visit("/nowhere", 404)
    assert walker.wrong == [], json.dumps(walker.wrong, indent=1)
