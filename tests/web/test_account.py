"""One's own account: password, sessions, roles and looks."""

from __future__ import annotations

import re

import aiohttp

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.web.surfing import Surfer
from weft.access.model import Role
from weft.app import App

pytestmark = on_sqlite

OTHER = "staple the other horse"
CURRENT = {"current": PASSWORD, "new": OTHER, "again": OTHER}


def another(surfer: Surfer, session: aiohttp.ClientSession) -> Surfer:
    return Surfer(session, surfer.app, surfer.address)


async def test_the_account_tells_who_one_is_and_which_roles_one_has(surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR, "*": Role.VIEWER})
    page = (await surfer.get("/account")).text
    roles = page.split('id="roles"')[1].split("</section>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th>.*?<span>(.*?)</span>', roles) == [
        ("all projects", "viewer"),
        ("shop", "operator"),
    ]
    assert "All sessions end, this one too" in page


async def test_a_new_password_ends_all_sessions_and_asks_to_log_in(surfer: Surfer) -> None:
    await surfer.log_in()
    done = await surfer.send("/account/password", (await surfer.get("/account")).fields | CURRENT)
    assert (done.status, done.leads_to) == (303, "/login?next=%2Faccount&said=password")
    assert "The password is changed." in (await surfer.get(done.leads_to)).text
    assert (await surfer.get("/account")).leads_to.startswith("/login")
    assert (await surfer.send("/login", {"name": "ada", "password": PASSWORD})).status == 401
    assert (await surfer.send("/login", {"name": "ada", "password": OTHER})).status == 303


async def test_what_is_wrong_with_a_new_password_stands_beside_its_field(surfer: Surfer) -> None:
    await surfer.log_in()
    fields = (await surfer.get("/account")).fields
    for wrong, field in (
        ({"current": "not my password"}, "current"),
        ({"new": "short", "again": "short"}, "new"),
        ({"again": "another"}, "again"),
    ):
        page = await surfer.send("/account/password", fields | CURRENT | wrong)
        assert (page.status, f'id="{field}-error"' in page.text) == (422, True)
        assert all(secret not in page.text for secret in (PASSWORD, OTHER, "not my password"))
    assert (await surfer.send("/account/password", CURRENT | {"csrf": "x" * 43})).status == 403
    assert (await surfer.get("/account")).status == 200


async def test_passwords_can_not_be_guessed_on_the_page_of_the_account(surfer: Surfer) -> None:
    await surfer.log_in()
    fields = (await surfer.get("/account")).fields
    pages = [await surfer.send("/account/password", fields | CURRENT | {"current": f"guess {n}"}) for n in range(7)]
    assert all(page.status == 422 and 'id="current-error"' in page.text for page in pages)
    assert "Too many logins have failed" in pages[-1].text


async def test_sessions_are_listed_and_one_elsewhere_is_ended(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        phone = another(surfer, session)
        await phone.send("/login", {"name": "ada", "password": PASSWORD}, User_Agent="Phone <b>1</b>")
        page = (await surfer.get("/account")).text
        rows = re.findall(r'<tr id="session-(\w+)">(.*?)</tr>', page, re.DOTALL)
        assert sorted("this one" in row for _, row in rows) == [False, True]
        [(elsewhere, row)] = [each for each in rows if "this one" not in each[1]]
        assert "Phone &lt;b&gt;1&lt;/b&gt;" in row
        done = await surfer.send(
            "/account/sessions", (await surfer.get("/account")).fields | {"session": elsewhere, "act": "one"}
        )
        assert done.leads_to == "/account?said=ended"
        assert (await phone.get("/account")).leads_to.startswith("/login")
    assert f"session-{elsewhere}" not in (await surfer.get("/account")).text
    again = await surfer.send(
        "/account/sessions", (await surfer.get("/account")).fields | {"session": elsewhere, "act": "one"}
    )
    assert again.leads_to == "/account?said=ended"


async def test_ending_all_sessions_ends_this_one_too(surfer: Surfer) -> None:
    await surfer.log_in()
    fields = (await surfer.get("/account")).fields
    assert (await surfer.send("/account/sessions", {"act": "all", "csrf": "x"})).status == 403
    assert (await surfer.send("/account/sessions", fields | {"act": "all"})).leads_to == "/login?next=%2Faccount"
    assert (await surfer.get("/account")).leads_to.startswith("/login")


async def test_the_language_of_the_account_is_chosen_there(surfer: Surfer) -> None:
    await surfer.log_in()
    for language, words in (("zh", "修改密码"), ("ja", "パスワードを変更"), ("en", "Change the password")):
        done = await surfer.send("/look", {"language": language, "next": "/account"})
        assert done.leads_to == "/account"
        assert words in (await surfer.get("/account")).text


async def test_a_program_with_a_key_reads_who_it_is(app: App, surfer: Surfer) -> None:
    _, token = await app.keys.create("ci", {"shop": Role.VIEWER}, by="ada")
    page = await surfer.get("/account.json", Authorization=f"Bearer {token}")
    assert (page.status, b'"name":"ci"' in page.data, b'"sessions":[]' in page.data) == (200, True, True)
    assert b"csrf" not in page.data
