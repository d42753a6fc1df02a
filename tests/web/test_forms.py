"""Forms that are sent twice, too late, or with something that they did not ask for."""

from __future__ import annotations

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.projects.making import a_version
from tests.runs.acting import submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.redaction import MASK
from weft.runs.model import RunState
from weft.tasks.model import ProjectSettings

pytestmark = on_sqlite

ADMIN = {EVERYWHERE: Role.ADMIN}


async def test_who_goes_back_and_changes_a_run_gets_another_one(app: App, surfer: Surfer) -> None:
    await keep(app, noop("prices", project="shop", params={"country": "de"}))
    first = (await app.tasks.start("shop", "prices", {})).run_id
    await surfer.log_in()
    page = await surfer.get(f"/runs/{first}/again")
    french, italian = (page.fields | {"param-country": each} for each in ("fr", "it"))
    begun = await surfer.send(f"/runs/{first}/again", french)
    changed = await surfer.send(f"/runs/{first}/again", italian)
    twice = await surfer.send(f"/runs/{first}/again", italian)
    assert changed.leads_to == twice.leads_to != begun.leads_to
    assert [run.spec.params["country"] for run in await app.runs.find({})] == ["it", "fr", "de"]


async def test_a_form_that_shows_a_password_masked_sends_the_password(app: App, surfer: Surfer) -> None:
    secret = {"country": "de", "password": "k4nary-of-the-test"}
    await keep(app, noop("prices", project="shop", params={"country": "de", "password": "the-default"}))
    first = (await app.tasks.start("shop", "prices", secret)).run_id
    await a_version(app, "shop")
    loose = await submit(app, kind="spider", spec={"spider": "prices", "args": secret})
    await surfer.log_in(grants={EVERYWHERE: Role.DEVELOPER})
    again = await surfer.get(f"/runs/{first}/again")
    page = await surfer.get("/tasks/shop/prices")
    await surfer.send(f"/runs/{first}/again", again.fields | {"param-country": "fr", "param-password": MASK})
    await surfer.send("/tasks/shop/prices", page.fields | {"act": "run", "param-country": "it"})
    changed = await surfer.get(f"/runs/{loose}/again")
    lines = {"args": f"country=es\npassword={MASK}"}
    assert (await surfer.send(f"/runs/{loose}/again", changed.fields | lines)).status == 303
    assert "k4nary" not in again.text + changed.text + (await surfer.get(f"/runs/{loose}")).text
    assert "{{secret:NAME}}" in (await surfer.get(f"/runs/{loose}")).text
    runs = [run.spec.params or run.spec.spec["args"] for run in await app.runs.find({}, limit=3)][::-1]
    assert runs == [
        secret | {"country": "fr"},
        {"country": "it", "password": "the-default"},
        secret | {"country": "es"},
    ]


async def test_a_form_that_says_nothing_of_what_to_do_does_nothing(app: App, surfer: Surfer) -> None:
    run_id = await submit(app)
    await keep(app, noop("prices", project="shop"))
    await app.users.create("bob", PASSWORD, {"shop": Role.VIEWER})
    await surfer.log_in(grants=ADMIN)
    csrf = (await surfer.get("/account")).fields["csrf"]
    for page in (f"/runs/{run_id}", "/settings/users/bob", "/projects/shop", "/tasks/shop/prices", "/tasks"):
        for told in ({}, {"act": "odd"}):
            assert (await surfer.send(page, {"csrf": csrf, **told})).status == 422, page
    assert (await app.runs.get(run_id)).state is RunState.QUEUED
    assert (await app.users.get("bob")).active


