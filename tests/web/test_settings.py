"""The pages of settings: values, keys, users, secrets, audit, about."""

from __future__ import annotations

import re

import pytest

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.web.surfing import Shown, Surfer
from weft import __version__
from weft.access.model import EVERYWHERE, Role
from weft.app import App

pytestmark = on_sqlite

ADMIN = {EVERYWHERE: Role.ADMIN}
Pairs = list[tuple[str, str]]


async def typed(surfer: Surfer, form: str, *pairs: tuple[str, str], to: str = "") -> Shown:
    """Open a form, fill it in, and send it."""
    hidden = (await surfer.get(form)).fields
    return await surfer.ask("POST", to or form, data=[("csrf", hidden["csrf"]), *pairs])


def tabs(page: Shown) -> list[str]:
    return re.findall(r">(\w+)</a>", page.text.split('class="tabs"')[1].split("</nav>")[0])


def shown_once(page: Shown, name: str) -> str:
    [found] = re.findall(rf'<pre id="{name}"[^>]*>(.*?)</pre>', page.text)
    return str(found)


async def test_every_setting_is_told_with_its_origin_and_no_secret(
    surfer: Surfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CAPACITY", "10")
    await surfer.log_in(grants=ADMIN)
    page = (await surfer.get("/settings")).text
    rows = dict(re.findall(r'<tr id="(\w+)"[^>]*>(.*?)</tr>', page, re.DOTALL))
    assert "WEFT_CAPACITY" in rows["capacity"]
    assert "How many runs one worker sees through at once." in rows["capacity"]
    assert "default" in rows["port"]
    only = dict(re.findall(r'<tr id="(\w+)"[^>]*>(.*?)</tr>', (await surfer.get("/settings?only=set")).text, re.DOTALL))
    assert ("capacity" in only, "port" in only) == (True, False)


async def test_tabs_that_somebody_may_not_use_are_not_shown(surfer: Surfer) -> None:
    await surfer.log_in("ada", grants=ADMIN)
    assert tabs(await surfer.get("/settings")) == ["Values", "Keys", "Users", "Secrets", "Audit", "About"]
    await surfer.log_in("bob", grants={"shop": Role.ADMIN})
    assert (await surfer.get("/settings")).leads_to == "/settings/keys"
    assert tabs(await surfer.get("/settings/keys")) == ["Keys", "Secrets", "Audit", "About"]
    await surfer.log_in("eve", grants={"shop": Role.VIEWER})
    assert tabs(await surfer.get("/settings/keys")) == ["Keys", "About"]
    assert (await surfer.get("/settings/users")).status == 403
    assert (await surfer.get("/settings/audit/verify")).status == 403


async def test_a_key_is_made_shown_once_and_revoked(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    rows = [("project", "shop"), ("role", "operator"), ("project", "blog"), ("role", "viewer"), ("project", "")]
    made = await typed(surfer, "/settings/keys/new", ("name", "ci <1>"), *rows, ("role", "admin"), ("days", "30"))
    token = shown_once(made, "token")
    [key] = await app.keys.all()
    assert (key.name, dict(key.grants)) == ("ci <1>", {"shop": Role.OPERATOR, "blog": Role.VIEWER})
    assert key.expires_at is not None
    assert (made.status, made.headers["Cache-Control"]) == (200, "no-store")
    assert (await app.keys.caller(token, "")).name == "ci <1>"
    page = await surfer.get("/settings/keys")
    assert (token in page.text, "ci &lt;1&gt;" in page.text, "shop: operator" in page.text) == (False, True, True)
    assert "Revoke it" in (await surfer.get(f"/settings/keys/{key.id}")).text
    assert (await surfer.send(f"/settings/keys/{key.id}", {"csrf": "x"})).status == 403
    done = await typed(surfer, f"/settings/keys/{key.id}")
    assert done.leads_to == "/settings/keys?said=revoked"
    assert "state-revoked" in (await surfer.get(done.leads_to)).text
    assert (await app.keys.all())[0].revoked_at is not None


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ([("name", ""), ("project", "shop"), ("role", "viewer")], "name"),
        ([("name", "x"), ("project", "no project!"), ("role", "viewer")], "grants"),
        ([("name", "x"), ("project", "shop"), ("role", "king")], "grants"),
        ([("name", "x"), ("project", "shop"), ("role", "admin")], "grants"),
        ([("name", "x"), ("project", ""), ("role", "viewer")], "grants"),
        ([("name", "x"), ("project", "shop"), ("role", "viewer"), ("public_key", "none")], "public_key"),
    ],
)
async def test_what_is_wrong_with_a_key_stands_beside_its_field(
    app: App, surfer: Surfer, pairs: Pairs, field: str
) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR})
    page = await typed(surfer, "/settings/keys/new", *pairs)
    assert (page.status, f'id="{field}-error"' in page.text) == (422, True), page.text
    assert all(f'value="{value}"' in page.text for name, value in pairs if name == "project" and value)
    assert await app.keys.all() == []


