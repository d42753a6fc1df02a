"""Scrapyd's door: who may pass, what is its own, and what is told to those who may not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import visiting
from tests.api.people import Person, basic
from tests.conftest import OpenApp, on_sqlite
from tests.scrapyd.calling import JOB, Client, asked, calling, said
from weft.access.model import EVERYWHERE, Role
from weft.http.limits import BURST_SECONDS

pytestmark = on_sqlite
ELSEWHERE = {"Origin": "https://evil.example"}


def nobody(client: Client) -> Client:
    return Client(client._session, client.app, client.address)


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/daemonstatus.json", "/", "/nothing", "/logs/"])
async def test_whoever_says_nothing_is_told_to_say_a_name_and_a_password(
    scrapyd: Client, method: str, path: str
) -> None:
    answer = await nobody(scrapyd).call(method, path)
    assert (answer.status, answer.data) == (401, b"Unauthorized")
    assert answer.headers["WWW-Authenticate"] == 'basic realm="Scrapyd"'
    assert answer.headers["Content-Type"].startswith("text/html")


async def test_a_user_passes_with_a_password(scrapyd: Client) -> None:
    await scrapyd.app.users.create("ada", PASSWORD, {"shop": Role.VIEWER})
    answer = await nobody(scrapyd).get("/listprojects.json", headers=basic("ada", PASSWORD))
    assert answer.json["projects"] == ["shop"]


async def test_a_key_may_stand_in_the_place_of_the_password(scrapyd: Client) -> None:
    answer = await nobody(scrapyd).get("/listprojects.json", headers=basic("anything", scrapyd.token))
    assert answer.json["projects"] == ["shop"]


async def test_wrong_passwords_are_told_in_the_audit_log_and_slowed_down(scrapyd: Client) -> None:
    await scrapyd.app.users.create("ada", PASSWORD, {})
    wrong = basic("ada", "not the password")
    answers = [await nobody(scrapyd).get("/daemonstatus.json", headers=wrong) for _ in range(12)]
    assert (answers[0].status, answers[0].data) == (401, b"Unauthorized")
    assert answers[-1].status == 429
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert "session.start" in [each.action async for each in scrapyd.app.audit.every()]


async def test_a_session_of_a_browser_does_not_count(scrapyd: Client) -> None:
    async with visiting(scrapyd.app) as door:
        person = await Person.new(door, grants={EVERYWHERE: Role.ADMIN})
        assert (await person.get("/v1/session")).status == 200
        assert (await person.get("/daemonstatus.json")).status == 401


async def test_a_worker_may_not_call(scrapyd: Client) -> None:
    _, token = await scrapyd.app.keys.create("w1", {}, by="test", kind="worker")
    worker = Client(scrapyd._session, scrapyd.app, scrapyd.address, token)
    assert (await asked(worker, "/daemonstatus.json"))["message"].startswith("NotAllowed: ")


async def test_a_page_of_another_site_changes_nothing_with_a_password_that_a_browser_remembers(
    scrapyd: Client,
) -> None:
    for headers in (ELSEWHERE, {"Sec-Fetch-Site": "cross-site"}):
        answer = await scrapyd.send("/schedule.json", JOB, headers=headers)
        assert answer.json["message"].startswith("NotAllowed: ")
    assert (await asked(scrapyd, "/daemonstatus.json"))["pending"] == 0
    ours = {"Origin": scrapyd.address}
    assert (await scrapyd.send("/schedule.json", JOB, headers=ours)).json["status"] == "ok"


@pytest.fixture
def open_settings() -> dict[str, Any]:
    return {"scrapyd_open": True, "scrapyd_node_name": "gateway-7"}


async def test_an_open_door_needs_no_password_on_this_machine(
    another_app: OpenApp, open_settings: dict[str, Any]
) -> None:
    async with calling(await another_app(**open_settings)) as client:
        assert await asked(client, "/listprojects.json") == {
            "projects": [],
            "status": "ok",
            "node_name": "gateway-7",
        }
        assert await said(client, "/schedule.json", JOB) == "project 'shop' not found"


@pytest.mark.parametrize("headers", [ELSEWHERE, {"X-Forwarded-For": "127.0.0.1"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_an_open_door_is_shut_for_pages_and_for_who_comes_through_a_proxy(
    another_app: OpenApp, open_settings: dict[str, Any], headers: dict[str, str]
) -> None:
    async with calling(await another_app(**open_settings)) as client:
        assert (await client.get("/listprojects.json", headers=headers)).status == 401
        assert (await client.send("/delproject.json", {"project": "shop"}, headers=headers)).status == 401


async def test_a_password_counts_at_an_open_door_as_well(another_app: OpenApp, open_settings: dict[str, Any]) -> None:
    async with calling(await another_app(**open_settings)) as client:
        assert (await client.get("/listprojects.json", headers=basic("ada", "wrong password"))).status == 401


async def test_a_host_that_is_not_served_is_refused(scrapyd: Client) -> None:
    answer = await scrapyd.get("/daemonstatus.json", headers={"Host": "scrapyd1:6800"})
    assert (answer.status, answer.json["status"]) == (421, "error")
    assert "WEFT_ALLOWED_HOSTS=scrapyd1 in the environment" in answer.json["message"]


async def test_whoever_asks_too_often_is_told_when_to_come_back(another_app: OpenApp) -> None:
    async with calling(await another_app(requests_per_second=0.5)) as door:
        client = await door.granted({EVERYWHERE: Role.VIEWER})
        answers = [await client.get("/daemonstatus.json") for _ in range(round(0.5 * BURST_SECONDS) + 1)]
        assert (answers[0].status, answers[-1].status) == (200, 429)
        assert answers[-1].json["status"] == "error"
        assert int(answers[-1].headers["Retry-After"]) > 0


async def test_what_is_not_there_is_a_page_that_says_so(scrapyd: Client) -> None:
    answer = await scrapyd.get("/nothing.json")
    assert answer.status == 404
    assert b"404 - No Such Resource" in answer.data
    assert (await scrapyd.get("/v1/runs")).status == 404


async def test_slashes_too_many_do_no_harm(scrapyd: Client) -> None:
    assert (await asked(scrapyd, "//listprojects.json"))["projects"] == ["shop"]


async def test_the_head_of_an_answer_has_no_body(scrapyd: Client) -> None:
    for path in ("/daemonstatus.json", "/schedule.json"):
        answer = await scrapyd.call("HEAD", path)
        assert (answer.status, answer.data) == (200, b"")


async def test_weft_s_own_port_has_scrapyd_s_api_beside_its_own(scrapyd: Client) -> None:
    async with visiting(scrapyd.app) as door:
        admin = await door.with_role(Role.ADMIN)
        assert (await admin.get("/daemonstatus.json")).json["status"] == "ok"
        assert (await admin.get("/v1/runs")).json["items"] == []
        assert (await admin.get("/nothing.json")).headers["Content-Type"] == "application/problem+json"


async def test_a_form_that_cannot_be_understood_is_refused(scrapyd: Client) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert (await scrapyd.send("/schedule.json", b"no boundary at all", headers=headers)).status == 400
    headers = {"Content-Type": "multipart/form-data"}
    assert (await scrapyd.send("/schedule.json", b"", headers=headers)).status == 400
