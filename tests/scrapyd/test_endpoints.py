"""Scrapyd's endpoints, in its own words."""

from __future__ import annotations

import re

import aiohttp
import pytest

from tests.conftest import SetClock, on_sqlite
from tests.scrapyd.calling import JOB, Client, asked, leased, said, scheduled
from tests.scrapyd.conftest import a_version
from weft.items.model import ItemBatch
from weft.runs.model import Ending, RunState

REQUIRED = [
    ("/schedule.json", {}, "project"),
    ("/schedule.json", {"project": "shop"}, "spider"),
    ("/cancel.json", {"job": "a"}, "project"),
    ("/cancel.json", {"project": "shop"}, "job"),
    ("/addversion.json", {"version": "1", "egg": "x"}, "project"),
    ("/addversion.json", {"project": "shop", "egg": "x"}, "version"),
    ("/addversion.json", {"project": "shop", "version": "1"}, "egg"),
    ("/delversion.json", {"version": "1"}, "project"),
    ("/delversion.json", {"project": "shop"}, "version"),
    ("/delproject.json", {}, "project"),
]


async def test_the_status_counts_what_waits(scrapyd: Client) -> None:
    await scheduled(scrapyd)
    answer = await scrapyd.get("/daemonstatus.json")
    found = answer.json
    assert (found["pending"], found["running"], found["finished"], found["status"]) == (1, 0, 0, "ok")
    assert answer.data.endswith(b"}\n")
    assert not answer.data.endswith(b"\n\n")


@on_sqlite
@pytest.mark.parametrize(("path", "form", "name"), REQUIRED)
async def test_what_is_missing_is_named(scrapyd: Client, path: str, form: dict[str, str], name: str) -> None:
    assert await said(scrapyd, path, form) == f"'{name}' parameter is required"


@on_sqlite
async def test_a_parameter_of_the_query_counts_as_one_of_the_form(scrapyd: Client) -> None:
    answer = await scrapyd.send("/schedule.json?project=shop&spider=things&jobid=mine")
    assert answer.json["jobid"] == "mine"


@on_sqlite
async def test_the_form_counts_before_the_query_and_the_first_value_before_others(scrapyd: Client) -> None:
    form = b"project=shop&spider=things&jobid=first&jobid=second"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await scrapyd.send("/schedule.json?jobid=query", form, headers=headers)).json["jobid"] == "first"


@on_sqlite
async def test_a_body_of_json_is_not_looked_at(scrapyd: Client) -> None:
    answer = await scrapyd.post("/schedule.json", JOB)
    assert answer.json["message"] == "'project' parameter is required"


