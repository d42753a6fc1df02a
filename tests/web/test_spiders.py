"""The page of a spider, and the form that runs it."""

from __future__ import annotations

import html
from typing import Any

import msgspec

from tests.access.acting import PASSWORD
from tests.conftest import SetClock, on_sqlite
from tests.items.pasts import crawled
from tests.items.scene import Spider as Spooling
from tests.projects.making import a_version
from tests.runs.acting import Hand, submit
from tests.tasks.scene import keep
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.projects.model import Spider
from weft.runs.success_text import parse_conditions
from weft.tasks.model import ProjectSettings, Task

pytestmark = on_sqlite

DEVELOPER = {EVERYWHERE: Role.DEVELOPER}
PAGE = "/projects/shop/spiders/prices"


async def test_a_spider_shows_what_it_did_and_what_is_usual(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    await keep(app, Task(name="nightly", project="shop", kind="spider", spec={"spider": "prices"}))
    runs = [await crawled(app, clock, count) for count in (10, 11, 12, 13)]
    failed = await crawled(app, clock, 0, outcome="failed")
    page = await surfer.get(PAGE)
    assert page.status == 200
    assert 'href="/tasks/shop/nightly"' in page.text
    assert f'href="/runs/{failed}"' in page.text
    assert f'<a href="/runs/{runs[-1]}">{runs[-1]}</a></div>' in page.text
    assert "flaky" in page.text
    assert "Two letters." in page.text
    assert "data-chart=" in page.text
    assert "unusual below 8 or above 15" in page.text
    assert "<code>number</code>" in page.text
    told: Any = msgspec.json.decode((await surfer.get(PAGE + ".json")).data)
    assert [each["items"] for each in told["history"]["runs"]] == [0, 13, 12, 11, 10]
    assert told["history"]["usual_items"] == {"low": 8.05, "middle": 11.5, "high": 14.95}
    assert {each["name"]: each["shares"][0] for each in told["history"]["fields"]}["number"] == 1.0


async def test_what_is_usual_is_a_duration_that_runs_had_not_one_that_none_can_have(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    for _ in range(4):
        await crawled(app, clock, 1)
    page = await surfer.get(PAGE)
    assert '1 s <span class="hint">unusual above 2 s</span>' in page.text
    assert "0 ms" not in page.text


async def test_the_history_of_a_spider_shows_its_marks_and_conditions(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    settings = ProjectSettings(success_if=parse_conditions(["errors <= 0", "items >= 1"]))
    await app.tasks.configure("shop", settings)
    run_id = await crawled(app, clock, 3)
    page = await surfer.get(PAGE)
    assert "1 of 2 conditions held" in page.text
    assert "errors &lt;= 0; items &gt;= 1" in page.text
    run = await surfer.get(f"/runs/{run_id}")
    assert "Success conditions" in run.text
    assert "1 error was logged, at most 0 are allowed" in html.unescape(run.text)
    assert "did not hold" in run.text
    await app.tasks.configure("shop", ProjectSettings())
    marked = await crawled(app, clock, 3)
    for address in (PAGE, "/runs", f"/runs/{marked}", "/runs?mark=errors"):
        assert "with errors" in (await surfer.get(address)).text, address
    assert f'id="run-{run_id}"' not in (await surfer.get("/runs?mark=errors")).text


async def test_a_condition_that_cannot_be_decided_is_flagged_in_every_list_and_says_why(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    fine = await crawled(app, clock, 3)
    settings = ProjectSettings(success_if=parse_conditions(["items >= 50 % of usual"]))
    await app.tasks.configure("shop", settings)
    run_id = await crawled(app, clock, 3)
    for address in (PAGE, "/runs", "/runs?mark=undecided"):
        page = await surfer.get(address)
        assert "undecided</span>" in page.text, address
        assert "the usual number of items is missing" in page.text, address
    assert f'id="run-{fine}"' not in (await surfer.get("/runs?mark=undecided")).text
    run = await surfer.get(f"/runs/{run_id}")
    assert "undecided</span>" in run.text
    assert "not decided: fewer than 3 earlier runs of the task succeeded" in run.text


async def test_a_run_that_made_no_request_is_flagged_in_every_list(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    fine = await crawled(app, clock, 3)
    run_id = await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await Spooling(hand, lease).send(b"", stats={"start_time": "now"})
    await hand.end(lease)
    for address in (PAGE, "/runs", f"/runs/{run_id}", "/runs?mark=no_requests"):
        assert "no requests" in (await surfer.get(address)).text, address
    assert f'id="run-{fine}"' not in (await surfer.get("/runs?mark=no_requests")).text


async def test_a_spider_that_has_not_run_says_so_and_one_that_is_not_there_is_not_found(
    app: App, surfer: Surfer
) -> None:
    await surfer.log_in()
    await a_version(app, "shop")
    assert "It has not run yet" in (await surfer.get(PAGE)).text
    page = await surfer.get("/projects/shop/spiders/nobody")
    assert page.status == 404
    assert "has no spider nobody" in page.text
    assert (await surfer.get("/projects/nowhere/spiders/prices")).status == 404


async def test_a_run_is_queued_from_the_form_of_its_spider(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    page = await surfer.get(PAGE + "/run")
    assert 'name="arg.country"' in page.text
    assert 'placeholder="de"' in page.text
    form = page.fields | {"arg.country": "fr", "more": "pages=2", "tags": "heavy", "priority": "3", "act": "run"}
    done = await surfer.send(PAGE + "/run", form)
    run = await app.runs.get(int(done.leads_to.removeprefix("/runs/")))
    assert run.spec.spec == {"spider": "prices", "args": {"country": "fr", "pages": "2"}}
    assert (run.task, run.kind, run.priority, run.spec.tags) == ("prices", "spider", 3, ("heavy",))
    again = await surfer.send(PAGE + "/run", form)
    assert again.leads_to == done.leads_to


async def test_the_form_has_what_an_earlier_run_was_given(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    first = await crawled(app, clock, 1, args={"country": "it"})
    await crawled(app, clock, 1, args={"country": "it"})
    last = await crawled(app, clock, 1, args={"country": "es", "extra": "1"})
    page = await surfer.get(PAGE + "/run")
    assert page.text.count("run?from=") == 2
    offered = page.text.split('<datalist id="arg.country-known">')[1].split("</datalist>")[0]
    assert offered == '<option value="es"></option><option value="it"></option>'
    assert f"from={first}" not in page.text
    filled = await surfer.get(f"{PAGE}/run?from={last}")
    assert 'value="es"' in filled.text
    assert "extra=1" in filled.text
    assert (await surfer.get(f"{PAGE}?from={last}")).leads_to == f"{PAGE}/run?from={last}"
    assert (await surfer.get(f"{PAGE}/run?from=999")).status == 404


async def test_a_run_from_the_form_has_what_the_earlier_one_had_and_the_form_does_not_show(
    app: App, surfer: Surfer
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    spec = {"spider": "prices", "dataset": "teas", "limits": {"items": 5}, "args": {"country": "it"}}
    first = await submit(app, task="prices", kind="spider", spec=spec, labels=("gpu",))
    page = await surfer.get(f"{PAGE}/run?from={first}")
    assert "--dataset teas" in page.text
    wrong = await surfer.send(PAGE + "/run", page.fields | {"act": "run", "priority": "x"})
    done = await surfer.send(PAGE + "/run", wrong.fields | {"act": "run", "arg.country": "fr"})
    run = await app.runs.get(int(done.leads_to.rpartition("/")[2]))
    assert run.spec.spec == spec | {"args": {"country": "fr"}}
    assert run.spec.labels == ("gpu",)


async def test_the_same_call_is_shown_for_what_was_typed(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    page = await surfer.get(PAGE + "/run")
    shown = await surfer.send(PAGE + "/run", page.fields | {"arg.country": "f'r", "act": "show"})
    text = html.unescape(shown.text)
    assert shown.status == 200
    assert "weft --project shop run prices -a" in text
    assert f"curl -X POST {surfer.address}/v1/runs" in text
    assert "NewRun(" in text
    assert (await app.runs.counts())["ready"] == 0


async def test_what_is_refused_is_told_beside_its_field_with_what_was_typed(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop")
    page = await surfer.get(PAGE + "/run")
    refused = await surfer.send(PAGE + "/run", page.fields | {"arg.country": "<b>", "priority": "5000", "act": "run"})
    assert refused.status == 422
    assert 'id="priority-error"' in refused.text
    assert 'value="&lt;b&gt;"' in refused.text
    odd = await surfer.send(PAGE + "/run", page.fields | {"settings": "DELAY", "act": "run"})
    assert odd.status == 422
    assert 'id="settings-error"' in odd.text
    gone = await surfer.send(PAGE + "/run", page.fields | {"version": "7.7", "act": "run"})
    assert gone.status in (404, 422)
    assert "7.7" in gone.text
    assert (await app.runs.counts())["ready"] == 0


async def test_who_is_no_developer_sees_the_form_and_cannot_send_it(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR})
    await a_version(app, "shop")
    assert f'href="{PAGE}/run"' not in (await surfer.get(PAGE)).text
    page = await surfer.get(PAGE + "/run")
    assert "needs the role developer" in page.text
    refused = await surfer.send(PAGE + "/run", page.fields | {"act": "run"})
    assert refused.status == 403
    assert (await app.runs.counts())["ready"] == 0


async def test_a_spider_with_any_name_has_a_page(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in()
    await a_version(app, "shop", spiders=(Spider("a/b ü"),))
    await crawled(app, clock, 1, spider="a/b ü", task="odd")
    await a_version(app, "shop", "2.0")
    page = await surfer.get("/projects/shop/spiders/a%2Fb%20%C3%BC")
    assert page.status == 200
    assert "a/b ü" in page.text
    assert "not in the current version" in page.text


async def test_the_call_follows_what_is_typed_and_the_run_is_shown_in_a_browser(app: App, surfer: Surfer) -> None:
    await app.users.create("ada", PASSWORD, DEVELOPER)
    await a_version(app, "shop")
    async with browsing() as browser:
        await browser.open(f"{surfer.address}/login?next={PAGE}/run")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        await browser.type('[name="arg.country"]', "pt")
        await eventually(lambda: browser.run("document.querySelector('#call-cli').textContent.includes('country=pt')"))
        await browser.press("[value=run]")
        assert await browser.run("location.pathname") == "/runs/1"
        assert browser.complaints == []
    assert (await app.runs.get(1)).spec.spec["args"] == {"country": "pt"}
