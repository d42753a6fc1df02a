"""Success conditions over the API: every level that takes them, who wins, and what is refused with one sentence."""

from __future__ import annotations

from typing import Any

from tests.api.acting import Visitor
from tests.cases import Cases
from tests.conftest import on_sqlite
from tests.items.scene import Spider, lines
from tests.projects.making import a_version
from tests.runs.acting import Hand

pytestmark = on_sqlite

SPIDER: dict[str, Any] = {"kind": "spider", "spec": {"spider": "prices"}}
STATS = {"downloader/request_count": 5, "response_received_count": 4, "log_count/ERROR": 2, "log_count/WARNING": 1}

Asked = tuple[str, str, dict[str, Any]]


def levels(conditions: Any) -> dict[str, tuple[Asked, str]]:
    """Each way to set conditions: how it is asked for, and where in the request they stand."""
    of_spider = {"spiders": {"prices": {"success_if": conditions}}}
    return {
        "run": (("POST", "/v1/runs", {"project": "shop", **SPIDER, "success_if": conditions}), "success_if"),
        "task": (("PUT", "/v1/tasks/shop/nightly", {**SPIDER, "success_if": conditions}), "success_if"),
        "project": (("PUT", "/v1/projects/shop", {"success_if": conditions}), "success_if"),
        "spider": (("PUT", "/v1/projects/shop", of_spider), "spiders[...].success_if"),
        "file, task": (
            (
                "POST",
                "/v1/tasks/apply",
                {"tasks": [{"name": "n", "project": "shop", **SPIDER, "success_if": conditions}]},
            ),
            "tasks[0].success_if",
        ),
        "file, project": (
            ("POST", "/v1/tasks/apply", {"projects": {"shop": {"success_if": conditions}}}),
            "projects[...].success_if",
        ),
        "file, spider": (
            ("POST", "/v1/tasks/apply", {"projects": {"shop": of_spider}}),
            "projects[...].spiders[...].success_if",
        ),
    }


REFUSED: list[tuple[Any, str, str]] = [
    ({"mistakes": {"max": 0}}, "", "mistakes"),
    ("errors <= 0", "", "expected"),
    ({"errors": {"max": -1}}, ".errors.max", ">= 0"),
    ({"errors": {"min": 1}}, ".errors", "min"),
    ({"errors": {"max": "none"}}, ".errors.max", "int"),
    ({"items": {"min": 5, "max": 2}}, ".items", "min may not be above max (got min = 5, max = 2)"),
    ({"requests": {"min": 2, "max": 1}}, ".requests", "min may not be above max (got min = 2, max = 1)"),
    ({"items": {"min_percent_of_usual": 120}}, ".items.min_percent_of_usual", "<= 100"),
    ({"requests": {"min_percent_of_usual": 50}}, ".requests", "min_percent_of_usual"),
    ({"finish_reason": ["finished", ""]}, ".finish_reason[1]", "length >= 1"),
    ({"fields": {"price": {"missing_max_percent": 101}}}, ".fields[...].missing_max_percent", "<= 100"),
    ({"fields": {"": {}}}, "", "fields names ''; a name has from 1 to 200 characters"),
    ({"fields": {str(number): {} for number in range(51)}}, "", "fields names 51 fields; it may name 50 at most"),
]


async def test_a_condition_that_is_wrong_is_refused_at_each_level_by_one_sentence_that_names_it(
    admin: Visitor,
) -> None:
    await a_version(admin.app, "shop")
    cases = Cases()
    for conditions, place, why in REFUSED:
        for level, (asked, where) in levels(conditions).items():
            with cases.case(f"{level}: {conditions}"):
                answer = await admin.call(*asked)
                assert (answer.status, answer.json["field"]) == (422, where + place)
                detail = answer.json["detail"]
                assert detail.startswith(f"{where}{place}: ")
                assert why in detail
                assert "\n" not in detail
    cases.report()
    assert (await admin.get("/v1/runs")).json["items"] == []
    assert (await admin.get("/v1/tasks")).json["items"] == []
    assert (await admin.get("/v1/projects/shop")).json["success_if"] is None


