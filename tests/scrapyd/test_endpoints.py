"""Scrapyd's endpoints, in its own words."""

from __future__ import annotations

from tests.scrapyd.calling import Client


async def test_the_status_counts_what_waits(scrapyd: Client) -> None:
    assert (await scrapyd.send("/schedule.json", {"project": "shop", "spider": "things"})).json["status"] == "ok"
    answer = await scrapyd.get("/daemonstatus.json")
    found = answer.json
    assert (found["pending"], found["running"], found["finished"], found["status"]) == (1, 0, 0, "ok")
    assert answer.data.endswith(b"}\n")
    assert not answer.data.endswith(b"\n\n")


async def test_projects_are_those_with_code(scrapyd: Client) -> None:
    assert (await scrapyd.get("/listprojects.json")).json["projects"] == ["shop"]


async def test_a_job_without_a_name_gets_one_of_32_hex_digits(scrapyd: Client) -> None:
    answer = await scrapyd.send("/schedule.json", {"project": "shop", "spider": "things"})
    assert len(bytes.fromhex(answer.json["jobid"])) == 16
