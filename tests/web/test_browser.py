"""A person with a real browser: edits a letter and sends it in again, makes a key, drains a worker."""

from __future__ import annotations

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.intake.making_dead_letters import deployed, kept, written
from tests.runs.acting import Hand
from tests.web.browser import browsing
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

HOSTILE = "</textarea><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
NARROWER = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def test_a_dead_letter_is_read_edited_and_resubmitted_in_a_browser(app: App, surfer: Surfer) -> None:
    await deployed(app)
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.OPERATOR})
    dead_letter = await kept(app)
    hostile = await kept(app, HOSTILE.encode(), message_id=HOSTILE, reason=HOSTILE + "long" * 100)
    async with browsing() as browser:
        await browser.open(surfer.address + "/dead-letters")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        assert "priority is 1.5" in await browser.text()
        await browser.press(f'a[href="/dead-letters/{dead_letter}"]')
        assert await browser.run("document.querySelector('#body').value") == written(priority=1.5).decode()
        await browser.type("#body", written(priority=5).decode())
        await browser.press("[value=resubmit]")
        assert "It became a run: run 1" in await browser.text()
        for dark, width in ((False, 1280), (False, 1030), (False, 900), (False, 780), (True, 390)):
            await browser.size(width, dark=dark)
            for path in ("/dead-letters?state=all", f"/dead-letters/{hostile}"):
                await browser.open(surfer.address + path)
                assert HOSTILE in await browser.run("document.body.textContent")
                assert await browser.run(NARROWER), f"{path} is wider than {width}"
                assert "owned" not in await browser.run("document.title")
        assert browser.complaints == []
    assert (await app.runs.get(1)).priority == 5


async def test_an_admin_makes_a_key_and_drains_a_worker_in_a_browser(app: App, surfer: Surfer) -> None:
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.ADMIN})
    await Hand.join(app, "crawler-with-a-name-that-is-long-enough-to-be-a-host.example.com", ["eu", "x" * 60])
    webhook, _ = await app.webhooks.create(f"https://hooks.example/{'long' * 60}", by="ada", kinds=["run_finished"])
    async with browsing() as browser:
        await browser.open(surfer.address + "/settings/keys/new")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        await browser.type("#name", "ci")
        await browser.press("main form button.btn-primary")
        token = await browser.text("#token")
        assert (await app.keys.caller(token, "")).name == "ci"
        assert token not in await browser.run("location.href")
        await browser.open(surfer.address + "/workers")
        await browser.press("main th a")
        await browser.run("document.querySelector('main summary').click()")
        await browser.press("main .sure button")
        assert "draining" in await browser.text()
        worker = (await app.workers.all())[0]
        settings = [
            f"/settings{each}" for each in ("", "/keys", "/users/new", "/users/ada", "/secrets", "/audit", "/about")
        ]
        paths = ["/workers", f"/workers/{worker.id}", "/workers/enrol", "/webhooks", f"/webhooks/{webhook.id}"]
        for dark, width in ((False, 1280), (True, 390)):
            await browser.size(width, dark=dark)
            for path in (*paths, f"/webhooks/{webhook.id}/edit", *settings, "/account"):
                await browser.open(surfer.address + path)
                assert await browser.run(NARROWER), f"{path} is wider than {width}"
        assert browser.complaints == []
    assert worker.state == "draining"
