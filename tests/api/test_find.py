"""Finding anything by its name, as far as one may see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.acting import Visitor
from tests.api.walking import a_worker, items_of_a_run
from tests.conftest import on_sqlite
from tests.crawls.steering import a_crawl
from tests.projects.making import a_version
from tests.runs.acting import submit
from tests.tasks.scene import keep, noop
from weft.access.model import Role
from weft.app import App


async def furnished(app: App) -> None:
    await a_version(app, "shop")
    await keep(app, noop("shop-front", "0 * * * *", project="shop"), noop("at-the-shop", None, project="bank"))
    await items_of_a_run(app, "bank")


async def found(visitor: Visitor, part: str) -> list[tuple[Any, ...]]:
    answer = await visitor.get("/v1/find", params={"q": part})
    assert answer.status == 200, answer.data
    return [(each["kind"], each["project"], each["name"]) for each in answer.json["found"]]


async def test_everything_is_found_by_a_part_of_its_name_whatever_its_capitals(admin: Visitor) -> None:
    await furnished(admin.app)
    worker = (await a_worker(admin.app, "shop"))["name"]
    assert await found(admin, "SHOP") == [
        ("project", None, "shop"),
        ("task", "shop", "shop-front"),
        ("task", "bank", "at-the-shop"),
    ]
    assert ("spider", "shop", "prices") in await found(admin, "rice")
    assert ("worker", None, worker) in await found(admin, worker[2:])
    assert {kind for kind, *_ in await found(admin, "spider-")} >= {"dataset"}


async def test_a_run_is_found_by_its_number(admin: Visitor) -> None:
    run_id = await submit(admin.app)
    assert ("run", "shop", str(run_id)) in await found(admin, str(run_id))
    assert ("run", "shop", str(run_id)) in await found(admin, f" #{run_id} ")
    for nothing in ("0", "9" * 19, "9" * 30, "٣", "-1", "1.0"):
        assert [each for each in await found(admin, nothing) if each[0] == "run"] == []


async def test_a_crawl_is_found_by_its_number_and_the_newest_by_a_part_of_its_name(admin: Visitor) -> None:
    older, newer = [await a_crawl(admin.app) for _ in range(2)]
    other = await a_crawl(admin.app, "bank", urls=["https://elsewhere.example/"])

    async def numbers(visitor: Visitor, part: str) -> list[tuple[str, int]]:
        answer = await visitor.get("/v1/find", params={"q": part})
        return [(each["name"], each["number"]) for each in answer.json["found"] if each["kind"] == "crawl"]

    assert await numbers(admin, "SITE.ex") == [("site.example", newer.id)]
    assert await numbers(admin, "example") == [("elsewhere.example", other.id), ("site.example", newer.id)]
    assert await numbers(admin, f"#{older.id}") == [("site.example", older.id)]
    assert await numbers(admin, "99") == []
    stranger = await admin.granted({"bank": Role.VIEWER})
    assert await numbers(stranger, "example") == [("elsewhere.example", other.id)]
    assert await numbers(stranger, str(older.id)) == []


async def test_nobody_finds_what_they_may_not_see(admin: Visitor) -> None:
    await furnished(admin.app)
    worker = (await a_worker(admin.app, "shop"))["name"]
    run_id = await submit(admin.app, project="shop")
    stranger = await admin.granted({"bank": Role.ADMIN})
    assert await found(stranger, "shop") == [("task", "bank", "at-the-shop")]
    assert [await found(stranger, part) for part in ("prices", worker)] == [[], []]
    assert [each for each in await found(stranger, str(run_id)) if each[0] == "run"] == []


@on_sqlite
@pytest.mark.parametrize("part", ["%", "_", "\\", "'", '"name"', "{", "[{"])
async def test_characters_that_mean_something_to_a_database_are_only_characters(admin: Visitor, part: str) -> None:
    await furnished(admin.app)
    assert await found(admin, part) == []


@on_sqlite
async def test_of_each_kind_only_a_few_are_told_and_first_those_that_begin_so(admin: Visitor) -> None:
    await keep(admin.app, *[noop(f"a-{n:02}-pear", None) for n in range(20)], noop("pear", None))
    names = [name for _, _, name in await found(admin, "pear")]
    assert (names[0], len(names)) == ("pear", 6)
