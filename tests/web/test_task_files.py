"""Tasks as files in a browser: imported after a look at what would change, and exported."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Mapping

import aiohttp
import msgspec
import pytest_asyncio
import yaml

from tests.cases import for_each
from tests.conftest import on_sqlite
from tests.tasks.scene import keep, noop
from tests.web.surfing import Shown, Surfer
from tests.web.test_task_forms import FULL, typed
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.tasks.model import Task, UpstreamTask
from weft.web.pages.task_forms import LARGEST_FORM
from weft.web.pages.tasks import task_definition

pytestmark = on_sqlite


@pytest_asyncio.fixture
async def developer(surfer: Surfer) -> Surfer:
    await surfer.log_in(grants={EVERYWHERE: Role.DEVELOPER})
    return surfer


TOML = """
[projects.shop]
weight = 2.0

[[tasks]]
name = "go"
project = "shop"
kind = "noop"
schedule = "@daily"
"""
YAML = """
tasks:
- {name: go, project: shop, kind: noop, after: [{task: first, on: any}]}
- {name: first, project: shop, kind: noop}
"""


async def imported(surfer: Surfer, fields: Mapping[str, str], file: tuple[str, str] | None = None) -> Shown:
    form = aiohttp.FormData(
        {"csrf": (await surfer.get("/tasks/import")).fields["csrf"], **fields}, default_to_multipart=True
    )
    if file is not None:
        form.add_field("file", file[1].encode(), filename=file[0])
    return await surfer.ask("POST", "/tasks/import", data=form)


async def test_an_import_shows_the_difference_before_it_changes_anything(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={EVERYWHERE: Role.ADMIN})
    await keep(app, noop("go", project="shop"), noop("old", project="shop"))
    fields = {"text": TOML, "format": "toml", "prune": "yes"}
    page = await imported(surfer, fields | {"act": "check"})
    shown = re.findall(r'<li class="change change-(\w+)">', page.text)
    assert (page.status, sorted(shown)) == (200, ["change", "delete", "settings"])
    assert typed(page)["text"].strip() == TOML.strip()
    assert (await app.tasks.get("shop", "go")).task.schedule is None
    for unseen in ({}, {"seen": page.fields["seen"], "prune": ""}, {"seen": page.fields["seen"], "text": TOML + "#"}):
        assert (await imported(surfer, fields | {"act": "apply"} | unseen)).status == 200
        assert len(await app.tasks.all()) == 2
    answer = await imported(surfer, fields | {"act": "apply", "seen": page.fields["seen"]})
    assert answer.leads_to == "/tasks?said=applied&count=3"
    assert [each.task.name for each in await app.tasks.all()] == ["go"]


async def test_a_file_that_is_sent_is_read_by_its_ending(app: App, developer: Surfer) -> None:
    page = await imported(developer, {"act": "check", "text": "", "format": "toml"}, ("tasks.yml", YAML))
    assert (page.text.count('class="change change-create"'), typed(page)["format"]) == (2, "yaml")
    await imported(developer, {"act": "apply", "text": YAML, "format": "yaml", "seen": page.fields["seen"]})
    assert (await app.tasks.get("shop", "go")).task.after == (UpstreamTask("first", "any"),)


BOMB = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True))
    + "tasks: *i\n"
)


@for_each(
    ("text", "ending"),
    [
        ("", "toml"),
        ("tasks = 1", "toml"),
        ("[[tasks]", "toml"),
        ("[[tasks]]\nname = 'go'\nproject = 'shop'\nkind = 'nothing'", "toml"),
        ("tasks: [", "yaml"),
        ("- 1", "yaml"),
        (BOMB, "yaml"),
        ("tasks: &t [*t]", "yaml"),
        ("tasks:\n- !!python/object/apply:os.system [true]", "yaml"),
        ("[" * 5000, "json"),
        ('{"tasks": [{"name": 1}]}', "json"),
        ('{"tasks": [], "tasks": [{"name": "go", "project": "shop", "kind": "noop"}]}', "json"),
        ("# " + "x" * 600_000, "toml"),
    ],
)
async def test_a_file_that_is_none_is_refused_with_what_was_typed(
    app: App, developer: Surfer, text: str, ending: str
) -> None:
    page = await imported(developer, {"act": "check", "text": text, "format": ending})
    assert (page.status, 'id="text-error"' in page.text) == (422, True)
    assert await app.tasks.all() == []


async def test_what_is_exported_is_what_there_is(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"), FULL, noop("feed", "@daily", project="blog"))
    assert 'name="format"' in (await developer.get("/tasks/export")).text
    answer = await developer.get("/tasks/export?format=toml&project=shop")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="shop.toml"'
    content = tomllib.loads(answer.text)
    assert [each["name"] for each in content["tasks"]] == ["full", "go"]
    whole = yaml.safe_load((await developer.get("/tasks/export?format=yaml")).text)
    assert len(whole["tasks"]) == 3
    page = await imported(developer, {"act": "check", "text": answer.text, "format": "toml"})
    assert "everything is as the file says" in page.text


async def test_the_name_of_an_exported_file_is_harmless(developer: Surfer) -> None:
    answer = await developer.get("/tasks/export?format=json&project=a%22%0d%0ab/%C3%BC")
    assert answer.status in (200, 422)
    assert answer.headers.get("Content-Disposition", "") in ("", 'attachment; filename="ab.json"')


async def test_toml_that_cannot_say_a_task_names_the_format_that_can(app: App, developer: Surfer) -> None:
    await keep(app, Task(name="open", project="shop", kind="noop", params={"x": None}))
    answer = await developer.get("/tasks/export?format=toml")
    assert (answer.status, "take YAML" in answer.text) == (422, True)
    assert "YAML" in (await developer.get("/tasks/shop/open")).text


async def test_the_definition_of_a_page_is_that_of_the_task(app: App, developer: Surfer) -> None:
    await keep(app, noop("go", project="shop"), FULL)
    shown = (await developer.get("/tasks/shop/full.json")).data
    content = task_definition(msgspec.json.decode(shown)["task"])
    assert content["retry"] == {"count": 2, "factor": 3.0, "on": ["failed"]}
    assert "paused" not in content


async def test_a_file_that_no_page_takes_is_not_kept_however_large_it_is(developer: Surfer) -> None:
    form = aiohttp.FormData({"csrf": (await developer.get("/tasks/import")).fields["csrf"]}, default_to_multipart=True)
    form.add_field("file", io.BytesIO(b"#" * (LARGEST_FORM + 1)), filename="tasks.toml")
    answer = await developer.ask("POST", "/tasks/import", data=form)
    assert (answer.status, "a form may have at most" in answer.text.lower()) == (413, True)
