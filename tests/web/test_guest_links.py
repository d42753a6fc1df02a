"""Guests' pages, and the page where their links are made."""

from __future__ import annotations

import logging
import re

import aiohttp
import pytest

from tests.api.walking import items_of_a_run
from tests.conftest import SetClock, on_sqlite
from tests.items.scene import start
from tests.projects.making import a_version
from tests.runs.acting import submit
from tests.web.surfing import Shown, Surfer, surfing
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

HOSTILE = '"><script>alert(1)</script>{{ 7 * 7 }}'


async def linked(app: App, label: str = "the shop's people", dataset: str | None = None) -> tuple[str, int]:
    guest_link, token = await app.guest_links.create("shop", label=label, by="test", dataset=dataset)
    return f"/guest/{token}", guest_link.id


async def test_a_guest_sees_a_project_without_a_login(app: App, surfer: Surfer) -> None:
    await a_version(app, "shop")
    made = await items_of_a_run(app, "shop")
    await submit(app, project="bank", task="hidden-task")
    link, _ = await linked(app)
    page = await surfer.get(link)
    assert page.status == 200
    for seen in ("the shop&#39;s people", "prices", made["name"], 'class="state state-running"'):
        assert seen in page.text
    assert "hidden-task" not in page.text
    for kept_away in ('aria-label="Main"', "data-palette", "/logout", "csrf", "data-live"):
        assert kept_away not in page.text
    items = await surfer.get(f"{link}/datasets/{made['name']}")
    assert ("<td>1</td>" in items.text, f"{link}/datasets/{made['name']}/export?format=csv" in items.text) == (
        True,
    ) * 2
    assert (await surfer.get(f"{link}/datasets/{made['name']}/export?format=csv")).data == b"price\r\n1\r\n"
    assert (await surfer.get(f"{link}.json")).status == 200


async def test_a_guest_of_a_dataset_sees_its_items_and_nothing_else(app: App, surfer: Surfer) -> None:
    one, other = await items_of_a_run(app, "shop"), await items_of_a_run(app, "shop")
    link, _ = await linked(app, dataset=one["name"])
    page = await surfer.get(link)
    assert (page.status, "<td>1</td>" in page.text, other["name"] in page.text) == (200, True, False)
    assert (await surfer.get(f"{link}/datasets/{one['name']}/export?format=json")).status == 200
    for path in (f"/datasets/{other['name']}", f"/datasets/{other['name']}/export", "/datasets/nothing"):
        assert (await surfer.get(link + path)).status == 404


async def test_arguments_reasons_and_logs_of_runs_are_not_for_guests(app: App, surfer: Surfer) -> None:
    spider = await start(app, params={"password": "argument-of-a-run"}, tags=["secret-tag"])
    await spider.hand.ship(spider.lease, b"line-of-a-log\n")
    await spider.hand.end(spider.lease, "failed", reason="reason-of-a-failure")
    link, _ = await linked(app)
    for path in (link, f"{link}.json"):
        page = await surfer.get(path)
        assert "failed" in page.text
        for secret in ("argument-of-a-run", "secret-tag", "line-of-a-log", "reason-of-a-failure"):
            assert secret not in page.text


async def test_a_guests_page_is_kept_from_search_engines_and_its_address_from_other_sites(
    app: App, surfer: Surfer
) -> None:
    made = await items_of_a_run(app, "shop")
    link, _ = await linked(app)
    for path in (link, f"{link}/datasets/{made['name']}", f"{link}/datasets/{made['name']}/export"):
        headers = (await surfer.get(path)).headers
        assert (headers["Referrer-Policy"], headers["X-Robots-Tag"]) == ("no-referrer", "noindex, nofollow")
        assert "Set-Cookie" not in headers
    assert '<meta name="robots" content="noindex, nofollow">' in (await surfer.get(link)).text


