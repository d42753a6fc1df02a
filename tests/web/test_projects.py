"""The pages of projects."""

from __future__ import annotations

import html

import msgspec
import pytest

from tests.conftest import SetClock, on_sqlite
from tests.items.pasts import crawled
from tests.projects.making import a_version
from tests.runs.acting import submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.tasks.model import ProjectSettings

pytestmark = on_sqlite

ADMIN = {EVERYWHERE: Role.ADMIN}


async def test_projects_are_listed_with_their_code_and_how_their_last_runs_ended(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    await surfer.log_in()
    await a_version(app, "shop", "1.4", at=clock())
    await crawled(app, clock, 3)
    await crawled(app, clock, 0, outcome="failed")
    await submit(app, project="other", kind="noop")
    page = await surfer.get("/projects")
    assert page.status == 200
    assert 'href="/projects/shop"' in page.text
    assert "1 of 2 failed" in page.text
    assert "1.4" in page.text
    assert "nothing has run" in page.text
    told = msgspec.json.decode((await surfer.get("/projects.json")).data)
    assert [each["project"] for each in told["items"]] == ["other", "shop"]


async def test_an_empty_list_says_how_a_project_is_made(surfer: Surfer) -> None:
    await surfer.log_in()
    assert "There is no project yet" in (await surfer.get("/projects")).text


async def test_somebody_sees_only_their_projects(app: App, surfer: Surfer) -> None:
    await a_version(app, "shop")
    await a_version(app, "secret")
    await surfer.log_in(grants={"shop": Role.VIEWER})
    page = await surfer.get("/projects")
    assert 'href="/projects/shop"' in page.text
    assert "secret" not in page.text
    assert "Deploy…" not in page.text
    assert (await surfer.get("/projects/secret")).status in (403, 404)


async def test_projects_come_in_pages(app: App, surfer: Surfer) -> None:
    for number in range(52):
        await a_version(app, f"p{number:02}")
    await surfer.log_in()
    page = await surfer.get("/projects")
    assert page.text.count('scope="row"') == 50
    older = html.unescape(page.text.split('class="paging"')[1].split('href="')[1].split('"')[0])
    rest = await surfer.get(older)
    assert "p50" in rest.text
    assert "p00" not in rest.text


async def test_who_names_a_project_to_deploy_to_is_led_there_or_told_what_a_name_is(surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    assert (await surfer.get("/projects?deploy=new-one")).leads_to == "/projects/new-one/deploy"
    page = await surfer.get("/projects?deploy=a%20b")
    assert page.status == 422
    assert "A name has letters" in page.text
    assert 'value="a b"' in page.text


async def test_a_project_shows_its_spiders_as_dots_and_in_a_table(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants=ADMIN)
    await a_version(app, "shop", "1.4")
    await crawled(app, clock, 4)
    await crawled(app, clock, 0, outcome="failed")
    page = await surfer.get("/projects/shop")
    assert page.status == 200
    assert 'href="/projects/shop/spiders/prices"' in page.text
    assert "prices: 4 pages, 2 items" in html.unescape(page.text).replace("\u2009", "")
    assert "flaky" in page.text
    assert 'href="/projects/shop/shares"' in page.text
    assert 'href="/settings/secrets?project=shop"' in page.text
    told = msgspec.json.decode((await surfer.get("/projects/shop.json")).data)
    assert told["standing"]["by_spider"][0]["items"] == 4


async def test_a_project_without_code_says_how_to_deploy(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await submit(app, project="bare", kind="noop")
    page = await surfer.get("/projects/bare")
    assert "This project has no code" in page.text
    assert "weft --project bare deploy" in page.text


async def test_a_project_that_is_not_there_is_a_page_that_says_so(surfer: Surfer) -> None:
    await surfer.log_in()
    page = await surfer.get("/projects/nowhere")
    assert page.status == 404
    assert "project nowhere" in page.text


async def test_the_tasks_of_a_project_are_paused_and_go_on(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await keep(app, noop("tick", "0 * * * *", project="shop"))
    page = await surfer.get("/projects/shop")
    done = await surfer.send("/projects/shop", page.fields | {"act": "pause"})
    assert done.leads_to == "/projects/shop?said=paused"
    assert (await app.tasks.get("shop", "tick")).task.paused
    assert "are paused" in (await surfer.get(done.leads_to)).text
    await surfer.send("/projects/shop", page.fields | {"act": "resume"})
    assert not (await app.tasks.get("shop", "tick")).task.paused


async def test_an_admin_changes_what_holds_for_a_project(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await app.tasks.configure("shop", ProjectSettings(max_running=3, tags={"heavy": 2}))
    page = await surfer.get("/projects/shop/settings")
    assert 'value="3"' in page.text
    assert "heavy=2" in page.text
    typed = {"max_running": "5", "weight": "2.5", "keep_days": "", "tags": "heavy=2\nslow = 1\n", "min_isolation": "L1"}
    saved = await surfer.send("/projects/shop/settings", page.fields | typed)
    assert saved.leads_to == "/projects/shop?said=saved"
    found = await app.tasks.settings("shop")
    assert (found.max_running, found.weight, found.tags) == (5, 2.5, {"heavy": 2, "slow": 1})
    assert found.min_isolation == "L1"
    stale = await surfer.send("/projects/shop/settings", page.fields | {"max_running": "7"})
    assert stale.status == 422
    assert (await app.tasks.settings("shop")).max_running == 5


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"max_running": "many"}, "max_running", "This must be a whole number."),
        ({"max_running": "0"}, "max_running", "it must be from 1 to 1000000"),
        ({"tags": "heavy"}, "tags", "Each line must be a tag"),
        ({"weight": "-1"}, "weight", "it must be from 0.001 to 1000"),
    ],
)
async def test_a_setting_that_cannot_be_is_told_beside_its_field_and_kept(
    app: App, surfer: Surfer, typed: dict[str, str], field: str, sentence: str
) -> None:
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/projects/shop/settings")
    answer = await surfer.send("/projects/shop/settings", page.fields | typed)
    assert answer.status == 422
    assert f'id="{field}-error"' in answer.text
    assert sentence.lower() in html.unescape(answer.text).lower()
    assert typed[field] in answer.text


async def test_who_is_no_admin_sees_settings_and_cannot_change_them(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.DEVELOPER})
    page = await surfer.get("/projects/shop/settings")
    assert "Only an admin" in page.text
    assert "<fieldset disabled>" in page.text
    assert (await surfer.send("/projects/shop/settings", page.fields | {"max_running": "1"})).status == 403
