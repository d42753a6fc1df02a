"""A person with a real browser: logs in, sees a letter, edits it, sends it in again."""

from __future__ import annotations

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.intake.letter_making import deployed, kept, written
from tests.web.browser import browsing
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

HOSTILE = "</textarea><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
NARROWER = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def test_a_letter_is_read_edited_and_resubmitted_in_a_browser(app: App, surfer: Surfer) -> None:
    await deployed(app)
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.OPERATOR})
    letter = await kept(app)
    hostile = await kept(app, HOSTILE.encode(), message_id=HOSTILE, reason=HOSTILE + "long" * 100)
    async with browsing() as browser:
        await browser.open(surfer.address + "/")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        assert "priority is -5000" in await browser.text()
        await browser.press(f'a[href="/letters/{letter}"]')
        assert await browser.run("document.querySelector('#body').value") == written(priority=-5000).decode()
        await browser.type("#body", written(priority=5).decode())
        await browser.press("[value=resubmit]")
        assert "It became run 1." in await browser.text()
        for dark, width in ((False, 1280), (False, 1030), (False, 900), (False, 780), (True, 390)):
            await browser.size(width, dark=dark)
            for path in ("/letters?state=all", f"/letters/{hostile}"):
                await browser.open(surfer.address + path)
                assert HOSTILE in await browser.run("document.body.textContent")
                assert await browser.run(NARROWER), f"{path} is wider than {width}"
                assert "owned" not in await browser.run("document.title")
        assert browser.complaints == []
    assert (await app.runs.get(1)).priority == 5
