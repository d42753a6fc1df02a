"""Scrapyd's own clients, unmodified, at work on a real weft: scrapyd-deploy, scrapyd-client and python-scrapyd-api."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commanding import environment
from tests.scrapyd.environments import SCRAPYD
from tests.scrapyd.weft_up import PASSWORD, SLOTS, USER, Weft, wait_for, weft_up
from tests.scrapyd.workplace import NAMES, Workplace, blocks, workplace

BRIDGE = """
import json, sys

for line in sys.stdin:
    method, arguments, options = json.loads(line)
    if "egg" in options:
        options["egg"] = open(options["egg"], "rb")
    try:
        said = {"answer": getattr(scrapyd, method)(*arguments, **options)}
    except Exception as problem:
        said = {"problem": type(problem).__name__ + ": " + str(problem)}
    print(json.dumps(said), flush=True)
"""
"""Calls what it is told to of ``scrapyd``, which is made by the lines that our page tells."""


@pytest.fixture(scope="module")
def weft() -> Iterator[Weft]:
    with weft_up() as running:
        yield running


@pytest.fixture(scope="module")
def deployed(weft: Weft, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A project that was deployed, for tests that only use it."""
    place = workplace(tmp_path_factory.mktemp("places") / "deployed", weft.url)
    place.lines("scrapyd-deploy", "--version", "r1")
    return place


