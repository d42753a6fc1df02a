"""Making and editing tasks in a browser."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
import pytest_asyncio

from tests.cases import for_each
from tests.conftest import on_sqlite
from tests.tasks.scene import keep, noop
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.surfing import Shown, Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.runs.model import Retry
from weft.runs.success_text import parse_conditions
from weft.tasks.model import Deduplication, Task, UpstreamTask
from weft.tasks.schedule import Schedule

pytestmark = on_sqlite

FORM = {"name": "go", "project": "shop", "kind": "shell", "command": "echo hello", "schedule": "none", "act": "save"}
FULL = Task(
    name="full",
    project="shop",
    kind="http",
    spec={"url": "http://127.0.0.1/x", "method": "POST", "headers": {"X": "1"}, "expect_status": 201},
    description="all of it",
    params={"country": "de"},
    schedule=Schedule(
        every_seconds=90, start_at=1_700_000_000_000_000, jitter_seconds=5, catch_up_cap=7, overlap="replace"
    ),
    after=(UpstreamTask("go", "any"),),
    tags=("eu",),
    labels=("big",),
    priority=3,
    timeout_seconds=12.5,
    grace_seconds=3,
    retry=Retry(count=2, factor=3, on=("failed",)),
    max_running=4,
    dedup=Deduplication(("country",), 60),
    log_bytes=1000,
)


@pytest_asyncio.fixture
async def developer(surfer: Surfer) -> Surfer:
    await surfer.log_in(grants={EVERYWHERE: Role.DEVELOPER})
    return surfer


async def form(surfer: Surfer, page: str) -> dict[str, str]:
    return (await surfer.get(page)).fields


async def sent(surfer: Surfer, page: str, fields: dict[str, str]) -> Shown:
    return await surfer.send(page, await form(surfer, page) | fields)


def typed(page: Shown) -> dict[str, str]:
    """What stands in the fields of a form."""
    found = dict(re.findall(r'<input class="form-control[^"]*" id="(\w+)"[^>]* value="([^"]*)"', page.text))
    found |= dict(
        re.findall(r'<textarea class="form-control[^"]*" id="(\w+)"[^>]*>\n(.*?)</textarea>', page.text, re.S)
    )
    found |= dict(re.findall(r'type="radio" name="(\w+)" value="(\w+)" checked', page.text))
    for name, options in re.findall(r'<select [^>]*name="(\w+)"[^>]*>(.*?)</select>', page.text, re.S):
        found[name] = "".join(re.findall(r'value="(\w+)" selected', options))
    found |= {"paused": "yes"} if re.search(r'name="paused" value="yes" checked', page.text) else {}
    return {name: html.unescape(value) for name, value in found.items()}


async def test_a_task_is_made_by_a_form(app: App, developer: Surfer) -> None:
    more = {"schedule": "cron", "when": "30 2 * * *", "zone": "Europe/Berlin", "retry_count": "2", "tags": "eu, prices"}
    more |= {"params": '{"country": "de"}', "timeout_seconds": "1.5", "overlap": "queue_one", "misfire": "all"}
    answer = await sent(developer, "/tasks/new", FORM | more)
    assert answer.leads_to == "/tasks/shop/go?said=made"
    task = (await app.tasks.get("shop", "go")).task
    assert task.spec == {"script": "echo hello"}
    assert task.schedule == Schedule(cron="30 2 * * *", zone="Europe/Berlin", overlap="queue_one", misfire="all")
    assert (task.retry.count, task.tags, task.params, task.timeout_seconds) == (
        2,
        ("eu", "prices"),
        {"country": "de"},
        1.5,
    )
    assert "The task is made." in (await developer.get(answer.leads_to)).text


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"kind": "http", "url": "http://127.0.0.1/"}, {"url": "http://127.0.0.1/"}),
        (
            {"kind": "spider", "spider": "quotes", "args": "tag=a=b\n\nx= 1"},
            {"spider": "quotes", "args": {"tag": "a=b", "x": " 1"}},
        ),
        ({"kind": "shell", "command": "echo a\necho b\n"}, {"script": "echo a\necho b"}),
    ],
)
async def test_each_kind_takes_its_own_fields(
    app: App, developer: Surfer, fields: dict[str, str], spec: dict[str, Any]
) -> None:
    assert (await sent(developer, "/tasks/new", FORM | fields)).leads_to.startswith("/tasks/shop/go")
    assert (await app.tasks.get("shop", "go")).task.spec == spec


@pytest.mark.parametrize(
    ("schedule", "when", "kept"),
    [
        ("every", "1h30m", {"every_seconds": 5400}),
        ("once", "2030-01-31 08:00", {"once_at": 1_896_076_800_000_000}),
        ("cron", "@hourly", {"cron": "0 * * * *"}),
    ],
)
async def test_each_kind_of_schedule_is_kept(
    app: App, developer: Surfer, schedule: str, when: str, kept: dict[str, Any]
) -> None:
    await sent(developer, "/tasks/new", FORM | {"schedule": schedule, "when": when})
    assert (await app.tasks.get("shop", "go")).task.schedule == Schedule(**kept)


@for_each(
    ("wrong", "field"),
    [
        ({"name": "no name"}, "name"),
        ({"name": ""}, "name"),
        ({"project": "../x"}, "project"),
        ({"schedule": "cron", "when": "61 * * * *"}, "when"),
        ({"schedule": "cron", "when": ""}, "when"),
        ({"schedule": "every", "when": "soon"}, "when"),
        ({"schedule": "once", "when": "2030-13-01"}, "when"),
        ({"schedule": "cron", "when": "@daily", "zone": "Mars/Base"}, "zone"),
        ({"retry_count": "many"}, "retry_count"),
        ({"retry_count": "5000"}, "retry_count"),
        ({"retry_count": "1.5"}, "retry_count"),
        ({"timeout_seconds": "-1"}, "timeout_seconds"),
        ({"timeout_seconds": "nan"}, "timeout_seconds"),
        ({"max_running": "0"}, "max_running"),
        ({"priority": "9999"}, "priority"),
        ({"tags": "fine, no/tag"}, "tags"),
        ({"labels": "a b c/d"}, "labels"),
        ({"after": "nobody"}, "after"),
        ({"after": "go sometimes"}, "after"),
        ({"params": "{"}, "params"),
        ({"params": '{"no name": 1}'}, "params"),
        ({"command": "echo {{nothing}}", "kind": "http", "url": "{{nothing}}"}, "params"),
        ({"kind": "http", "url": "ftp://x"}, "url"),
        ({"kind": "spider", "spider": ""}, "spider"),
        ({"kind": "spider", "spider": "x", "args": "nothing"}, "args"),
        ({"command": ""}, "command"),
    ],
)
async def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    app: App, developer: Surfer, wrong: dict[str, str], field: str
) -> None:
    fields = FORM | {"description": 'my "own" <words>'} | wrong
    answer = await sent(developer, "/tasks/new", fields)
    assert (answer.status, re.findall(r'id="(\w+)-error"', answer.text)) == (422, [field])
    shown = typed(answer)
    assert {name: value for name, value in fields.items() if shown.get(name, value) != value} == {}
    assert await app.tasks.all() == []


async def test_a_name_that_is_taken_is_not_overwritten(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"))
    answer = await sent(developer, "/tasks/new", FORM)
    assert (answer.status, 'role="alert"' in answer.text) == (422, True)
    assert (await app.tasks.get("shop", "go")).task.kind == "noop"


async def test_a_form_that_is_sent_back_as_it_came_changes_nothing(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"), FULL)
    page = await developer.get("/tasks/shop/full/edit")
    answer = await developer.send("/tasks/shop/full/edit", page.fields | typed(page) | {"act": "save"})
    assert answer.leads_to == "/tasks/shop/full?said=saved"
    stored = await app.tasks.get("shop", "full")
    assert stored.task == FULL
    assert stored.revision == 1


async def test_what_the_form_has_no_field_for_is_kept_with_a_change(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"), FULL)
    page = await developer.get("/tasks/shop/full/edit")
    fields = page.fields | typed(page) | {"url": "http://127.0.0.1/y", "schedule": "every", "when": "2m", "after": ""}
    await developer.send("/tasks/shop/full/edit", fields)
    task = (await app.tasks.get("shop", "full")).task
    assert task.spec == {**FULL.spec, "url": "http://127.0.0.1/y"}
    assert task.schedule is not None
    assert (task.schedule.every_seconds, task.schedule.jitter_seconds, task.schedule.catch_up_cap) == (120, 5, 7)
    assert (task.dedup, task.retry, task.after, task.log_bytes) == (FULL.dedup, FULL.retry, (), 1000)


@pytest.mark.parametrize(
    "task",
    [
        Task(name="go", project="shop", kind="spider", spec={"spider": "x", "args": {"a": "1=2", "b": "c d"}}),
        Task(
            name="go",
            project="shop",
            kind="spider",
            spec={"spider": "x"},
            success_if=parse_conditions(
                ["finish_reason = finished", "errors any", "items >= 50 % of usual", "missing a b <= 5 %"]
            ),
        ),
        Task(name="go", project="shop", kind="shell", spec={"argv": ["echo", "a b", "'", "", "ü"]}),
        Task(name="go", project="shop", kind="shell", spec={"script": "a\n\n  b"}, paused=True),
        Task(
            name="go", project="shop", kind="shell", spec={"argv": ["sh", "-c", "echo {{a}}\necho"]}, params={"a": "1"}
        ),
        Task(name="go", project="shop", kind="noop", timeout_seconds=1234567.25, retry=Retry(delay_seconds=1000.125)),
        noop("go", "2030-01-31 08:00:30", project="shop"),
        noop("go", "@every 1d2h3m4s5ms", project="shop"),
        noop("go", {"when": "30 2 * * 1", "zone": "Asia/Tokyo", "misfire": "all"}, project="shop"),
    ],
)
async def test_no_task_is_changed_by_a_form_that_is_sent_back(app: App, developer: Surfer, task: Task) -> None:
    await keep(app, task)
    page = await developer.get("/tasks/shop/go/edit")
    assert (await developer.send("/tasks/shop/go/edit", page.fields | typed(page))).status == 303
    assert (await app.tasks.get("shop", "go")).task == task


async def test_arguments_that_were_not_changed_stay_what_they_were(app: App, developer: Surfer) -> None:
    args = {"pages": 3, "full": True, "country": "de"}
    await keep(app, Task(name="go", project="shop", kind="spider", spec={"spider": "x", "args": args}))
    page = await developer.get("/tasks/shop/go/edit")
    fields = page.fields | typed(page) | {"args": "pages=3\nfull=True\ncountry=fr\nmore=1"}
    assert (await developer.send("/tasks/shop/go/edit", fields)).status == 303
    assert (await app.tasks.get("shop", "go")).task.spec["args"] == args | {"country": "fr", "more": "1"}


async def test_a_task_that_was_changed_meanwhile_is_not_overwritten(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"))
    page = await developer.get("/tasks/shop/go/edit")
    await app.tasks.pause("shop", "go")
    for fields in ({"description": "mine"}, {"text": '{"kind": "noop"}'}):
        answer = await developer.send("/tasks/shop/go/edit", page.fields | typed(page) | fields)
        assert answer.status == 422
        assert "changed meanwhile" in answer.text
        assert next(iter(fields.values())) in html.unescape(answer.text)
    assert (await app.tasks.get("shop", "go")).task.paused


async def test_all_of_a_task_is_edited_as_json(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"), FULL)
    page = await developer.get("/tasks/shop/full/edit?as=json")
    text = typed(page)["text"]
    assert 'data-editor="json"' in page.text
    changed = text.replace("all of it", "more of it")
    answer = await developer.send("/tasks/shop/full/edit?as=json", page.fields | {"text": changed})
    assert answer.leads_to == "/tasks/shop/full?said=saved"
    assert (await app.tasks.get("shop", "full")).task.description == "more of it"
    for wrong in ("{", "[]", '{"kind": "noop", "nothing": 1}', '{"kind": "noop", "kind": "noop"}'):
        answer = await developer.send("/tasks/shop/full/edit?as=json", page.fields | {"text": wrong, "revision": "2"})
        assert (answer.status, 'id="text-error"' in answer.text, typed(answer)["text"]) == (422, True, wrong)


async def test_a_task_is_made_from_json(app: App, developer: Surfer) -> None:
    text = '{"project": "shop", "name": "go", "kind": "noop", "dedup": {"window_seconds": 5}}'
    assert (await sent(developer, "/tasks/new", {"text": text})).leads_to == "/tasks/shop/go?said=made"
    assert (await app.tasks.get("shop", "go")).task.dedup == Deduplication((), 5)
    assert (await sent(developer, "/tasks/new", {"text": '{"kind": "noop"}'})).status == 422


async def test_a_preview_without_a_script_shows_the_form_with_its_times(app: App, developer: Surfer) -> None:
    fields = FORM | {"schedule": "cron", "when": "0 9 * * 1", "act": "preview"}
    answer = await sent(developer, "/tasks/new", fields)
    assert (answer.status, "<b>At 09:00 on Monday (UTC).</b>" in answer.text) == (200, True)
    assert await app.tasks.all() == []


async def test_a_form_without_the_token_of_its_page_changes_nothing(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"))
    go = "/tasks/shop/go"
    acts = [("/tasks", "pause_all"), ("/tasks/new", ""), (f"{go}/edit", ""), (go, "run"), (go, "pause"), (go, "delete")]
    for path, act in acts:
        fields = FORM | {"act": act, "revision": "1", "name": "new", "csrf": "x" * 43}
        assert (await developer.send(path, fields)).status == 403
    assert (await developer.send(go, await form(developer, go) | {"act": "dance"})).status == 422
    stored = await app.tasks.all()
    assert [(each.task.name, each.task.paused, each.revision) for each in stored] == [("go", False, 1)]


async def test_who_may_not_make_tasks_there_is_told_beside_the_project(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"blog": Role.DEVELOPER, "shop": Role.OPERATOR})
    answer = await sent(surfer, "/tasks/new", FORM)
    assert (answer.status, 'id="project-error"' in answer.text) == (422, True)
    assert await app.tasks.all() == []


async def test_the_form_previews_what_is_typed_and_makes_a_task(app: App, surfer: Surfer) -> None:
    async with browsing() as browser:
        await app.users.create("bea", "correct horse battery staple", {EVERYWHERE: Role.DEVELOPER})
        await browser.open(f"{surfer.address}/login?next=/tasks/new")
        await browser.type("#name", "bea")
        await browser.type("#password", "correct horse battery staple")
        await browser.press("main button")
        await browser.type("#name", "go")
        await browser.type("#command", "echo hello")
        await browser.run("document.querySelector('[name=schedule][value=cron]').click()")
        await browser.type("#when", "0 9 * * *")

        async def is_previewed() -> bool:
            return "Every day at 09:00 (UTC)." in await browser.text("#preview")

        await eventually(is_previewed, timeout=30)
        await browser.press(".task-form .btn-primary")
        assert "The task is made." in await browser.text()
        assert browser.complaints == []
    assert (await app.tasks.get("default", "go")).task.schedule == Schedule(cron="0 9 * * *")


async def test_a_condition_that_cannot_be_read_is_told_beside_its_field(app: App, developer: Surfer) -> None:
    await keep(app, Task(name="go", project="shop", kind="spider", spec={"spider": "x"}))
    page = await developer.get("/tasks/shop/go/edit")
    answer = await developer.send("/tasks/shop/go/edit", page.fields | typed(page) | {"success_if": "errors < 1"})
    assert answer.status == 422
    assert 'id="success_if-error"' in answer.text
    assert "it must be like errors &lt;= 0" in answer.text


async def test_what_is_too_deep_or_too_large_for_the_api_is_so_for_a_form(developer: Surfer) -> None:
    fields = await form(developer, "/tasks/new") | FORM
    deep = await developer.send("/tasks/new", fields | {"params": '{"a": ' + "[" * 70 + "]" * 70 + "}"})
    assert (deep.status, "nested 64 deep at most" in deep.text) == (422, True)
    large = await developer.send("/tasks/new", fields | {"description": "\x01" * 180_000})  # six bytes each in JSON
    assert (large.status, "at most 1048576 bytes" in large.text) == (413, True)
