"""The pages of projects."""

from __future__ import annotations

import html
import re

import msgspec
import pytest

from tests.conftest import SetClock, on_sqlite
from tests.items.pasts import crawled
from tests.items.scene import Spider
from tests.projects.making import a_version
from tests.runs.acting import Hand, submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.projects.model import Spider as ProjectSpider
from weft.runs.success_text import condition_lines
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
    assert (await surfer.get("/projects/secret")).status == 404


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
    assert "1 of 2 failed" in page.text
    assert 'href="/projects/shop/guest-links"' in page.text
    assert 'href="/settings/secrets?project=shop"' in page.text
    told = msgspec.json.decode((await surfer.get("/projects/shop.json")).data)
    assert told["spider_health"]["by_spider"][0]["items"] == 4


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
    typed |= {"spider_env": "SHOP_DB\nPROXY_*", "grace_seconds": "60", "network": "80, 443"}
    saved = await surfer.send("/projects/shop/settings", page.fields | typed)
    assert saved.leads_to == "/projects/shop?said=saved"
    found = await app.tasks.settings("shop")
    assert (found.max_running, found.weight, found.tags) == (5, 2.5, {"heavy": 2, "slow": 1})
    assert (found.min_isolation, found.spider_env, found.grace_seconds) == ("L1", ("SHOP_DB", "PROXY_*"), 60)
    assert found.network == (80, 443)
    shown = (await surfer.get("/projects/shop")).text
    assert "SHOP_DB, PROXY_*" in shown
    assert "TCP ports 80, 443 only" in shown
    assert 'value="80, 443"' in (await surfer.get("/projects/shop/settings")).text
    stale = await surfer.send("/projects/shop/settings", page.fields | {"max_running": "7"})
    assert stale.status == 422
    assert (await app.tasks.settings("shop")).max_running == 5


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"max_running": "many"}, "max_running", "This must be a whole number."),
        ({"max_running": "0"}, "max_running", "it must be from 1 to 1000000"),
        ({"tags": "heavy"}, "tags", "Each line must be a tag"),
        ({"spider_env": "WEFT_TOKEN"}, "spider_env", "each must be the name of a variable, or PREFIX_*"),
        ({"network": "some"}, "network", "This must be all, none, or TCP ports such as 80, 443."),
        ({"network": "443, 70000"}, "network", "TCP ports from 1 to 65535"),
        ({"grace_seconds": "4000"}, "grace_seconds", "it must be from 0 to 3600"),
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


async def test_conditions_of_a_project_and_its_spiders_are_set_by_its_form(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await a_version(app, "shop")
    page = await surfer.get("/projects/shop/settings")
    typed = {
        "success_if": "errors <= 0\nfinish_reason = finished",
        "spiders": "prices: items >= 10\nprices: errors any",
    }
    assert (await surfer.send("/projects/shop/settings", page.fields | typed)).status == 303
    found = await app.tasks.settings("shop")
    assert condition_lines(found.success_if) == ["finish_reason = finished", "errors <= 0"]
    assert condition_lines(found.spiders["prices"].success_if) == ["errors any", "items >= 10"]
    shown = html.unescape((await surfer.get("/projects/shop")).text)
    assert "errors <= 0" in shown
    assert "prices: items >= 10" in shown
    page = await surfer.get("/projects/shop/settings")
    wrong = await surfer.send("/projects/shop/settings", page.fields | {"spiders": "prices items >= 10"})
    assert wrong.status == 422
    assert 'id="spiders-error"' in wrong.text
    for field, lines in (
        ("spiders", "prices: items >= 5\nprices: items <= 2"),
        ("success_if", "items >= 5\nitems <= 2"),
    ):
        wrong = await surfer.send("/projects/shop/settings", page.fields | {field: lines})
        assert wrong.status == 422
        assert re.findall(r'id="(\w+)-error"', wrong.text) == [field]
        assert "min may not be above max (got min = 5, max = 2)" in html.unescape(wrong.text)
    assert await app.tasks.settings("shop") == found


async def test_a_project_is_no_better_than_its_worst_spider(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants=ADMIN)
    spiders = tuple(ProjectSpider(name=name) for name in ("broken", "busy", "empty", "new"))
    await a_version(app, "shop", spiders=spiders)
    for _ in range(15):
        await crawled(app, clock, 1, spider="busy")
    for _ in range(4):
        await crawled(app, clock, 0, spider="broken", outcome="failed")
        await silent(app, "empty")
    for _ in range(21):
        await crawled(app, clock, 1, spider="busy")
    for address, said in (("/projects", "1 failing"), ("/projects/shop", "failed 4 times in a row")):
        page = await surfer.get(address)
        assert said in page.text, address
        assert "1 without items" in page.text, address
    rows = re.findall(r'<th scope="row"><a href="/projects/shop/spiders/(\w+)"', page.text)
    assert rows == ["broken", "empty", "busy", "new"]
    overview = await surfer.get("/")
    assert "Failing in shop: broken" in overview.text
    assert "No items any more in shop: empty" in overview.text
    [told] = msgspec.json.decode((await surfer.get("/projects.json")).data)["items"]
    assert (told["health"], told["unwell"]) == ("failing", {"broken": "failing", "empty": "no_items"})


async def silent(app: App, spider: str) -> None:
    """A run of a spider that has fetched pages and brought nothing."""
    await submit(app, task=spider, kind="spider", spec={"spider": spider})
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await Spider(hand, lease).send(b"", stats={"downloader/request_count": 3, "response_received_count": 3})
    await hand.end(lease)