@pytest.fixture(scope="module")
def egg(deployed: Workplace, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An egg as scrapyd-deploy builds it."""
    return str(deployed.egg(tmp_path_factory.mktemp("eggs") / "shop.egg"))


def test_a_deploy_without_a_version_is_named_by_the_time(weft: Weft, tmp_path: Path) -> None:
    before = int(time.time())
    answer = workplace(tmp_path / "by_time", weft.url).run("scrapyd-deploy")
    assert answer.code == 0, answer
    assert (answer.document["status"], answer.document["spiders"]) == ("ok", len(NAMES))
    assert "Server response (200)" in answer.err
    (version,) = weft.get("listversions", project="by_time")["versions"]
    assert before <= int(version) <= time.time()


def test_versions_are_listed_from_the_oldest_to_the_newest(weft: Weft, egg: str, tmp_path: Path) -> None:
    place = workplace(tmp_path / "by_name", weft.url)
    for version in ("1.9", "1.10"):
        assert place.run("scrapyd-deploy", "--egg", egg, "--version", version).document["version"] == version
    assert weft.get("listversions", project="by_name")["versions"] == ["1_9", "1_10"]


def test_a_broken_project_is_refused_and_the_output_tells_why(weft: Weft, tmp_path: Path) -> None:
    place = workplace(tmp_path / "broken", weft.url, settings="import a_module_that_nobody_has\n")
    answer = place.run("scrapyd-deploy")
    assert answer.document["status"] == "error"
    assert "No module named 'a_module_that_nobody_has'" in answer.document["message"]
    assert weft.get("listprojects")["projects"].count("broken") == 0


@pytest.mark.parametrize("slash", ["", "/"], ids=["without a slash", "with a slash"])
def test_targets_and_projects_are_listed_whether_or_not_the_address_ends_with_a_slash(
    weft: Weft, deployed: Workplace, tmp_path: Path, slash: str
) -> None:
    url = weft.url.rstrip("/") + slash
    place = workplace(tmp_path / "lists", url)
    assert [line.split() for line in place.lines("scrapyd-client", "targets")] == [["default", url]]
    assert "deployed" in place.lines("scrapyd-client", "projects")


def test_the_client_works_on_the_port_of_weft_itself(weft: Weft, deployed: Workplace, tmp_path: Path) -> None:
    place = workplace(tmp_path / "own_port", weft.own_url)
    assert place.lines("scrapyd-client", "spiders", "-p", "deployed")[1:] == [f"  {spider}" for spider in NAMES]
    assert place.run("scrapyd-client", "deploy", "--version", "r1").document["spiders"] == len(NAMES)
    assert weft.get("listversions", project="own_port")["versions"] == ["r1"]


def test_somebody_with_a_wrong_password_is_told_so(weft: Weft, egg: str, tmp_path: Path) -> None:
    place = workplace(tmp_path / "stranger", weft.url)
    place.configure(weft.url, password="guessed")
    answer = place.run("scrapyd-deploy", "--egg", egg, "--version", "1")
    assert answer.code == 1
    assert "Deploy failed (401)" in answer.err
    assert "stranger" not in weft.get("listprojects")["projects"]


def test_a_key_of_one_project_lists_that_one_and_deploys_no_other(
    weft: Weft, deployed: Workplace, egg: str, tmp_path: Path
) -> None:
    place = workplace(tmp_path / "another", weft.url)
    place.configure(weft.url, username="key", password=weft.key("deployed", "developer"))
    assert place.lines("scrapyd-client", "projects") == ["deployed"]
    assert place.run("scrapyd-deploy", "--egg", egg, "--version", "1").document["status"] == "error"
    assert "another" not in weft.get("listprojects")["projects"]


def test_spiders_that_match_a_pattern_are_scheduled_with_arguments(weft: Weft, deployed: Workplace) -> None:
    (line,) = deployed.lines(
        "scrapyd-client", "schedule", "-p", "deploy*", "tel*", "--arg", "colour=red", "--arg", "setting=USER_AGENT=a=b"
    )
    match = re.fullmatch(r"deployed / tells => ([0-9a-f]{32})", line)
    assert match, line
    wait_for(lambda: weft.state("deployed", match[1]) == "finished")
    assert told(weft, match[1]) == {"arguments": {"_job": match[1], "colour": "red"}, "user_agent": "a=b"}


def told(weft: Weft, job: str) -> Any:
    """The one item of a run of the spider ``tells``, as Scrapyd gives it out."""
    return json.loads(weft.text(f"items/deployed/tells/{job}.jl"))


class Library:
    """A client that is a library, in an interpreter of its own, told what to call."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        said = self.say(method, *arguments, **options)
        assert "problem" not in said, said
        return said["answer"]

    def say(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([method, arguments, options]) + "\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


@contextmanager
def library(lines: str) -> Iterator[Library]:
    """What ``lines`` call ``scrapyd``."""
    command, variables = [SCRAPYD.program("python"), "-c", lines + BRIDGE], environment(CRAWL_PASSWORD=PASSWORD)
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Library(process)


@pytest.fixture(scope="module")
def api(weft: Weft) -> Iterator[Library]:
    """python-scrapyd-api, by the lines of our page."""
    told = blocks("python")[0].replace("http://127.0.0.1:6800", weft.url).replace("ada", USER)
    with library(told) as opened:
        yield opened


def test_the_library_of_scrapyd_client_does_all_that_it_can(
    weft: Weft, deployed: Workplace, api: Library, egg: str
) -> None:
    made = f"from scrapyd_client import ScrapydClient\nscrapyd = ScrapydClient({weft.url!r}, {USER!r}, {PASSWORD!r})\n"
    for version in ("1", "2"):
        api("add_version", "whole", version, egg=egg)
    with library(made) as client:
        assert client("spiders", "whole", "*e*") == ["endless", "pages", "tells"]
        assert client("versions", "whole") == ["1", "2"]
        job = client("schedule", "whole", "endless", [["colour", "red"]])
        wait_for(lambda: client("status", job)["currstate"] == "running")
        assert client("daemonstatus")["running"] >= 1
        assert [each["id"] for each in client("jobs", "whole")["running"]] == [job]
        assert client("cancel", "whole", job)["prevstate"] == "running"
        wait_for(lambda: client("status", job, "whole")["currstate"] == "finished")
        assert client("delversion", "whole", "2")["status"] == "ok"
        assert client("delproject", "whole")["status"] == "ok"
        assert "whole" not in client("projects")
        assert client.say("spiders", "whole") == {"problem": "ErrorResponse: project 'whole' not found"}


def test_versions_added_by_the_library_are_listed_and_deleted_one_by_one(api: Library, egg: str) -> None:
    for version in ("1", "2"):
        assert api("add_version", "versions", version, egg=egg) == len(NAMES)
    assert "versions" in api("list_projects")
    assert api("list_versions", "versions") == ["1", "2"]
    assert api("list_spiders", "versions") == NAMES
    assert api("delete_version", "versions", "2") is True
    assert api("list_versions", "versions") == ["1"]
    assert api("delete_project", "versions") is True
    assert "versions" not in api("list_projects")
    assert api.say("list_spiders", "versions") == {"problem": "ScrapydResponseError: project 'versions' not found"}


def test_the_library_schedules_with_settings_and_arguments_and_a_name(
    weft: Weft, api: Library, deployed: Workplace
) -> None:
    given = {"settings": {"USER_AGENT": "ours"}, "jobid": "named", "colour": "blue"}
    assert api("schedule", "deployed", "tells", **given) == "named"
    wait_for(lambda: api("job_status", "deployed", "named") == "finished")
    (done,) = [each for each in api("list_jobs", "deployed")["finished"] if each["id"] == "named"]
    assert (done["spider"], done["log_url"]) == ("tells", "/logs/deployed/tells/named.log")
    assert done["start_time"] <= done["end_time"]
    assert told(weft, "named") == {"arguments": {"_job": "named", "colour": "blue"}, "user_agent": "ours"}


def test_a_running_job_is_cancelled_by_the_library(api: Library, deployed: Workplace) -> None:
    job = api("schedule", "deployed", "endless")
    wait_for(lambda: api("job_status", "deployed", job) == "running")
    (running,) = [each for each in api("list_jobs", "deployed")["running"] if each["id"] == job]
    assert running["pid"] > 0
    assert api("cancel", "deployed", job) == "running"
    wait_for(lambda: api("job_status", "deployed", job) == "finished")
    assert api("cancel", "deployed", job) is None


@pytest.fixture
def taken(api: Library, deployed: Workplace) -> Iterator[list[str]]:
    """Jobs that hold every slot until they are cancelled, at the latest when the test has ended."""
    jobs = [api("schedule", "deployed", "endless") for _ in range(SLOTS)]
    wait_for(lambda: all(api("job_status", "deployed", job) == "running" for job in jobs))
    yield jobs
    for job in jobs:
        api("cancel", "deployed", job)


def test_a_job_waits_as_pending_while_every_slot_is_taken(api: Library, taken: list[str]) -> None:
    waiting, never = api("schedule", "deployed", "pages", count="1"), api("schedule", "deployed", "pages")
    assert api("job_status", "deployed", waiting) == "pending"
    (pending,) = [each for each in api("list_jobs", "deployed")["pending"] if each["id"] == waiting]
    assert (pending["spider"], pending["args"]["count"]) == ("pages", "1")
    assert api("cancel", "deployed", never) == "pending"
    assert api("job_status", "deployed", never) == ""
    assert api("cancel", "deployed", taken[0]) == "running"
    wait_for(lambda: api("job_status", "deployed", waiting) == "finished")


def test_what_the_server_refuses_reaches_the_caller_of_the_library(api: Library, deployed: Workplace) -> None:
    refused = "ScrapydResponseError: spider 'nobody' not found"
    assert api.say("schedule", "deployed", "nobody") == {"problem": refused}
