"""The pages of webhooks: making one, what it was sent, and doing something about it."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.web.surfing import Shown, Surfer
from tests.webhooks.receiving import Receiver
from weft.access.model import Role
from weft.app import App
from weft.web.pages.webhooks import MEANINGS
from weft.web.rendering import sentence
from weft.webhooks.model import FAILURES_TO_OPEN

pytestmark = on_sqlite

ADMIN = {"*": Role.ADMIN}
URL = "https://hooks.example/weft"


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


async def made(app: App, url: str = URL, **more: Any) -> int:
    webhook, _ = await app.webhooks.create(url, by="ada", **more)
    return webhook.id


async def pressed(surfer: Surfer, webhook: int, act: str, **more: str) -> Shown:
    fields = (await surfer.get(f"/webhooks/{webhook}")).fields
    return await surfer.send(f"/webhooks/{webhook}", fields | {"act": act} | more)


async def delivering(app: App) -> None:
    await app.courier.tick()
    await app.courier.rest()


async def test_webhooks_are_listed_with_what_they_are_told_and_how_they_stand(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    assert "No address is told anything" in (await surfer.get("/webhooks")).text
    one, other = await made(app, kinds=["run_finished"]), await made(app, "https://blog.example/", project="blog")
    await app.webhooks.change(other, active=False)
    page = (await surfer.get("/webhooks")).text
    rows = [page.split(f'id="webhook-{each}"')[1].split("</tr>")[0] for each in (one, other)]
    assert ["run_finished" in each for each in rows] == [True, False]
    assert ["all projects" in each for each in rows] == [True, False]
    assert ["state-active" in each for each in rows] == [True, False]
    assert ["state-disabled" in each for each in rows] == [False, True]
    assert URL not in (await surfer.get("/webhooks?project=blog")).text


async def test_a_webhook_is_made_and_its_secret_is_shown_once(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    form = await surfer.get("/webhooks/new")
    typed = [
        *form.fields.items(),
        ("url", URL),
        ("project", "shop"),
        ("kinds", "run_finished"),
        ("kinds", "run_queued"),
    ]
    page = await surfer.ask("POST", "/webhooks/new", data=typed)
    [webhook] = await app.webhooks.find()
    assert (webhook.url, webhook.project, webhook.kinds) == (URL, "shop", ("run_finished", "run_queued"))
    [secret] = re.findall(r'<pre id="secret"[^>]*>(whsec_.*?)</pre>', page.text)
    assert page.headers["Cache-Control"] == "no-store"
    for path in (
        "/webhooks",
        f"/webhooks/{webhook.id}",
        f"/webhooks/{webhook.id}/edit",
        f"/webhooks/{webhook.id}.json",
    ):
        assert secret not in (await surfer.get(path)).text


async def test_what_is_wrong_with_a_webhook_stands_beside_its_field_and_what_was_typed_stays(
    app: App, surfer: Surfer
) -> None:
    await surfer.log_in(grants={"shop": Role.ADMIN})
    typed = (await surfer.get("/webhooks/new")).fields | {"url": 'ftp://"x', "project": "shop", "kinds": "run_started"}
    page = await surfer.send("/webhooks/new", typed)
    assert (page.status, 'id="url-error"' in page.text) == (422, True)
    assert 'value="ftp://&#34;x"' in page.text
    assert 'value="run_started" checked' in page.text
    elsewhere = await surfer.send("/webhooks/new", typed | {"url": URL, "project": "bank"})
    assert (elsewhere.status, 'id="project-error"' in elsewhere.text) == (422, True)
    unknown = await surfer.send("/webhooks/new", typed | {"url": URL, "kinds": "run_vanished"})
    assert (unknown.status, 'id="kinds-error"' in unknown.text) == (422, True)
    assert (await surfer.send("/webhooks/new", typed | {"url": URL, "csrf": "x" * 43})).status == 403
    assert await app.webhooks.find() == []


async def test_a_webhook_is_edited_unless_somebody_else_was_faster(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    webhook = await made(app, kinds=["run_finished"])
    form = await surfer.get(f"/webhooks/{webhook}/edit")
    assert 'value="run_finished" checked' in form.text
    done = await surfer.send(f"/webhooks/{webhook}/edit", form.fields | {"url": URL + "/2"})
    assert (done.status, done.leads_to) == (303, f"/webhooks/{webhook}?said=saved")
    assert ((await app.webhooks.get(webhook)).url, (await app.webhooks.get(webhook)).kinds) == (URL + "/2", ())
    late = await surfer.send(f"/webhooks/{webhook}/edit", form.fields | {"url": URL + "/3"})
    assert (late.status, "changed meanwhile" in late.text, f"{URL}/3" in late.text) == (422, True, True)
    assert (await app.webhooks.get(webhook)).url == URL + "/2"


async def test_deliveries_are_shown_by_state_and_sent_once_more(app: App, surfer: Surfer, receiver: Receiver) -> None:
    await surfer.log_in(grants=ADMIN)
    webhook = await made(app, receiver.url, kinds=["run_queued"])
    assert "Nothing was sent" in (await surfer.get(f"/webhooks/{webhook}")).text
    run_id = await submit(app)
    await delivering(app)
    page = await surfer.get(f"/webhooks/{webhook}")
    row = page.text.split('id="delivery-1"')[1].split("</tr>")[0]
    assert all(each in row for each in ("state-delivered", "run_queued", f'href="/runs/{run_id}"', "204"))
    assert "delivery-1" not in (await surfer.get(f"/webhooks/{webhook}?state=given_up")).text
    assert (await surfer.get(f"/webhooks/{webhook}?state=lost")).status == 422
    done = await pressed(surfer, webhook, "replay", delivery="1")
    assert done.leads_to == f"/webhooks/{webhook}?said=replayed"
    assert "sent again" in (await surfer.get(done.leads_to)).text
    await delivering(app)
    assert receiver.deliveries == ["1", "1"]


async def test_a_receiver_that_keeps_failing_is_told_in_words(app: App, surfer: Surfer, receiver: Receiver) -> None:
    await surfer.log_in(grants=ADMIN)
    webhook = await made(app, receiver.url)
    receiver.status = 500
    for _ in range(FAILURES_TO_OPEN):
        await submit(app)
    await delivering(app)
    page = (await surfer.get(f"/webhooks/{webhook}")).text
    assert f"Its receiver has failed {FAILURES_TO_OPEN} times in a row" in page
    assert "state-open" in (await surfer.get("/webhooks")).text
    until = page.split("It is probed:")[1].split('datetime="')[1].split('"')[0]
    tries = re.findall(r'data-name="Next try"><span><time datetime="([^"]+)" data-as="due"', page)
    assert len(tries) == FAILURES_TO_OPEN
    assert min(tries) >= until, "none is tried before it is probed"


async def test_a_webhook_is_disabled_enabled_and_deleted(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    webhook = await made(app)
    for act, word, active in (("disable", "disabled", False), ("enable", "enabled", True)):
        assert (await pressed(surfer, webhook, act)).leads_to == f"/webhooks/{webhook}?said={word}"
        assert (await app.webhooks.get(webhook)).active is active
    assert (
        "Delete it" in (await surfer.get(f"/webhooks/{webhook}")).text.split('class="sure"')[1].split("</details>")[0]
    )
    assert (await pressed(surfer, webhook, "delete")).leads_to == "/webhooks?said=deleted"
    assert await app.webhooks.find() == []
    assert (await surfer.get(f"/webhooks/{webhook}")).status == 404


@pytest.mark.parametrize("act", ["disable", "delete", "replay"])
async def test_a_form_without_its_token_changes_no_webhook(app: App, surfer: Surfer, act: str) -> None:
    await surfer.log_in(grants=ADMIN)
    webhook = await made(app)
    assert (await surfer.send(f"/webhooks/{webhook}", {"act": act, "csrf": "x", "delivery": "1"})).status == 403
    assert (await app.webhooks.get(webhook)).active


async def test_who_administers_nothing_is_told_so_and_sees_no_webhook(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.DEVELOPER})
    webhook = await made(app, project="shop")
    page = await surfer.get("/webhooks")
    assert "Webhooks are for admins" in page.text
    assert "New webhook" not in page.text
    assert (await surfer.get(f"/webhooks/{webhook}")).status == 403


async def test_the_json_of_webhooks_is_what_the_api_answers(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await made(app, URL + "?a=<b>")
    assert (await surfer.get("/webhooks.json")).data == (await surfer.get("/v1/webhooks")).data
    assert html.escape(URL + "?a=<b>") in (await surfer.get("/webhooks")).text


async def test_every_kind_of_event_is_said_in_every_language(surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    spoken = {each: (await surfer.get("/webhooks/new", Accept_Language=each)).text for each in ("en", "zh", "ja")}
    assert [kind for kind in MEANINGS if not all(f"<code>{kind}</code>" in page for page in spoken.values())] == []
    english = [html.escape(sentence(meaning)).replace("&#x27;", "&#39;") for meaning in MEANINGS.values()]
    assert [text for text in english if text not in spoken["en"]] == []
    assert [text for text in english if text in spoken["zh"] or text in spoken["ja"]] == []