async def test_only_spiders_take_conditions(admin: Visitor) -> None:
    body = {"kind": "noop", "spec": {}, "success_if": {"errors": {"max": 0}}}
    for asked in (("PUT", "/v1/tasks/shop/x", body), ("POST", "/v1/runs", {**body, "project": "shop"})):
        answer = await admin.call(*asked)
        assert (answer.status, answer.json["field"].rpartition(": ")[2]) == (422, "success_if")
        assert "only a task of the kind spider has it" in answer.json["detail"]


async def conditions(visitor: Visitor, run_id: int) -> list[tuple[Any, ...]]:
    """What must hold for a run, and who has set it."""
    run = (await visitor.get(f"/v1/runs/{run_id}")).json
    return [(each["name"], each["field"], each["limit"], each["of"]) for each in run["conditions"]]


async def test_each_level_that_is_set_over_the_api_wins_over_the_wider_ones_condition_by_condition(
    admin: Visitor,
) -> None:
    """A file sets project, spider and task; a run may be given some of its own, which count as its task's."""
    await a_version(admin.app, "shop")
    fields = {name: {"missing_max_percent": 5} for name in ("price", "name")}
    wide = {"errors": {"max": 0}, "warnings": {"max": 0}, "pages": {"min": 9}, "items": {"min": 9}, "fields": fields}
    of_spider = {"warnings": {"max": 5}, "items": {"min": 4}, "fields": {"price": {"missing_max_percent": 50}}}
    of_task = {"items": {"min": 1}, "pages": {}, "fields": {"name": {}}}
    task = {"name": "nightly", "project": "shop", **SPIDER, "success_if": of_task}
    settings = {"success_if": wide, "spiders": {"prices": {"success_if": of_spider}}}
    applied = await admin.post("/v1/tasks/apply", {"projects": {"shop": settings}, "tasks": [task]})
    assert applied.status == 200
    started = (await admin.post("/v1/tasks/shop/nightly/start", {})).json["run_id"]
    of_run = {"project": "shop", **SPIDER, "success_if": {"errors": {"max": 7}}}
    given = (await admin.post("/v1/runs", of_run)).json["run_id"]
    plain = (await admin.post("/v1/runs", {"project": "shop", **SPIDER})).json["run_id"]
    assert await conditions(admin, started) == [
        ("errors", None, 0, "project"),
        ("warnings", None, 5, "spider"),
        ("items", None, 1, "task"),
        ("fields", "price", 50, "spider"),
    ]
    wider = [
        ("warnings", None, 5, "spider"),
        ("items", None, 4, "spider"),
        ("pages", None, 9, "project"),
        ("fields", "price", 50, "spider"),
        ("fields", "name", 5, "project"),
    ]
    assert await conditions(admin, given) == [("errors", None, 7, "task"), *wider]
    assert await conditions(admin, plain) == [("errors", None, 0, "project"), *wider]


async def test_the_history_of_a_spider_has_the_reason_and_what_became_of_each_condition(admin: Visitor) -> None:
    await a_version(admin.app, "shop")
    asked = {"errors": {"max": 0}, "items": {"min": 1, "min_percent_of_usual": 50}}
    failed, undecided = [
        (await admin.post("/v1/runs", {"project": "shop", **SPIDER, "success_if": each})).json["run_id"]
        for each in (asked, {"items": asked["items"]})
    ]
    hand = await Hand.join(admin.app)
    for lease in await hand.lease():
        await Spider(hand, lease).send(lines([{"n": 1}]), stats=STATS)
        await hand.end(lease)
    found = (await admin.get("/v1/projects/shop/history?spider=prices")).json["runs"]
    told = {each["run_id"]: each for each in found}
    assert (told[failed]["outcome"], told[failed]["marks"]) == ("condition", [])
    assert told[failed]["reason"] == "2 errors were logged, at most 0 are allowed"
    assert [(each["bound"], each["held"], each["undecided"]) for each in told[failed]["conditions"]] == [
        ("max", False, None),
        ("min", True, None),
        ("min_percent_of_usual", None, "usual"),
    ]
    assert (told[undecided]["outcome"], told[undecided]["marks"]) == ("succeeded", ["errors", "undecided"])
    assert told[undecided]["reason"].startswith("items >= 50 % of usual was not decided: ")
