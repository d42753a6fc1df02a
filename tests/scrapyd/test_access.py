"""Who may do what through Scrapyd's API."""

from __future__ import annotations

from tests.conftest import on_sqlite
from tests.scrapyd.calling import JOB, Client, asked, said, scheduled
from weft.access.model import EVERYWHERE, Role


async def test_a_viewer_reads_and_changes_nothing(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    viewer = await scrapyd.granted({"shop": Role.VIEWER})
    assert (await asked(viewer, "/status.json?job=a"))["currstate"] == "pending"
    refused = "NotAllowed: test may not do this: it needs the role"
    assert (await said(viewer, "/schedule.json", JOB)).startswith(f"{refused} operator")
    assert (await said(viewer, "/cancel.json", {"project": "shop", "job": "a"})).startswith(f"{refused} operator")
    for path in ("/delproject.json", "/delversion.json", "/addversion.json"):
        message = await said(viewer, path, {"project": "shop", "version": "1.0", "egg": "x"})
        assert message.startswith(f"{refused} developer")
    assert (await asked(viewer, "/daemonstatus.json"))["pending"] == 1


async def test_an_operator_schedules_and_cancels_but_names_no_secrets(scrapyd: Client) -> None:
    operator = await scrapyd.granted({"shop": Role.OPERATOR})
    await scheduled(operator, jobid="a")
    assert (await operator.send("/cancel.json", {"project": "shop", "job": "a"})).json["prevstate"] == "pending"
    message = await said(operator, "/schedule.json", {**JOB, "url": "http://elsewhere/{{secret:SHOP}}"})
    assert "developer" in message


async def test_a_project_that_one_may_not_see_does_not_exist(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    stranger = await scrapyd.granted({"other": Role.ADMIN})
    assert (await asked(stranger, "/listprojects.json"))["projects"] == []
    assert (await asked(stranger, "/listversions.json?project=shop"))["versions"] == []
    assert (await asked(stranger, "/listspiders.json?project=shop"))["message"] == "project 'shop' not found"
    assert (await asked(stranger, "/listjobs.json?project=shop"))["message"] == "project 'shop' not found"
    assert (await asked(stranger, "/listjobs.json"))["pending"] == []
    assert (await asked(stranger, "/status.json?job=a"))["currstate"] is None
    assert (await asked(stranger, "/daemonstatus.json"))["pending"] == 0
    assert await said(stranger, "/schedule.json", JOB) == "project 'shop' not found"
    assert await said(stranger, "/cancel.json", {"project": "shop", "job": "a"}) == "project 'shop' not found"
    assert await said(stranger, "/delproject.json", {"project": "shop"}) == "project 'shop' not found"
    assert await said(stranger, "/delversion.json", {"project": "shop", "version": "1.0"}) == "version '1.0' not found"


@on_sqlite
async def test_changes_and_refusals_are_in_the_audit_log(scrapyd: Client) -> None:
    await scheduled(scrapyd, jobid="a")
    viewer = await scrapyd.granted({EVERYWHERE: Role.VIEWER})
    await said(viewer, "/schedule.json", JOB)
    await scrapyd.send("/cancel.json", {"project": "shop", "job": "a"})
    await scrapyd.send("/delversion.json", {"project": "shop", "version": "1.0"})
    told = {(each.action, each.target) async for each in scrapyd.app.audit.every()}
    assert {("scrapyd.cancel", "job a"), ("scrapyd.delversion", "version 1.0"), ("scrapyd.schedule", "")} <= told