async def test_a_key_without_the_token_of_its_form_is_not_made(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    data = {"csrf": "x", "name": "ci", "project": "shop", "role": "viewer"}
    assert (await surfer.send("/settings/keys/new", data)).status == 403
    assert await app.keys.all() == []


async def test_a_user_is_made_with_a_password_that_is_shown_once(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    made = await typed(surfer, "/settings/users/new", ("name", "Eve+1@x"), ("project", "shop"), ("role", "viewer"))
    password = shown_once(made, "password")
    assert (await app.logins.check("eve+1@x", password, "")).grants == {"shop": Role.VIEWER}
    assert made.headers["Cache-Control"] == "no-store"
    listed = (await surfer.get("/settings/users")).text
    assert (password in listed, "eve+1@x" in listed) == (False, True)
    assert (await surfer.get("/settings/users/eve%2B1%40x")).status == 200
    chosen = await typed(surfer, "/settings/users/new", ("name", "joe"), ("password", PASSWORD))
    assert (chosen.status, '<pre id="password"' in chosen.text, PASSWORD in chosen.text) == (200, False, False)


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ([("name", "")], "name"),
        ([("name", "a b")], "name"),
        ([("name", "ada")], "name"),
        ([("name", "joe"), ("password", "short")], "password"),
        ([("name", "joe"), ("project", "no!"), ("role", "viewer")], "grants"),
    ],
)
async def test_what_is_wrong_with_a_user_stands_beside_its_field(
    app: App, surfer: Surfer, pairs: Pairs, field: str
) -> None:
    await surfer.log_in(grants=ADMIN)
    page = await typed(surfer, "/settings/users/new", *pairs)
    assert (page.status, f'id="{field}-error"' in page.text) == (422, True), page.text
    assert len(await app.users.all()) == 1


