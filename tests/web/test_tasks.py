"""The pages of tasks: the list, one task, the graph, and what can be done with one or with many."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from tests.tasks.scene import NOON, Hand, keep, noop, runs_of
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import seconds
from weft.tasks.model import Task, UpstreamTask

pytestmark = on_sqlite

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}'


@pytest_asyncio.fixture
async def developer(surfer: Surfer, clock: SetClock) -> Surfer:
    clock.now = NOON
    await surfer.log_in(grants={EVERYWHERE: Role.DEVELOPER})
    return surfer


async def some(app: App) -> None:
    await keep(
        app,
        noop("prices", {"when": "30 2 * * *", "zone": "Europe/Berlin"}, project="shop", tags=("eu",)),
        noop("report", project="shop", after=(UpstreamTask("prices"), UpstreamTask("feed", "failure"))),
        noop("feed", "@every 5m", project="shop", paused=True),
    )


async def token(surfer: Surfer, page: str = "/tasks") -> dict[str, str]:
    return {"csrf": (await surfer.get(page)).fields["csrf"]}


async def test_the_list_says_what_starts_each_task_and_how_its_last_run_went(app: App, developer: Surfer) -> None:
    await some(app)
    await app.tasks.start("shop", "report")
    hand = await Hand.join(app)
    await hand.finish(*await hand.lease(), outcome="failed")
    page = (await developer.get("/tasks")).text
    assert "every day at 02:30 (Europe/Berlin)" in page
    assert "after prices; after feed (failure)" in page
    rows = dict(re.findall(r'<tr id="task-\d+">.*?/tasks/shop/(\w+)">(.*?)</tr>', page, re.DOTALL))
    assert "state-failed" in rows["report"]
    assert "no run yet" in rows["prices"]
    assert "state-paused" in rows["feed"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=PRI", ["prices"]),
        ("project=shop&paused=true", ["feed"]),
        ("tag=eu", ["prices"]),
        ("kind=shell", []),
        ("project=nowhere", []),
    ],
)
async def test_the_list_is_filtered_by_its_address(app: App, developer: Surfer, query: str, found: list[str]) -> None:
    await some(app)
    page = await developer.get(f"/tasks?{query}")
    assert re.findall(r'<th scope="row"><a href="/tasks/shop/(\w+)">', page.text) == found
    assert page.status == 200


async def test_a_filter_that_cannot_be_is_told_beside_its_field(developer: Surfer) -> None:
    page = await developer.get("/tasks?tag=no+tag&name=x")
    assert (page.status, 'id="tag-error"' in page.text, 'value="no tag"' in page.text) == (422, True, True)


async def test_chosen_tasks_are_paused_and_go_on(app: App, developer: Surfer) -> None:
    await some(app)
    fields = await token(developer)
    chosen = [("csrf", fields["csrf"]), ("act", "pause"), ("selected", "shop/prices"), ("selected", "shop/report")]
    answer = await developer.ask("POST", "/tasks", data=chosen)
    assert answer.leads_to == "/tasks?said=pause&count=2"
    assert "Tasks paused: 2." in (await developer.get(answer.leads_to)).text
    assert all(each.task.paused for each in await app.tasks.all())
    await developer.send("/tasks", fields | {"act": "resume", "selected": "shop/feed"})
    assert {each.task.name: each.task.paused for each in await app.tasks.all()}["feed"] is False


async def test_who_acts_on_many_comes_back_to_the_same_filter(app: App, developer: Surfer) -> None:
    await some(app)
    fields = {"csrf": (await developer.get("/tasks?tag=eu&name=p")).fields["csrf"], "act": "pause"}
    for kept, back in (("tag=eu&name=%C3%BC", "name=%C3%BC&"), ("x=1&\r\nSet-Cookie: a=b", ""), ("ü\x00", "")):
        answer = await developer.send("/tasks", fields | {"kept": kept, "selected": "shop/prices"})
        assert (answer.status, answer.leads_to.startswith("/tasks?"), "Set-Cookie" in answer.headers) == (
            303,
            True,
            False,
        )
        assert back in answer.leads_to


async def test_all_tasks_of_the_project_that_is_shown_are_paused(app: App, developer: Surfer) -> None:
    await some(app)
    await keep(app, noop("other", "@daily", project="blog"))
    await developer.send("/tasks", await token(developer) | {"act": "pause_all", "project": "shop"})
    assert [each.task.name for each in await app.tasks.all() if not each.task.paused] == ["other"]
    await developer.send("/tasks", await token(developer) | {"act": "resume_all"})
    assert not any(each.task.paused for each in await app.tasks.all())


async def test_a_task_tells_its_times_in_its_zone_and_in_utc_with_the_change_of_clocks(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    clock.now = NOON + seconds(140 * 86_400)
    await surfer.log_in(grants={EVERYWHERE: Role.DEVELOPER})
    await some(app)
    page = (await surfer.get("/tasks/shop/prices")).text
    assert "2026-10-25 02:30" in page
    assert "2026-10-25 00:30" in page
    assert page.count("clocks went back 1 h") == 1


async def test_a_task_tells_what_was_missed_and_why(app: App, developer: Surfer, clock: SetClock) -> None:
    await keep(app, noop("hourly", "@hourly", project="shop"))
    clock.now = NOON + seconds(5 * 3600 + 600)
    await app.scheduler.tick()
    page = (await developer.get("/tasks/shop/hourly")).text
    assert "Missed: 4 ticks" in page
    assert "Weft was not running then" in page


async def test_a_task_names_what_comes_before_and_after_it(app: App, developer: Surfer) -> None:
    await some(app)
    before = (await developer.get("/tasks/shop/report")).text
    assert 'href="/tasks/shop/prices"' in before
    assert "if it fails" in before
    assert 'href="/tasks/shop/report"' in (await developer.get("/tasks/shop/feed")).text


async def test_the_last_runs_are_bars_with_words(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"))
    hand = await Hand.join(app)
    for outcome in ("succeeded", "failed"):
        await app.tasks.start("shop", "go")
        await hand.finish(*await hand.lease(), outcome=outcome)
    page = (await developer.get("/tasks/shop/go")).text
    shown = re.findall(r'class="bar bar-(\w+) bar-\d" href="/runs/\d+" title="\d+: (\w+)', page)
    assert shown == [("succeeded", "succeeded"), ("failed", "failed")]


async def test_a_run_is_started_with_what_was_typed(app: App, developer: Surfer) -> None:
    spec = {"argv": ["echo", "{{country}}"]}
    task = Task(name="go", project="shop", kind="shell", spec=spec, params={"country": "de", "limit": 3, "open": None})
    await keep(app, task)
    fields = await token(developer, "/tasks/shop/go") | {"act": "run", "param-country": "7", "param-limit": "5"}
    wrong = await developer.send("/tasks/shop/go", fields | {"param-limit": "many", "param-open": "x"})
    assert (wrong.status, 'id="param-limit-error"' in wrong.text, 'value="many"' in wrong.text) == (422, True, True)
    answer = await developer.send("/tasks/shop/go", fields | {"param-open": "[1]"})
    assert re.fullmatch(r"/tasks/shop/go\?said=run&count=\d+", answer.leads_to)
    [run] = await runs_of(app, "go", "shop")
    assert run.spec.params == {"country": "7", "limit": 5, "open": [1]}


async def test_a_window_is_back_filled_in_the_time_of_the_schedule(app: App, developer: Surfer) -> None:
    await some(app)
    fields = await token(developer, "/tasks/shop/prices") | {"act": "backfill", "zone": "Europe/Berlin"}
    window = {"from": "2026-05-29T02:30", "to": "2026-05-31T02:30"}
    answer = await developer.send("/tasks/shop/prices", fields | window)
    assert answer.leads_to.endswith("said=backfill&count=2")
    late = await developer.send("/tasks/shop/prices", fields | window | {"to": "2030-01-01T00:00"})
    assert (late.status, 'id="to-error"' in late.text, 'value="2030-01-01T00:00"' in late.text) == (422, True, True)
    none = await developer.send("/tasks/shop/prices", fields | {"from": "soon", "to": "2026-05-31T02:30"})
    assert none.status == 422
    assert (await developer.send("/tasks/shop/prices", fields | window | {"zone": "Mars/Base"})).status == 422


async def test_a_task_is_deleted_only_as_it_was_seen(app: App, developer: Surfer) -> None:
    await some(app)
    fields = await token(developer, "/tasks/shop/report") | {"act": "delete"}
    assert (await developer.send("/tasks/shop/report", fields | {"revision": "7"})).status == 422
    assert (await developer.send("/tasks/shop/report", fields | {"revision": "1"})).leads_to == "/tasks?said=deleted"
    refused = await developer.send("/tasks/shop/prices", fields | {"revision": "7"})
    assert "was changed meanwhile" in refused.text
    assert {each.task.name for each in await app.tasks.all()} == {"prices", "feed"}


async def test_a_viewer_is_offered_nothing_that_changes(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    await some(app)
    await keep(app, noop("hidden", project="blog"))
    page = await surfer.get("/tasks")
    assert "Pause all" not in page.text
    assert "New task" not in page.text
    assert "/tasks/blog/" not in page.text
    one = (await surfer.get("/tasks/shop/prices")).text
    assert 'name="act"' not in one.partition("<main")[2]
    assert (await surfer.send("/tasks/shop/prices", await token(surfer) | {"act": "pause"})).status == 403
    assert (await surfer.get("/tasks/blog/hidden")).status in (403, 404)


async def test_an_unknown_task_is_a_helpful_404(developer: Surfer) -> None:
    page = await developer.get("/tasks/shop/none")
    assert (page.status, "shop/none" in page.text) == (404, True)


async def test_the_graph_is_a_picture_of_links_and_a_list(app: App, developer: Surfer) -> None:
    await some(app)
    page = (await developer.get("/tasks/graph")).text
    picture, _, table = page.partition("As a list")
    assert picture.count('class="edge') == 2
    assert re.findall(r'<a href="/tasks/shop/(\w+)"><g class="node node-(\w+)', picture) == [
        ("feed", "paused"),
        ("prices", "new"),
        ("report", "new"),
    ]
    assert table.count("<tr>") == 4
    assert "No task comes after another" in (await developer.get("/tasks/graph?project=blog")).text


async def test_hostile_texts_of_a_task_are_only_ever_text(app: App, developer: Surfer) -> None:
    task = Task(
        name="bad", project="shop", kind="shell", spec={"script": HOSTILE}, description=HOSTILE, params={"x": HOSTILE}
    )
    await keep(app, task)
    for path in ("/tasks", "/tasks/shop/bad", "/tasks/shop/bad/edit", "/tasks/shop/bad/edit?as=json"):
        page = await developer.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text


@pytest.mark.parametrize("language", ["zh", "ja"])
async def test_pages_of_tasks_speak_every_language(app: App, developer: Surfer, language: str) -> None:
    await some(app)
    for path in ("/tasks", "/tasks/shop/prices", "/tasks/graph", "/tasks/new", "/tasks/import", "/schedules"):
        page = await developer.get(path, Accept_Language=language)
        assert (page.status, f'<html lang="{language}"' in page.text) == (200, True)
        assert ">Dependencies<" not in page.text


async def test_the_json_of_the_list_is_what_the_api_answers(app: App, developer: Surfer) -> None:
    await some(app)
    assert (await developer.get("/tasks.json?tag=eu")).data == (
        await developer.get("/v1/tasks?last_run=true&tag=eu")
    ).data
    assert b'"schedule"' in (await developer.get("/tasks/shop/prices.json")).data


async def test_the_audit_log_keeps_what_a_page_has_sent(app: App, developer: Surfer) -> None:
    await some(app)
    chosen = await token(developer) | {"act": "pause", "selected": "shop/prices"}
    for _ in range(2):
        await developer.send("/tasks", chosen)
    told = [entry.data or "" async for entry in app.audit.every() if entry.action == "tasks.pause_many"]
    assert any('"sent":{"tasks":["shop/prices"]' in each for each in told)


@for_each("page", ["/tasks", "/tasks?project=shop", "/tasks/shop/prices", "/tasks/new", "/tasks/graph", "/schedules"])
async def test_who_changes_the_look_of_a_page_of_tasks_comes_back_to_it(app: App, developer: Surfer, page: str) -> None:
    await some(app)
    assert (await developer.get(page)).fields["next"] == page
