"""What guards every page, whatever it is about: tokens, policies, and the rights of its readers."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import msgspec
import pytest_asyncio

from tests.conftest import SetClock, on_sqlite
from tests.web.furnishing import furnish
from tests.web.surfing import Shown, Surfer
from tests.web.test_walk import EXAMPLES
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.web.pages import task_forms, versions
from weft.web.rendering import POLICY
from weft.web.site import PAGES, PUBLIC_PAGES

pytestmark = on_sqlite

ACTS = ("", "delete", "drop", "resubmit", "save", "pause", "again", "cancel", "use", "roles", "run", "remove", "all")
Furnished = tuple[Surfer, dict[str, Any]]
OF_THE_SHOP = (
    "reviews",
    "Nightly prices",
    "shop/prices",
    "north-1",
    "south-2",
    "Green tea",
    ">grace<",
    "own server",
    "API_TOKEN",
    "shop.example/hook",
    "KeyError",
)
"""Words that only somebody who may see the project shop should read."""


@pytest_asyncio.fixture
async def furnished(app: App, surfer: Surfer, clock: SetClock) -> Furnished:
    values = await furnish(app, clock)
    await app.views.save("runs", "Nightly prices", "project=shop&task=prices", by="ada")
    return surfer, values


def addresses(values: dict[str, Any]) -> list[str]:
    return [each.format(**values) for pages in EXAMPLES.values() for each in pages]


def filled(path: str, values: dict[str, Any]) -> str:
    """The address of a page, of something that there is."""
    known = values | {"project": "shop", "name": "prices", "version": "1.0", "spider": "prices"}
    if path.startswith("/workers/"):
        known["name"] = "north-1"
    if path.startswith("/settings/users/"):
        known["name"] = "grace"
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: str(known[found[1]]), path)


async def sent(surfer: Surfer, page: str, handle: Any, fields: dict[str, str]) -> Shown:
    if handle not in versions.UPLOADS | task_forms.UPLOADS:
        return await surfer.send(page, fields)
    form = aiohttp.FormData(fields, default_to_multipart=True)
    for name in ("archive", "file"):
        form.add_field(name, b"[[tasks]]\nname='x'\nproject='shop'\nkind='noop'\n", filename="x.toml")
    return await surfer.ask("POST", page, data=form)


async def test_no_form_changes_anything_without_the_token_of_its_session(app: App, furnished: Furnished) -> None:
    surfer, values = furnished
    await surfer.log_in(grants={EVERYWHERE: Role.ADMIN})
    before = {entry.id async for entry in app.audit.every()}
    told = {"label": "x", "url": "http://127.0.0.1/", "name": "x", "project": "shop", "selected": "1", "body": "x"}
    for path, methods in PAGES.items():
        if "POST" not in methods or methods["POST"] in PUBLIC_PAGES:
            continue
        for number, act in enumerate(ACTS):
            fields = told | {"act": act} | ({"csrf": "0" * 64} if number % 2 else {})
            answer = await sent(surfer, filled(path, values), methods["POST"], fields)
            assert answer.status != 500, path
    new = [entry async for entry in app.audit.every() if entry.id not in before]
    assert [(each.action, each.data) for each in new if '"refused"' not in (each.data or "")] == []
    assert len({each.action for each in new}) > 15


async def test_every_answer_to_a_person_has_the_policy_of_pages(furnished: Furnished) -> None:
    surfer, values = furnished
    every = [*addresses(values), "/nowhere", "/runs/999999", "/guest/none", "/login"]
    for logs_in in (False, True):
        if logs_in:
            await surfer.log_in(grants={EVERYWHERE: Role.ADMIN})
        for page in every:
            answer = await surfer.get(page, accept="text/html")
            policy = answer.headers["Content-Security-Policy"]
            assert policy == POLICY or (answer.status == 303 and "default-src 'none'" in policy), page
            assert answer.headers["X-Content-Type-Options"] == "nosniff", page
            assert answer.headers["Cache-Control"] == "no-store", page


async def test_who_may_see_one_project_reads_nothing_of_another_on_any_page(furnished: Furnished) -> None:
    surfer, values = furnished
    await surfer.log_in("nell", {"news": Role.ADMIN})
    seen = 0
    for page in addresses(values):
        if page.startswith(("/guest/", "/find")):  # the one is for anybody, the other repeats what was asked
            continue
        for form in (page, "{}.json{}{}".format(*page.partition("?"))):
            answer = await surfer.get(form)
            shown = answer.text.replace(page, "").replace(page.partition("?")[0], "")
            read = [word for word in OF_THE_SHOP if word in shown]
            seen += answer.status == 200
            assert not read or answer.status in (403, 404), (form, answer.status, read)
            assert "Green tea" not in shown, form
    assert seen > 30


async def test_no_page_is_left_behind_in_the_browser(surfer: Surfer) -> None:
    """htmx would keep pages, with what they show and the token of the session, in the browser's own storage."""
    await surfer.log_in()
    [told] = re.findall(r"<meta name=\"htmx-config\" content='([^']+)'>", (await surfer.get("/runs")).text)
    assert msgspec.json.decode(told)["historyCacheSize"] == 0