@on_sqlite
async def test_a_name_that_is_no_text_is_told_with_its_byte(scrapyd: Client) -> None:
    answer = await scrapyd.send("/schedule.json?project=%ff&spider=x")
    assert answer.json["message"] == (
        "project is invalid: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    )


@on_sqlite
async def test_a_character_that_no_database_keeps_is_refused(scrapyd: Client) -> None:
    assert await said(scrapyd, "/schedule.json?project=shop&spider=things&jobid=a%00b") == (
        "jobid is invalid: it may not have the character NUL"
    )
    assert "NUL" in await said(scrapyd, "/schedule.json?project=shop&spider=things&country=a%00b")


@on_sqlite
@pytest.mark.parametrize("path", ["/schedule.json", "/cancel.json", "/addversion.json"])
async def test_another_method_than_post_is_named_with_those_that_are(scrapyd: Client, path: str) -> None:
    answer = await scrapyd.get(path)
    assert (answer.status, answer.json["message"]) == (
        200,
        "UnsupportedMethod: Expected one of [b'HEAD', b'OPTIONS', b'POST']",
    )


@on_sqlite
async def test_options_tells_the_methods_and_nothing_else(scrapyd: Client) -> None:
    answer = await scrapyd.call("OPTIONS", "/daemonstatus.json")
    assert (answer.status, answer.data) == (204, b"")
    assert answer.headers["Allow"] == answer.headers["Access-Control-Allow-Methods"] == "OPTIONS, HEAD, GET"


@on_sqlite
async def test_every_answer_may_be_read_by_pages_elsewhere(scrapyd: Client) -> None:
    for answer in (await scrapyd.get("/daemonstatus.json"), await scrapyd.get("/schedule.json")):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Access-Control-Allow-Headers"] == "X-Requested-With"
        assert answer.headers["Content-Type"] == "application/json"


async def test_projects_are_those_with_code(scrapyd: Client) -> None:
    assert (await asked(scrapyd, "/listprojects.json"))["projects"] == ["shop"]


async def test_versions_are_listed_as_scrapyd_spells_them_and_1_10_after_1_9(scrapyd: Client) -> None:
    for number, version in enumerate(("1.10", "1.9")):
        await a_version(scrapyd.app, version=version, digest=f"{number:064x}")
    assert (await asked(scrapyd, "/listversions.json?project=shop"))["versions"] == ["1_0", "1_9", "1_10"]
    assert (await asked(scrapyd, "/listversions.json?project=none"))["versions"] == []


@on_sqlite
async def test_spiders_of_a_version_are_found_in_either_spelling(scrapyd: Client) -> None:
    of_newest = (await asked(scrapyd, "/listspiders.json?project=shop"))["spiders"]
    assert "things" in of_newest
    for spelling in ("1.0", "1_0"):
        found = (await asked(scrapyd, f"/listspiders.json?project=shop&_version={spelling}"))["spiders"]
        assert found == of_newest
    assert (await asked(scrapyd, "/listspiders.json?project=shop&_version=2"))["message"] == "version '2' not found"
    assert (await asked(scrapyd, "/listspiders.json?project=none"))["message"] == "project 'none' not found"


@on_sqlite
async def test_what_is_not_there_is_named_as_scrapyd_does(scrapyd: Client) -> None:
    assert await said(scrapyd, "/schedule.json", {**JOB, "project": "none"}) == "project 'none' not found"
    assert await said(scrapyd, "/schedule.json", {**JOB, "_version": "9"}) == "version '9' not found"
    assert await said(scrapyd, "/schedule.json", {**JOB, "spider": "none"}) == "spider 'none' not found"
    assert await said(scrapyd, "/cancel.json", {"project": "none", "job": "a"}) == "project 'none' not found"
    assert await said(scrapyd, "/delproject.json", {"project": "none"}) == "project 'none' not found"
    assert await said(scrapyd, "/delversion.json", {"project": "none", "version": "7"}) == "version '7' not found"
    assert await said(scrapyd, "/delversion.json", {"project": "shop", "version": "7"}) == "version '7' not found"


@on_sqlite
async def test_a_project_that_leads_out_of_its_folder_is_refused(scrapyd: Client, egg: bytes) -> None:
    refused = "DirectoryTraversalError: ../p"
    assert (await scrapyd.upload(egg, "../p")).json["message"] == refused
    assert await said(scrapyd, "/delversion.json", {"project": "../p", "version": "1"}) == refused
    assert await said(scrapyd, "/delproject.json", {"project": "../p"}) == refused
    assert (await asked(scrapyd, "/listversions.json?project=../p"))["message"] == refused


@on_sqlite
async def test_a_job_without_a_name_gets_one_of_32_hex_digits(scrapyd: Client) -> None:
    assert re.fullmatch("[0-9a-f]{32}", await scheduled(scrapyd))


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", ".hidden", "a\nb", "", "x" * 201])
@on_sqlite
async def test_a_job_that_is_no_plain_name_is_refused_at_once(scrapyd: Client, name: str) -> None:
    assert (await said(scrapyd, "/schedule.json", {**JOB, "jobid": name})).startswith("Invalid: jobid is ")
    assert (await asked(scrapyd, "/daemonstatus.json"))["pending"] == 0


async def test_a_name_that_is_taken_is_answered_with_the_job_that_has_it(scrapyd: Client) -> None:
    assert await scheduled(scrapyd, jobid="mine", count="1") == "mine"
    assert await scheduled(scrapyd, jobid="mine", count="2") == "mine"
    pending = (await asked(scrapyd, "/listjobs.json?project=shop"))["pending"]
    assert [(job["id"], job["args"]) for job in pending] == [("mine", {"count": "1"})]


@on_sqlite
async def test_the_priority_must_be_a_number(scrapyd: Client) -> None:
    message = await said(scrapyd, "/schedule.json", {**JOB, "priority": "high"})
    assert message == "priority is invalid: could not convert string to float: b'high'"
    assert (await said(scrapyd, "/schedule.json", {**JOB, "priority": "nan"})).startswith("priority is invalid: ")


async def test_jobs_wait_project_by_project_and_the_highest_priority_first(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "books", digest="c" * 64)
    await scheduled(scrapyd, jobid="low", priority="-1.5")
    await scheduled(scrapyd, jobid="high", priority="2e9")
    await scheduled(scrapyd, jobid="book", project="books")
    await scheduled(scrapyd, jobid="plain")
    pending = (await asked(scrapyd, "/listjobs.json"))["pending"]
    assert [job["id"] for job in pending] == ["book", "high", "plain", "low"]


@on_sqlite
async def test_a_pending_job_shows_its_version_settings_and_arguments(scrapyd: Client) -> None:
    form = aiohttp.FormData([("project", "shop"), ("spider", "things"), ("jobid", "a"), ("_version", "1_0")])
    for name, value in (("setting", "A=1=2"), ("setting", "B="), ("start-url", "http://x/"), ("count", "3")):
        form.add_field(name, value)
    assert (await scrapyd.send("/schedule.json", form)).json["status"] == "ok"
    assert (await asked(scrapyd, "/listjobs.json"))["pending"] == [
        {
            "id": "a",
            "project": "shop",
            "spider": "things",
            "version": "1_0",
            "settings": {"A": "1=2", "B": ""},
            "args": {"start-url": "http://x/", "count": "3"},
        }
    ]


@on_sqlite
async def test_a_setting_without_a_value_is_refused(scrapyd: Client) -> None:
    assert await said(scrapyd, "/schedule.json", {**JOB, "setting": "A"}) == (
        "ValueError: dictionary update sequence element #0 has length 1; 2 is required"
    )


@on_sqlite
async def test_a_job_says_how_long_it_may_take_to_close(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a", setting="WEFT_GRACE_SECONDS=60")
    (job,) = (await asked(scrapyd, "/listjobs.json"))["pending"]
    assert job["settings"] == {"WEFT_GRACE_SECONDS": "60"}
    refused = await said(scrapyd, "/schedule.json", {**JOB, "setting": "WEFT_GRACE_SECONDS=soon"})
    assert "WEFT_GRACE_SECONDS is 'soon'; it must be a number from 0 to 3600" in refused


@on_sqlite
async def test_no_list_shows_a_secret(scrapyd: Client) -> None:
    await scheduled(scrapyd, password="hunter22", api_key="{{secret:SHOP}}", setting="DB_PASSWORD=hunter22")
    answer = await scrapyd.get("/listjobs.json")
    assert b"hunter22" not in answer.data
    assert answer.json["pending"][0]["args"]["api_key"] == "{{secret:SHOP}}"


@on_sqlite
async def test_the_run_gets_the_name_of_its_job_and_the_version_that_was_asked_for(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a", _version="1_0", count="3")
    [run] = await scrapyd.app.runs.find({})
    assert run.spec.spec["args"] == {"_job": "a", "count": "3", "_version": "1_0"}
    assert run.spec.code is not None
    assert run.spec.code.version == "1.0"


async def test_the_newest_version_by_order_is_executed_whichever_is_current(scrapyd: Client) -> None:
    for number, version in enumerate(("1.10", "1.9")):
        await a_version(scrapyd.app, version=version, digest=f"{number:064x}")
    await scheduled(scrapyd, jobid="a")
    [run] = await scrapyd.app.runs.find({})
    assert run.spec.code is not None
    assert run.spec.code.version == "1.10"
    assert (await asked(scrapyd, "/listjobs.json"))["pending"][0]["version"] is None


async def test_a_job_is_pending_then_running_then_finished(scrapyd: Client, clock: SetClock) -> None:
    await scheduled(scrapyd, jobid="a")
    assert (await asked(scrapyd, "/status.json?job=a&project=shop"))["currstate"] == "pending"
    worker, [lease] = await leased(scrapyd.app)
    assert (await asked(scrapyd, "/status.json?job=a"))["currstate"] == "running"
    [running] = (await asked(scrapyd, "/listjobs.json"))["running"]
    assert (running["id"], running["pid"], running["log_url"]) == ("a", 4711, "/logs/shop/things/a.log")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", running["start_time"])
    clock.forward(90)
    await scrapyd.app.protocol.finish(worker, [Ending(lease.run_id, lease.attempt, "failed", "it was tired")])
    found = await asked(scrapyd, "/listjobs.json?project=shop")
    assert (found["pending"], found["running"]) == ([], [])
    [finished] = found["finished"]
    assert set(finished) == {"id", "project", "spider", "start_time", "end_time", "log_url", "items_url"}
    assert finished["items_url"] is None
    assert finished["start_time"] < finished["end_time"]
    assert (await asked(scrapyd, "/status.json?job=a"))["currstate"] == "finished"
    assert (await asked(scrapyd, "/daemonstatus.json"))["finished"] == 1


async def test_a_waiting_job_that_is_cancelled_is_in_no_list(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    answer = await scrapyd.send("/cancel.json", {"project": "shop", "job": "a"})
    assert answer.json["prevstate"] == "pending"
    assert (await asked(scrapyd, "/status.json?job=a"))["currstate"] is None
    found = await asked(scrapyd, "/listjobs.json")
    assert found["pending"] == found["running"] == found["finished"] == []
    assert (await scrapyd.send("/cancel.json", {"project": "shop", "job": "a"})).json["prevstate"] is None


async def test_a_running_job_is_asked_to_stop_by_any_signal(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    _, [lease] = await leased(scrapyd.app)
    for signal in ("INT", "KILL", "9"):
        answer = await scrapyd.send("/cancel.json", {"project": "shop", "job": "a", "signal": signal})
        assert answer.json["prevstate"] == "running"
    run = await scrapyd.app.runs.get(lease.run_id)
    assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)
    assert (await said(scrapyd, "/cancel.json", {"project": "shop", "job": "a", "signal": "FOO"})).startswith("Invalid")


@on_sqlite
async def test_a_job_that_nobody_knows_is_cancelled_without_an_error(scrapyd: Client) -> None:
    assert (await scrapyd.send("/cancel.json", {"project": "shop", "job": "none"})).json["prevstate"] is None


async def test_deleting_the_newest_version_leaves_the_next_as_the_current_one(scrapyd: Client) -> None:
    await a_version(scrapyd.app, version="2.0", digest="c" * 64)
    assert (await scrapyd.send("/delversion.json", {"project": "shop", "version": "2_0"})).json["status"] == "ok"
    assert (await scrapyd.app.projects.get("shop")).version == "1.0"
    assert (await scrapyd.send("/delversion.json", {"project": "shop", "version": "1.0"})).json["status"] == "ok"
    assert (await asked(scrapyd, "/listprojects.json"))["projects"] == []


async def test_deleting_a_project_takes_back_what_waits(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    assert (await scrapyd.send("/delproject.json", {"project": "shop"})).json["status"] == "ok"
    assert (await asked(scrapyd, "/listjobs.json"))["pending"] == []
    assert (await asked(scrapyd, "/listjobs.json?project=shop"))["message"] == "project 'shop' not found"


async def test_a_job_with_items_names_their_file_and_one_without_names_none(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="some")
    await scheduled(scrapyd, jobid="none")
    worker, leases = await leased(scrapyd.app)
    first = leases[0]
    await scrapyd.app.protocol.collect(worker, [ItemBatch(first.run_id, first.attempt, 1, b'{"item":{"price":1}}\n')])
    urls = {"some": "/items/shop/things/some.jl", "none": None}
    running = (await asked(scrapyd, "/listjobs.json"))["running"]
    assert {each["id"]: each["items_url"] for each in running} == urls
    endings = [Ending(each.run_id, each.attempt, "succeeded", "") for each in leases]
    await scrapyd.app.protocol.finish(worker, endings)
    finished = (await asked(scrapyd, "/listjobs.json"))["finished"]
    assert {each["id"]: each["items_url"] for each in finished} == urls