async def test_roles_of_a_user_are_saved_unless_somebody_else_was_faster(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await app.users.create("bob", PASSWORD, {"shop": Role.VIEWER})
    seen = (await surfer.get("/settings/users/bob")).fields["seen"]
    roles = [("act", "roles"), ("seen", seen), ("project", "shop"), ("role", "developer")]
    assert (await typed(surfer, "/settings/users/bob", *roles)).leads_to == "/settings/users/bob?said=roles"
    assert (await app.users.get("bob")).grants == {"shop": Role.DEVELOPER}
    late = await typed(surfer, "/settings/users/bob", *roles[:2], ("project", "bank"), ("role", "admin"))
    assert (late.status, "changed meanwhile" in late.text, 'value="bank"' in late.text) == (422, True, True)
    assert (await app.users.get("bob")).grants == {"shop": Role.DEVELOPER}


async def test_a_user_who_is_called_new_has_a_page(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await app.users.create("new", PASSWORD, {})
    assert 'href="/settings/users/NEW"' in (await surfer.get("/settings/users")).text
    page = await surfer.get("/settings/users/NEW")
    assert ('action="/settings/users/NEW"' in page.text, "Save the roles" in page.text) == (True, True)
    assert (
        await typed(surfer, "/settings/users/NEW", ("act", "deactivate"))
    ).leads_to == "/settings/users/NEW?said=inactive"
    assert not (await app.users.get("new")).active


async def test_a_user_is_kept_out_let_in_again_and_given_a_password(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await app.users.create("bob", PASSWORD, {"shop": Role.VIEWER})
    for act, word, active in (("deactivate", "inactive", False), ("activate", "active", True)):
        assert (await typed(surfer, "/settings/users/bob", ("act", act))).leads_to.endswith(f"?said={word}")
        assert (await app.users.get("bob")).active is active
    short = await typed(surfer, "/settings/users/bob", ("act", "password"), ("password", "short"))
    assert (short.status, 'id="password-error"' in short.text) == (422, True)
    other = "staple the other horse"
    done = await typed(surfer, "/settings/users/bob", ("act", "password"), ("password", other))
    assert done.leads_to == "/settings/users/bob?said=password"
    assert (await app.logins.check("bob", other, "")).name == "bob"


async def test_secrets_go_in_and_never_come_out(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.ADMIN, "blog": Role.VIEWER})
    page = await surfer.get("/settings/secrets")
    assert "shop has no secrets" in page.text
    pairs = [("project", "shop"), ("name", "SHOP_TOKEN"), ("value", "hush-hush-hush"), ("act", "set")]
    done = await typed(surfer, "/settings/secrets", *pairs)
    assert done.leads_to == "/settings/secrets?project=shop&said=set"
    listed = await surfer.get(done.leads_to)
    assert ('id="secret-SHOP_TOKEN"' in listed.text, "hush" in listed.text) == (True, False)
    assert b"hush" not in (await surfer.get("/settings/secrets.json?project=shop")).data
    gone = await typed(surfer, "/settings/secrets", *pairs[:2], ("act", "delete"))
    assert gone.leads_to == "/settings/secrets?project=shop&said=deleted"
    assert await app.secrets.all("shop") == []
    other = await surfer.get("/settings/secrets?project=blog")
    assert (other.status, 'id="project-error"' in other.text) == (422, True)


@pytest.mark.parametrize(
    ("name", "value", "field"), [("", "hush-hush-hush", "name"), ("A B", "hush-hush-hush", "name"), ("A", "x", "value")]
)
async def test_what_is_wrong_with_a_secret_stands_beside_its_field(
    app: App, surfer: Surfer, name: str, value: str, field: str
) -> None:
    await surfer.log_in(grants={"shop": Role.ADMIN})
    pairs = [("project", "shop"), ("name", name), ("value", value), ("act", "set")]
    page = await typed(surfer, "/settings/secrets", *pairs)
    assert (page.status, f'id="{field}-error"' in page.text) == (422, True), page.text
    assert f'value="{name}"' in page.text
    assert f'value="{value}"' not in page.text
    assert await app.secrets.all("shop") == []


async def test_the_audit_log_is_read_by_who_and_what_and_refusals(app: App, surfer: Surfer) -> None:
    await surfer.log_in("bob", grants={"shop": Role.VIEWER})
    run_id = await submit(app)
    assert (await surfer.ask("POST", f"/v1/runs/{run_id}/cancel")).status == 403
    await surfer.log_in("ada", grants=ADMIN)
    await typed(surfer, "/settings/secrets", ("project", "shop"), ("name", "T"), ("value", "hush-hush-hush"))
    page = (await surfer.get("/settings/audit?action=secrets.set")).text
    assert ("user:ada" in page, "secret T" in page, "hush" in page) == (True, True, False)
    assert "secret T" not in (await surfer.get("/settings/audit?actor=user:bob")).text
    refused = (await surfer.get("/settings/audit?refused=true")).text
    assert ("secret T" in refused, '<span class="state state-failed">refused</span>' in refused) == (False, True)
    assert "No entry is like this" in (await surfer.get("/settings/audit?since=2999-01-01")).text
    wrong = await surfer.get("/settings/audit?since=tomorrow")
    assert (wrong.status, 'id="since-error"' in wrong.text) == (422, True)


async def test_the_chain_of_the_audit_log_is_verified_at_a_press(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    assert 'action="/settings/audit/verify"' in (await surfer.get("/settings/audit")).text
    page = await surfer.get("/settings/audit/verify")
    assert "All 1 entries are as they were written" in page.text


async def test_about_tells_versions_and_whose_work_is_in_the_pages(surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    page = (await surfer.get("/settings/about")).text
    assert f"weft {__version__}" in page
    assert "sqlite" in page
    packages = re.findall(r"<summary>(\S+) [\d.]+ <span", page)
    assert {"@tabler/core", "htmx.org", "idiomorph", "uplot", "bootstrap-icons", "@codemirror/view"} <= set(packages)
    assert page.count("Permission is hereby granted, free of charge") >= 5
    assert "The Tabler Authors" in page


async def test_the_json_of_each_tab_is_what_the_api_answers(surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    for tab, api in (("", "/v1/settings"), ("/keys", "/v1/keys"), ("/users", "/v1/users"), ("/audit", "/v1/audit")):
        assert (await surfer.get(f"/settings{tab}.json")).data == (await surfer.get(api)).data


@pytest.mark.parametrize(("language", "words"), [("zh", "机密"), ("ja", "シークレット")])
async def test_the_tabs_speak_the_language_of_the_browser(surfer: Surfer, language: str, words: str) -> None:
    await surfer.log_in(grants=ADMIN)
    for path in ("/settings", "/settings/keys/new", "/settings/users", "/settings/secrets", "/settings/audit"):
        assert words in (await surfer.get(path, Accept_Language=language)).text