async def test_a_mistake_does_not_make_one_overwrite_what_somebody_else_has_saved(app: App, surfer: Surfer) -> None:
    await app.users.create("bob", PASSWORD, {"shop": Role.VIEWER})
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/projects/shop/settings")
    await app.tasks.configure("shop", ProjectSettings(max_running=3))
    mistaken = await surfer.send("/projects/shop/settings", page.fields | {"max_running": "many"})
    late = await surfer.send("/projects/shop/settings", mistaken.fields | {"max_running": "7"})
    assert (mistaken.status, late.status) == (422, 422)
    assert (await app.tasks.settings("shop")).max_running == 3

    person = await surfer.get("/settings/users/bob")
    await app.users.grant("bob", {"bank": Role.VIEWER})
    roles = {"act": "roles", "project": "not a name", "role": "viewer"}
    mistaken = await surfer.send("/settings/users/bob", person.fields | roles)
    late = await surfer.send("/settings/users/bob", mistaken.fields | roles | {"project": "shop"})
    assert (mistaken.status, late.status) == (422, 422)
    assert (await app.users.get("bob")).grants == {"bank": Role.VIEWER}


async def test_a_schema_that_was_changed_meanwhile_is_not_overwritten(app: App, surfer: Surfer) -> None:
    await app.datasets.set("shop", "prices", key_fields=["sku"])
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/datasets/shop/prices/fields")
    await app.datasets.set("shop", "prices", key_fields=["url"], schema={"required": ["url"]})
    late = await surfer.send("/datasets/shop/prices/fields", page.fields | {"key_fields": "mine", "schema": "{"})
    for answer in (late, await surfer.send("/datasets/shop/prices/fields", late.fields | {"key_fields": "mine"})):
        assert (answer.status, 'id="schema-error"' in answer.text, 'value="mine"' in answer.text) == (422, True, True)
    assert (await app.datasets.get("shop", "prices")).key_fields == ("url",)
    again = await surfer.get("/datasets/shop/prices/fields")
    saved = await surfer.send("/datasets/shop/prices/fields", again.fields | {"key_fields": "mine", "schema": ""})
    assert saved.status == 303


async def test_a_number_that_cannot_be_one_is_told_beside_its_field(surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/projects/shop/settings")
    for most in ("²", "9" * 5000):
        answer = await surfer.send("/projects/shop/settings", page.fields | {"tags": f"heavy={most}"})
        assert (answer.status, 'id="tags-error"' in answer.text) == (422, True)


async def test_a_view_of_a_project_is_for_those_who_may_see_it(app: App, surfer: Surfer) -> None:
    for name, query in (("All failures", "state=failed"), ("Of the bank", "project=bank"), ("Mine", "project=shop")):
        await app.views.save("runs", name, query, by="ada")
    await surfer.log_in(grants={"shop": Role.VIEWER})
    page = await surfer.get("/runs")
    assert ("All failures" in page.text, "Mine" in page.text, "bank" in page.text) == (True, True, False)
    assert "bank" not in (await surfer.get("/runs.json")).text


async def test_what_was_typed_into_any_form_is_kept_where_the_session_has_ended(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/tasks/new")
    await surfer.send("/logout", page.fields)
    secret = {"password": "hush-hush", "name": "x", "value": "hush-hush"}
    answer = await surfer.send("/tasks/new", page.fields | secret | {"command": "echo <long>\nsleep 1", "params": "{}"})
    assert (answer.status, "echo &lt;long&gt;\nsleep 1\n\n{}" in answer.text, "hush" in answer.text) == (
        401,
        True,
        False,
    )
    assert (await surfer.send("/tasks/shop/go", {"act": "pause"})).leads_to.startswith("/login")


async def test_nothing_lasts_for_ever_because_its_end_was_not_understood(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    csrf = (await surfer.get("/account")).fields["csrf"]
    key = {"csrf": csrf, "name": "ci", "days": "7", "project": "*", "role": "viewer"}
    link = {"csrf": csrf, "label": "friends", "expires": "1"}
    assert (await surfer.send("/settings/keys/new", key)).status == 422
    assert (await surfer.send("/projects/shop/guest-links", link)).status == 422
    assert (await app.guest_links.page(), [each for each in await app.keys.all() if each.name == "ci"]) == ([], [])
