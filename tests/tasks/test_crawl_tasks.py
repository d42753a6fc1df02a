"""A task that crawls is refused when it is made, for what ``weft crawl`` would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import OpenApp, on_sqlite
from weft.errors import Invalid
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task

SITE, PRIVATE = "https://site.example/", "http://10.1.2.3/"
WHOM = {"contact": "us@weft.example"}
NOBODY = "those who are crawled must be able to reach somebody"


def task(url: str, fetching: dict[str, str], **fields: Any) -> Task:
    return Task(project="shop", name="site", kind="crawl", spec={"urls": [url], "fetching": fetching}, **fields)


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (task(SITE, {}), NOBODY),
        (task(SITE, {"contact": "ann"}), "it must be a mail address"),
        (task(PRIVATE, WHOM), "10.1.2.3"),
    ],
)
async def test_what_may_not_be_crawled_is_refused_when_the_task_is_made(
    another_app: OpenApp, wrong: Task, said: str
) -> None:
    app = await another_app(host="192.0.2.1", allowed_networks="")
    for refused in (
        app.tasks.apply(DesiredState((wrong,))),
        app.tasks.rehearse(DesiredState((wrong,))),
        app.tasks.put(wrong),
    ):
        with pytest.raises(Invalid, match=said):
            await refused
    with pytest.raises(Invalid, match=said):
        app.tasks.loose(wrong)
    with pytest.raises(Invalid, match=said):
        await app.crawls.create("shop", wrong.spec)
    assert await app.tasks.all() == []


@on_sqlite
async def test_what_the_settings_allow_may_be_crawled_by_a_task(another_app: OpenApp) -> None:
    app = await another_app(allowed_networks="10.0.0.0/8", crawl_contact="us@weft.example")
    await app.tasks.apply(DesiredState((task(PRIVATE, {}),)))
    assert (await app.tasks.get("shop", "site")).task.spec["urls"] == [PRIVATE]


@on_sqlite
async def test_an_address_that_a_parameter_will_be_is_checked_when_the_task_starts(another_app: OpenApp) -> None:
    app = await another_app(allowed_networks="")
    await app.tasks.put(task("{{begin}}", WHOM, params={"begin": None}))
    with pytest.raises(Invalid, match=r"10\.1\.2\.3"):
        await app.tasks.start("shop", "site", {"begin": PRIVATE})
    assert (await app.tasks.start("shop", "site", {"begin": SITE})).run_id == 1
