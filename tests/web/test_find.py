"""The page that finds things by their names, and what the palette is told."""

from __future__ import annotations

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.crawls.steering import a_crawl
from tests.projects.making import a_version
from tests.tasks.scene import keep, noop
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

FOUND = "document.querySelector('#palette-found').textContent"


async def test_what_was_found_leads_to_its_page(app: App, surfer: Surfer) -> None:
    await a_version(app, "shop")
    await keep(app, noop("shop-front", None, project="shop"), noop("at-the-shop", None, project="bank"))
    await surfer.log_in(grants={EVERYWHERE: Role.VIEWER})
    page = await surfer.get("/find?q=shop")
    for place in ("/projects/shop", "/tasks/shop/shop-front", "/tasks/bank/at-the-shop"):
        assert f'href="{place}"' in page.text
    told = (await surfer.get("/find.json?q=prices")).text
    assert '{"kind":"spider","name":"shop/prices","page":"/projects/shop/spiders/prices"}' in told
    assert "Nothing that you may see" in (await surfer.get("/find?q=%3Cscript%3E")).text
    assert "<script>" not in (await surfer.get("/find?q=%3Cscript%3E")).text
    assert "Look for anything" in (await surfer.get("/find")).text
    assert (await surfer.get("/find?q=" + "x" * 300)).status == 200
    assert (await surfer.get("/find?q=%00")).status == 422


async def test_a_crawl_that_was_found_leads_to_its_page(app: App, surfer: Surfer) -> None:
    await a_crawl(app)
    await surfer.log_in(grants={EVERYWHERE: Role.VIEWER})
    for part in ("site.ex", "1"):
        told = (await surfer.get(f"/find.json?q={part}")).text
        assert '{"kind":"crawl","name":"1 · shop/site.example","page":"/crawls/1"}' in told
    assert 'href="/crawls/1"' in (await surfer.get("/find?q=site")).text


async def test_the_palette_finds_a_task_with_the_keyboard_alone(app: App, surfer: Surfer) -> None:
    await keep(app, noop("shop-front", None, project="shop"))
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.VIEWER})
    async with browsing() as browser:
        await browser.open(surfer.address + "/login?next=/find")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button.btn-primary")
        for kind in ("rawKeyDown", "keyUp"):
            await browser.say("Input.dispatchKeyEvent", type=kind, modifiers=2, key="k", code="KeyK")
        assert await browser.run("document.querySelector('#palette').open && document.activeElement.type") == "search"
        await browser.say("Input.insertText", text="front")
        await eventually(lambda: browser.run(f"{FOUND}.includes('shop-front')"))
        assert await browser.run("document.activeElement.getAttribute('aria-activedescendant')") == "palette-0"
        for kind in ("rawKeyDown", "keyUp"):
            await browser.say("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)
        await eventually(lambda: browser.run("location.pathname === '/tasks/shop/shop-front'"))
        assert browser.complaints == []
