"""/ and /jobs, as people see them and ScrapydWeb reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.scrapyd.calling import Client
from tests.scrapyd.conftest import a_version
from tests.scrapyd.performing import begin, perform, wait
from weft.access.model import Role

CELLS = ("Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log", "Items")
SCRAPYDWEB_JOB = re.compile(
    r"<tr>\s*"
    + "".join(rf"<td>(?P<{name}>.*?)</td>\s*" for name in CELLS[:3])
    + "".join(rf"(?:<td>(?P<{name}>.*?)</td>\s*)?" for name in CELLS[3:])
    + r"[\w\W]*?</tr>"
)
"""As ScrapydWeb 1.6.0 reads a job."""
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


async def jobs_on(client: Visitor, **options: Any) -> list[dict[str, str]]:
    text = (await client.get("/jobs", **options)).data.decode()
    assert "<h1>Jobs</h1>" in text
    text = re.sub(r"<thead>.*?</thead>", "", text, flags=re.DOTALL)
    return [found.groupdict() for found in SCRAPYDWEB_JOB.finditer(text)]


async def test_jobs_are_read_as_scrapydweb_reads_them(scrapyd: Client) -> None:
    await perform(scrapyd.app, "done", b"", {"price": 1})
    await begin(scrapyd.app, "running")
    await wait(scrapyd.app, "waiting")
    waiting, running, done = await jobs_on(scrapyd)
    assert [each["Job"] for each in (waiting, running, done)] == ["waiting", "running", "done"]
    assert {(each["Project"], each["Spider"]) for each in (waiting, running, done)} == {("shop", "things")}
    assert [waiting[name] for name in CELLS[3:]] == [""] * 6
    assert int(running["PID"]) >= 0
    assert re.fullmatch(TIME, running["Start"])
    assert (running["Finish"], running["Items"]) == ("", "")
    assert (done["PID"], done["Runtime"], done["Finish"]) == ("", "0:00:00", done["Start"])
    assert done["Log"] == '<a href="/logs/shop/things/done.log">Log</a>'
    assert done["Items"] == '<a href="/items/shop/things/done.jl">Items</a>'


@on_sqlite
async def test_only_what_has_not_ended_can_be_cancelled(scrapyd: Client) -> None:
    await perform(scrapyd.app, "done")
    await begin(scrapyd.app, "running")
    await wait(scrapyd.app, "waiting")
    text = (await scrapyd.get("/jobs")).data.decode()
    forms = re.findall(r'<form method="post" action="/cancel.json">(.*?)</form>', text, re.DOTALL)
    assert [re.findall(r'name="job" value="(.*?)"', form) for form in forms] == [["waiting"], ["running"]]
    assert text.count("<tbody>") == 3


@on_sqlite
async def test_the_newest_of_those_that_have_ended_come_first_and_not_all(scrapyd: Client) -> None:
    kept = scrapyd.app.jobs.finished_to_keep = 3
    for number in range(5):
        await perform(scrapyd.app, f"job-{number}")
    assert [each["Job"] for each in await jobs_on(scrapyd)] == ["job-4", "job-3", "job-2"][:kept]


async def test_jobs_of_other_projects_are_not_shown(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "other")
    await perform(scrapyd.app, "mine", project="other")
    await perform(scrapyd.app, "theirs")
    guest = await scrapyd.with_role(Role.VIEWER, "other")
    assert [each["Job"] for each in await jobs_on(guest)] == ["mine"]
    home = (await guest.get("/")).data.decode()
    assert "<li>other</li>" in home
    assert "<li>shop</li>" not in home


@on_sqlite
async def test_names_cannot_become_markup(scrapyd: Client) -> None:
    await perform(scrapyd.app, "<i>'\"&")
    await wait(scrapyd.app, "<script>'\"&")
    text = (await scrapyd.get("/jobs")).data.decode()
    assert "<script>" not in text
    assert "<i>" not in text
    assert 'value="&lt;script&gt;&#x27;&quot;&amp;"' in text


@on_sqlite
async def test_pages_run_no_script(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one")
    for path in ("/", "/jobs", "/logs/", "/logs/shop/things/"):
        answer = await scrapyd.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert " on" not in re.sub(r">[^<]*<", "><", answer.data.decode().partition("<body>")[2])


@on_sqlite
@pytest.mark.parametrize(
    ("told", "prefix"),
    [
        ("/behind", "/behind"),
        ("/behind/it/", "/behind/it"),
        ("relative", "relative"),
        ("/", ""),
        ("//evil.example", ""),
        ("https://evil.example", ""),
        ("javascript:alert(1)//", ""),
        ('/"><script>', ""),
        ("/a'b", ""),
        ("/a b", ""),
        ("/" + "a" * 300, ""),
    ],
)
async def test_links_begin_with_the_prefix_of_a_proxy(scrapyd: Client, told: str, prefix: str) -> None:
    await perform(scrapyd.app, "done")
    await wait(scrapyd.app, "waiting")
    headers = {"X-Forwarded-Prefix": told}
    home = (await scrapyd.get("/", headers=headers)).data.decode()
    assert f'<a href="{prefix}/jobs">' in home
    assert f'<a href="{prefix}/logs/">' in home
    jobs = (await scrapyd.get("/jobs", headers=headers)).data.decode()
    assert f'<a href="{prefix}/logs/shop/things/done.log">' in jobs
    assert f'action="{prefix}/cancel.json"' in jobs
    assert "evil" not in home + jobs
    assert "<script" not in home + jobs


@on_sqlite
async def test_the_front_page_names_projects(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "attic")
    text = (await scrapyd.get("/")).data.decode()
    assert "<h1>Scrapyd</h1>" in text
    assert re.findall(r"<li>(\w+)</li>", text) == ["attic", "shop"]


@on_sqlite
@pytest.mark.parametrize("path", ["/jobs/", "/jobs/x", "/nope"])
async def test_nothing_is_below_a_page(scrapyd: Client, path: str) -> None:
    assert (await scrapyd.get(path)).status == 404