async def test_a_revoked_an_expired_and_an_unknown_link_show_the_same(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    revoked, number = await linked(app)
    _, token = await app.guest_links.create("shop", label="x", by="test", expires_at=clock() + 1_000_000)
    assert (await surfer.get(f"/guest/{token}")).status == 200
    await app.guest_links.revoke(number)
    clock.forward(2)
    pages = [await surfer.get(link) for link in (revoked, f"/guest/{token}", "/guest/" + "x" * 43)]
    assert [page.status for page in pages] == [404] * 3
    assert len({_without_address(page) for page in pages}) == 1
    assert "revoked" in pages[0].text


def _without_address(page: Shown) -> str:
    return re.sub(r"/guest/[\w-]+", "", page.text)


async def test_whoever_is_logged_in_sees_what_guests_see(app: App, surfer: Surfer) -> None:
    link, _ = await linked(app)
    await surfer.log_in(grants={"bank": Role.VIEWER})
    page = await surfer.get(link)
    assert (page.status, 'aria-label="Main"' in page.text) == (200, False)


async def test_a_browser_that_sends_a_password_still_comes_as_a_guest(app: App, surfer: Surfer) -> None:
    link, _ = await linked(app)
    assert (await surfer.get(link, Authorization="Basic YTpi")).status == 200


async def test_guests_of_one_address_can_not_look_for_ever(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.http.authentication.GUESTS_PER_SECOND", 0.5)
    link, _ = await linked(app)
    async with surfing(app) as surfer:
        statuses = [(await surfer.get(each)).status for each in (link, *["/guest/" + "x" * 43] * 5)]
        assert (statuses[0], {*statuses[1:]} - {404}) == (200, {429})
        await surfer.log_in(grants={"shop": Role.VIEWER})
        assert (await surfer.get("/runs")).status == 200


async def test_scraped_data_is_only_ever_text_for_guests(app: App, surfer: Surfer) -> None:
    spider = await start(app)
    await spider.yields({HOSTILE: HOSTILE, "long": "w" * 5000, "list": [1, {"a": None}], "yes": True})
    link, _ = await linked(app, label=HOSTILE)
    page = await surfer.get(f"{link}/datasets/quotes")
    assert page.status == 200
    assert "<script>alert" not in page.text
    assert ("{{ 7 * 7 }}" in page.text, "w" * 400 in page.text) == (True, False)
    assert "[1,{&#34;a&#34;:null}]" in page.text


async def test_a_token_is_in_no_log_even_when_a_page_fails(
    app: App, surfer: Surfer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    link, _ = await linked(app)

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("weft.web.visit.Visit.call", fail)
    assert (await surfer.get(link)).status == 500
    assert any("a request failed" in record.message for record in caplog.records)
    ours = [record for record in caplog.records if record.name != "uvicorn.access"]  # pytest alone listens to that
    assert not any(link.removeprefix("/guest/") in str(record.__dict__) for record in ours)
    assert not logging.getLogger("uvicorn.access").propagate


async def test_an_admin_makes_a_link_sees_it_once_and_revokes_it(app: App, surfer: Surfer) -> None:
    made = await items_of_a_run(app, "shop")
    await surfer.log_in(grants={"shop": Role.ADMIN})
    page = await surfer.get("/projects/shop/guest-links")
    assert "No link was made yet" in page.text
    fields = {"csrf": page.fields["csrf"], "label": "my <b>friends</b>", "dataset": made["name"], "expires": "7"}
    answer = await surfer.send("/projects/shop/guest-links", fields)
    assert answer.status == 201
    [link] = re.findall(rf'<pre id="link" tabindex="0">{surfer.address}(/guest/[\w-]+)</pre>', answer.text)
    async with aiohttp.ClientSession() as stranger:
        assert (await Surfer(stranger, app, surfer.address).get(link)).status == 200
    listed = await surfer.get("/projects/shop/guest-links")
    assert ("my &lt;b&gt;friends" in listed.text, link in listed.text) == (True, False)
    [guest_link] = await app.guest_links.page(["shop"])
    assert guest_link.expires_at is not None
    done = await surfer.send("/projects/shop/guest-links", {"csrf": page.fields["csrf"], "revoke": str(guest_link.id)})
    assert done.leads_to == "/projects/shop/guest-links?said=revoked"
    assert "The link is revoked" in (await surfer.get(done.leads_to)).text
    assert (await surfer.get(link)).status == 404


async def test_what_is_wrong_with_a_link_is_told_beside_its_field_and_what_was_typed_stays(surfer: Surfer) -> None:
    await surfer.log_in(grants={EVERYWHERE: Role.ADMIN})
    csrf = (await surfer.get("/projects/shop/guest-links")).fields["csrf"]
    answer = await surfer.send("/projects/shop/guest-links", {"csrf": csrf, "label": "", "expires": "365"})
    assert (answer.status, 'id="label-error"' in answer.text) == (422, True)
    assert '<option value="365" selected>' in answer.text
    answer = await surfer.send("/projects/shop/guest-links", {"csrf": csrf, "label": "kept", "dataset": "gone"})
    assert (answer.status, 'id="dataset-error"' in answer.text, 'value="kept"' in answer.text) == (422, True, True)


async def test_who_does_not_administer_a_project_makes_no_link(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.DEVELOPER})
    assert (await surfer.get("/projects/shop/guest-links")).status == 403
    csrf = (await surfer.get("/find")).fields["csrf"]
    assert (await surfer.send("/projects/shop/guest-links", {"csrf": csrf, "label": "x"})).status == 403
    assert (await surfer.send("/projects/shop/guest-links", {"csrf": "wrong", "label": "x"})).status == 403
    assert await app.guest_links.page() == []


async def test_a_link_is_told_with_the_path_that_a_trusted_proxy_tells(another_app: object) -> None:
    app = await another_app(trusted_proxies="127.0.0.1")  # type: ignore[operator]
    async with surfing(app) as surfer:
        await surfer.log_in(grants={"shop": Role.ADMIN})
        csrf = (await surfer.get("/projects/shop/guest-links")).fields["csrf"]
        answer = await surfer.send(
            "/projects/shop/guest-links",
            {"csrf": csrf, "label": "x"},
            X_Forwarded_Prefix="/weft",
            X_Forwarded_Proto="https",
        )
        assert re.search(r'<pre id="link" tabindex="0">https://127\.0\.0\.1:\d+/weft/guest/[\w-]+</pre>', answer.text)
