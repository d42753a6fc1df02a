"""The site around the gateway: who gets in, what pages are made of, and what goes on to the gateway."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.conftest import OpenApp, on_sqlite
from tests.web.surfing import Surfer, surfing
from weft.access.model import Role
from weft.app import App
from weft.web.assets import addresses
from weft.web.rendering import POLICY
from weft.web.site import PAGES, PUBLIC_PAGES
from weft.web.visit import LARGEST_FORM, MOST_FIELDS

pytestmark = on_sqlite


async def test_the_first_page_is_for_those_who_are_logged_in(surfer: Surfer) -> None:
    shown = await surfer.get("/")
    assert (shown.status, shown.leads_to) == (303, "/login?next=%2F")
    assert (await surfer.log_in()).leads_to == "/"


async def test_who_is_not_logged_in_is_asked_to_and_comes_back(surfer: Surfer) -> None:
    shown = await surfer.get("/dead-letters/7")
    assert (shown.status, shown.leads_to) == (303, "/login?next=%2Fdead-letters%2F7")
    form = await surfer.get(shown.leads_to)
    assert form.fields["next"] == "/dead-letters/7"
    filled: dict[str, Any] = form.fields
    back = await surfer.log_in(**filled)
    assert (back.status, back.leads_to) == (303, "/dead-letters/7")
    assert (await surfer.get("/login?next=/dead-letters")).leads_to == "/dead-letters"


async def test_no_page_but_the_login_is_for_who_is_not_logged_in(surfer: Surfer) -> None:
    walked = [
        (method, path) for path, methods in PAGES.items() for method in methods if methods[method] not in PUBLIC_PAGES
    ]
    assert len(walked) >= 4
    for method, path in walked:
        data = {"act": "drop"} if method == "POST" else None
        shown = await surfer.ask(method, re.sub(r"\{\w+(:\w+)?\}", "1", path), data=data)
        assert (shown.status, shown.leads_to.partition("?")[0]) == (303, "/login"), f"{method} {path}"


async def test_who_comes_back_finds_the_filter_that_was_asked_for(surfer: Surfer) -> None:
    shown = await surfer.get("/dead-letters?state=all&source=a%20b")
    filled: dict[str, Any] = (await surfer.get(shown.leads_to)).fields
    back = await surfer.log_in(**filled)
    assert back.leads_to in ("/dead-letters?state=all&source=a%20b", "/dead-letters?state=all&source=a+b")


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"])
async def test_a_login_never_leads_elsewhere(surfer: Surfer, elsewhere: str) -> None:
    assert (await surfer.log_in(next=elsewhere)).leads_to == "/"
    assert (await surfer.get(f"/login?next={elsewhere}")).leads_to == "/"


async def test_a_wrong_password_is_told_beside_its_field_and_the_name_is_kept(surfer: Surfer) -> None:
    shown = await surfer.send("/login", {"name": 'a"da<', "password": "wrong-wrong", "next": "/dead-letters"})
    assert shown.status == 401
    assert 'value="a&#34;da&lt;"' in shown.text
    assert 'id="password-error">No user has this name and password.</div>' in shown.text
    assert "wrong-wrong" not in shown.text
    assert "Set-Cookie" not in shown.headers


async def test_a_name_that_is_missing_is_told_beside_its_field(surfer: Surfer) -> None:
    shown = await surfer.send("/login", {"password": "x"})
    assert (shown.status, 'id="name-error"' in shown.text) == (422, True)


async def test_passwords_can_not_be_tried_for_ever(surfer: Surfer) -> None:
    answers = [await surfer.send("/login", {"name": "ada", "password": f"guess {n}"}) for n in range(7)]
    assert [each.status for each in answers] == [401] * 5 + [429] * 2
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert "too many logins have failed" in answers[-1].text.lower()


async def test_the_cookie_of_a_session_is_for_the_server_alone(surfer: Surfer) -> None:
    cookie = (await surfer.log_in()).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


async def test_who_logs_out_is_out(surfer: Surfer) -> None:
    await surfer.log_in()
    page = await surfer.get("/dead-letters")
    assert (await surfer.send("/logout", {})).status == 403
    assert (await surfer.send("/logout", page.fields)).leads_to == "/login"
    assert (await surfer.get("/dead-letters")).leads_to.startswith("/login")


async def test_a_form_of_another_site_changes_nothing(surfer: Surfer) -> None:
    await surfer.log_in()
    fields = (await surfer.get("/dead-letters")).fields
    assert (await surfer.send("/logout", fields, Origin="https://evil.example")).status == 403
    login = {"name": "ada", "password": PASSWORD}
    assert (await surfer.send("/login", login, Origin="https://evil.example")).status == 403
    assert (await surfer.get("/dead-letters")).status == 200


async def test_no_page_may_run_a_script_or_be_framed(surfer: Surfer) -> None:
    await surfer.log_in()
    for path in ("/login?next=/", "/dead-letters", "/dead-letters/7"):
        shown = await surfer.get(path)
        if shown.status != 303:
            assert shown.headers["Content-Security-Policy"] == POLICY
            assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", shown.text) == []
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY


async def test_everything_that_a_page_is_made_of_is_there_and_kept(surfer: Surfer) -> None:
    page = await surfer.get("/login")
    used = set(re.findall(r'(?:href|src)="(/static/[^"#]+)', page.text))
    assert used == {addresses()[name] for name in ("mark.svg", "theme.js", "styles.css", "app.js", "icons.svg")}
    for address in used:
        shown = await surfer.get(address)
        assert (shown.status, "immutable" in shown.headers["Cache-Control"]) == (200, True)
    assert (await surfer.get("/static/0/styles.css")).status == 404
    assert (await surfer.get("/static/../site.py")).status == 404


async def test_what_is_no_page_goes_on_to_the_gateway(surfer: Surfer) -> None:
    assert (await surfer.get("/healthz")).status == 200
    assert (await surfer.get("/v1/dead-letters")).headers["Content-Type"] == "application/problem+json"
    assert "openapi" in (await surfer.get("/openapi.json")).text


async def test_a_page_that_there_is_not_says_what_there_is(surfer: Surfer) -> None:
    await surfer.log_in()
    for number in ("999", "x", "9" * 30):
        shown = await surfer.get(f"/dead-letters/{number}")
        assert shown.status == 404
        assert 'class="btn btn-primary" href="/dead-letters"' in shown.text
        assert 'class="btn" href="/"' in shown.text
    assert (await surfer.get("/dead-letters/999.json")).status == 404


async def test_a_page_takes_only_its_methods(surfer: Surfer) -> None:
    shown = await surfer.ask("DELETE", "/dead-letters")
    assert (shown.status, shown.headers["Allow"]) == (405, "GET")
    assert (await surfer.ask("HEAD", "/login")).data == b""


async def test_a_form_that_cannot_be_one_is_refused(surfer: Surfer) -> None:
    assert (await surfer.ask("POST", "/login", data=b"{}", headers={"Content-Type": "application/json"})).status == 415
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await surfer.ask("POST", "/login", data=BytesIO(b"x" * LARGEST_FORM + b"=1"), headers=form)).status == 413
    assert (await surfer.ask("POST", "/login", data=b"\xff=\xfe", headers=form)).status == 400
    assert (await surfer.ask("POST", "/login", data=b"a=1&" * (MOST_FIELDS + 1), headers=form)).status == 400


async def test_another_host_is_not_served(surfer: Surfer) -> None:
    for path in ("/", "/login", "/dead-letters"):
        answer = await surfer.get(path, Host="evil.example")
        assert (answer.status, "WEFT_ALLOWED_HOSTS=evil.example" in answer.text) == (421, True)


async def test_a_program_with_a_key_reads_the_json_of_a_page(app: App, surfer: Surfer) -> None:
    assert (await surfer.get("/dead-letters.json")).status == 401
    _, token = await app.keys.create("ci", {"*": Role.OPERATOR}, by="test")
    shown = await surfer.get("/dead-letters.json", Authorization=f"Bearer {token}")
    assert (shown.status, shown.data) == (200, b'{"items":[],"next":null}')


@pytest.mark.parametrize(
    ("settings", "told", "root"),
    [
        ({"trusted_proxies": "127.0.0.1"}, "/weft", "/weft"),
        ({"trusted_proxies": "127.0.0.1"}, "/a/b/", "/a/b"),
        ({"trusted_proxies": "192.0.2.1"}, "/weft", ""),
        ({}, "/weft", ""),
        ({"trusted_proxies": "127.0.0.1"}, "//evil.example", ""),
        ({"trusted_proxies": "127.0.0.1"}, "https://evil.example", ""),
        ({"trusted_proxies": "127.0.0.1"}, "/a/../b", ""),
        ({"trusted_proxies": "127.0.0.1"}, '/"><script>', ""),
    ],
)
async def test_links_begin_with_the_path_that_a_trusted_proxy_tells(
    another_app: OpenApp, settings: dict[str, Any], told: str, root: str
) -> None:
    async with surfing(await another_app(**settings)) as surfer:
        page = await surfer.get("/login", X_Forwarded_Prefix=told)
        assert set(re.findall(r'(?:href|action)="([^"]*?)/(?:static/|login|")', page.text)) == {root}
        assert (await surfer.get("/", X_Forwarded_Prefix=told)).leads_to == f"{root}/login?next=%2F"
        assert (
            await surfer.get("/dead-letters", X_Forwarded_Prefix=told)
        ).leads_to == f"{root}/login?next=%2Fdead-letters"


async def test_an_address_where_nothing_is_shows_people_a_page_and_programs_a_document(surfer: Surfer) -> None:
    page = await surfer.get("/nowhere?x=<b>", Accept="text/html,*/*")
    assert (page.status, "There is no such thing" in page.text, "To the first page" in page.text) == (404, True, True)
    await surfer.log_in()
    assert 'aria-label="Main"' in (await surfer.get("/nowhere", Accept="text/html")).text
    for path, accept in (("/nowhere", "*/*"), ("/v1/nowhere", "text/html"), ("/nowhere", "application/json")):
        assert (await surfer.get(path, Accept=accept)).headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(("language", "words"), [("zh", "找不到所请求的内容"), ("ja", "お探しのものは見つかりません")])
async def test_a_problem_is_told_in_the_language_of_its_reader(surfer: Surfer, language: str, words: str) -> None:
    assert words in (await surfer.get("/nowhere", Accept="text/html", Accept_Language=language)).text


async def test_the_login_says_how_the_first_user_is_made_while_there_is_none(surfer: Surfer) -> None:
    assert "weft users create admin --role admin --everywhere" in (await surfer.get("/login")).text
    await surfer.app.users.create("ada", PASSWORD, {})
    page = await surfer.get("/login")
    assert ("weft users create" in page.text, "weft users password admin" in page.text) == (False, True)
