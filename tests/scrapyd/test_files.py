"""/logs/ and /items/: folders, files and byte ranges."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from yarl import URL

from tests.api.acting import Answer, Visitor
from tests.conftest import on_sqlite
from tests.scrapyd.calling import Client
from tests.scrapyd.conftest import a_version
from tests.scrapyd.performing import AT, begin, perform, said, wait
from weft.access.model import Role

LOG, ITEMS = "/logs/shop/things/one.log", "/items/shop/things/one.jl"
SECOND = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(AT // 1_000_000))

SCRAPYDWEB_ROW = re.compile(
    r'<tr\sclass="(odd|even)">\n\s+<td>(.*?)</td>\n\s+<td>(.*?)</td>\n(?:\s+<td>(.*?)</td>\n)?'
    r"\s+<td>(.*?)</td>\n\s+<td>(.*?)</td>\n</tr>"
)
"""As ScrapydWeb 1.6.0 reads a folder."""
HREF_NAME = re.compile(r'href="(.+?)">(.+?)<')


async def listed(client: Visitor, path: str) -> list[tuple[str, str]]:
    """Link and size of each entry."""
    answer = await client.get(path)
    assert answer.status == 200, answer.data
    text = answer.data.decode()
    assert f"<title>Directory listing for {path}</title>" in text
    found = [HREF_NAME.search(row[1]) for row in SCRAPYDWEB_ROW.findall(text)]
    sizes = [row[2] for row in SCRAPYDWEB_ROW.findall(text)]
    return [(met[1], size) for met, size in zip(found, sizes, strict=True) if met]


async def exactly(client: Client, path: str) -> Answer:
    """What is at an address that is sent as it is spelled here."""
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client._session.get(URL(client.address + path, encoded=True), headers=headers) as answer:
        return Answer(answer, await answer.read())


async def test_folders_are_projects_then_spiders_then_jobs(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "other")
    await perform(scrapyd.app, "one", said("hello"), {"n": 1})
    await perform(scrapyd.app, "two", said("hello"))
    await perform(scrapyd.app, "three", said("hello"), spider="endless")
    await perform(scrapyd.app, "four", said("hello"), project="other")
    await wait(scrapyd.app, "later", spider="huge")
    assert [name for name, _ in await listed(scrapyd, "/logs/")] == ["other/", "shop/"]
    assert [name for name, _ in await listed(scrapyd, "/logs/shop/")] == ["endless/", "things/"]
    size = f"{len(f'{SECOND} [shop] INFO: hello') + 1}B"
    assert await listed(scrapyd, "/logs/shop/things/") == [("one.log", size), ("two.log", size)]
    assert await listed(scrapyd, "/items/shop/things/") == [("one.jl", "9B"), ("two.jl", "0B")]


@on_sqlite
async def test_a_folder_without_its_slash_is_elsewhere(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one")
    for path in ("/logs", "/logs/shop", "/items/shop/things"):
        answer = await scrapyd.get(path, allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (302, f"{path}/")
        assert (await scrapyd.get(path)).status == 200
    behind = {"X-Forwarded-Prefix": "/behind"}
    answer = await scrapyd.get("/logs/shop", headers=behind, allow_redirects=False)
    assert answer.headers["Location"] == "/behind/logs/shop/"


@on_sqlite
async def test_a_log_reads_as_scrapy_writes_it(scrapyd: Client) -> None:
    failed = said("failed", level="ERROR", logger="scrapy.core.scraper", exception="Traceback:\nKeyError: 'a'")
    log = said("Scraped from <200 http://a/>\n{'n': 1}") + b"printed \xff raw\n" + b"half" + failed + b"no end"
    await perform(scrapyd.app, "one", log)
    answer = await scrapyd.get(LOG)
    assert answer.data == (
        f"{SECOND} [shop] INFO: Scraped from <200 http://a/>\n{{'n': 1}}\n".encode()
        + b"printed \xff raw\nhalf\n"
        + f"{SECOND} [scrapy.core.scraper] ERROR: failed\nTraceback:\nKeyError: 'a'\nno end".encode()
    )
    assert answer.headers["Content-Type"] == "text/plain"
    assert answer.headers["Content-Length"] == str(len(answer.data))
    assert answer.headers["Accept-Ranges"] == "bytes"


async def test_items_are_lines_in_the_order_in_which_they_were_yielded(scrapyd: Client) -> None:
    items: list[dict[str, Any]] = [{"n": n, "name": f"ä{n % 3}"} for n in (5, 1, 4, 1)]
    await perform(scrapyd.app, "one", b"", *items)
    answer = await scrapyd.get(ITEMS)
    assert answer.data.decode() == "".join(f"{json.dumps(item)}\n" for item in items)
    assert answer.headers["Content-Type"] == "text/plain"


@on_sqlite
@pytest.mark.parametrize(
    ("asked", "status", "first", "end"),
    [
        ("bytes=0-4", 206, 0, 5),
        ("bytes=6-6", 206, 6, 7),
        ("bytes=30-", 206, 30, None),
        ("bytes=-7", 206, -7, None),
        ("bytes=-7000", 206, 0, None),
        ("bytes=30-7000", 206, 30, None),
        ("bytes=5-2", 200, 0, None),
        ("bytes=0-1,3-4", 200, 0, None),
        ("bytes=-", 200, 0, None),
        ("lines=1-2", 200, 0, None),
        ("bytes=x-2", 200, 0, None),
    ],
)
async def test_a_range_is_those_bytes(scrapyd: Client, asked: str, status: int, first: int, end: int | None) -> None:
    await perform(scrapyd.app, "one", said("hello") + said("again"))
    whole = (await scrapyd.get(LOG)).data
    answer = await scrapyd.get(LOG, headers={"Range": asked})
    assert (answer.status, answer.data) == (status, whole[first:end])
    assert answer.headers["Content-Length"] == str(len(answer.data))
    if status == 206:
        begin = len(whole) + first if first < 0 else first
        assert answer.headers["Content-Range"] == f"bytes {begin}-{begin + len(answer.data) - 1}/{len(whole)}"


@on_sqlite
@pytest.mark.parametrize("asked", ["bytes=1000-", "bytes=-0"])
async def test_a_range_behind_the_end_cannot_be_had(scrapyd: Client, asked: str) -> None:
    await perform(scrapyd.app, "one", said("hello"))
    size = len((await scrapyd.get(LOG)).data)
    answer = await scrapyd.get(LOG, headers={"Range": asked})
    assert (answer.status, answer.data, answer.headers["Content-Range"]) == (416, b"", f"bytes */{size}")


@on_sqlite
async def test_ranges_of_a_long_log_together_are_the_log(scrapyd: Client) -> None:
    lines = [said(f"line {number} " + "x" * (number % 300)) for number in range(30_000)]
    lines[20_000:20_000] = [b"y" * 5_000_000 + said("after a line without end"), b"z\n"]
    await perform(scrapyd.app, "one", b"".join(lines))
    long = await scrapyd.get(LOG)
    whole = long.data
    assert "Content-Length" not in long.headers
    assert whole.count(b"\n") == 30_003
    assert (await scrapyd.get(LOG)).headers["Content-Length"] == str(len(whole))
    step = len(whole) // 7 + 1
    parts = [
        await scrapyd.get(LOG, headers={"Range": f"bytes={at}-{at + step - 1}"}) for at in range(0, len(whole), step)
    ]
    assert {part.status for part in parts} == {206}
    assert b"".join(part.data for part in parts) == whole


@on_sqlite
async def test_ranges_of_many_items_together_are_all_items(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", b"", *({"n": n, "text": "x" * 200} for n in range(4_500)))
    step, at, got = 300_000, 0, b""
    while (part := await scrapyd.get(ITEMS, headers={"Range": f"bytes={at}-{at + step - 1}"})).status == 206:
        got, at = got + part.data, at + len(part.data)
    assert part.status == 416
    assert [json.loads(line)["n"] for line in got.splitlines()] == list(range(4_500))


@on_sqlite
async def test_head_tells_what_a_get_would(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", said("hello"))
    head, got = await scrapyd.call("HEAD", LOG), await scrapyd.get(LOG)
    assert (head.status, head.data) == (200, b"")
    names = ("Content-Length", "Content-Type", "Accept-Ranges", "Last-Modified")
    assert [head.headers[name] for name in names] == [got.headers[name] for name in names]


@on_sqlite
async def test_a_copy_that_is_not_older_is_not_sent_again(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", said("hello"))
    changed_at = (await scrapyd.get(LOG)).headers["Last-Modified"]
    again = await scrapyd.get(LOG, headers={"If-Modified-Since": changed_at})
    assert (again.status, again.data) == (304, b"")
    older = {"If-Modified-Since": "Mon, 01 Jan 2024 00:00:00 GMT"}
    assert (await scrapyd.get(LOG, headers=older)).status == 200
    other = {"Range": "bytes=0-1", "If-Range": "Mon, 01 Jan 2024 00:00:00 GMT"}
    assert (await scrapyd.get(LOG, headers=other)).status == 200


async def test_the_log_of_a_running_job_grows_by_whole_lines(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    half = said("two")
    await job.prints(said("one") + half[:20])
    first = (await scrapyd.get(LOG)).data
    assert first.decode() == f"{SECOND} [shop] INFO: one\n"
    await job.prints(half[20:], seq=1)
    rest = await scrapyd.get(LOG, headers={"Range": f"bytes={len(first)}-"})
    assert (rest.status, rest.data.decode()) == (206, f"{SECOND} [shop] INFO: two\n")
    assert (await listed(scrapyd, "/logs/shop/things/"))[0][1] == f"{2 * len(first)}B"


async def test_the_items_of_a_running_job_are_there(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    await job.yields({"n": 1})
    assert (await scrapyd.get(ITEMS)).data == b'{"n": 1}\n'
    await job.yields({"n": 2})
    assert (await scrapyd.get(ITEMS, headers={"Range": "bytes=9-"})).data == b'{"n": 2}\n'


@on_sqlite
async def test_attempts_are_one_log(scrapyd: Client) -> None:
    job = await begin(scrapyd.app, "one")
    await job.ends(said("first") + b"cut", outcome="released")
    before = (await scrapyd.get(LOG)).data
    await job.tries_again()
    await job.ends(said("second"))
    after = (await scrapyd.get(LOG)).data
    assert before == f"{SECOND} [shop] INFO: first\ncut".encode()
    assert after == before + f"\n{SECOND} [shop] INFO: second\n".encode()


@on_sqlite
@pytest.mark.parametrize(
    "path",
    [
        "/logs/nope/",
        "/logs/shop/nope/",
        "/logs/shop/endless/one.log",
        "/logs/shop/things/nope.log",
        "/logs/shop/things/later.log",
        "/logs/shop/things/one.log.gz",
        "/logs/shop/things/one.txt",
        "/logs/shop/things/one.jl",
        "/logs/shop/things/one.log/",
        "/logs/shop/things/one.log/x",
        "/items/shop/things/one.log",
        "/items/stats.json",
        "/items/shop/things/one.json",
        "/logs/../logs/shop/things/one.log",
        "/logs/shop/%2e%2e/shop/things/one.log",
        "/logs/shop/things%2Fone.log",
        "/logs/shop/things/one.log%00",
        "/logs/shop/things/%ff.log",
        "/logsx/",
    ],
)
async def test_what_is_not_there_is_a_page_that_says_so(scrapyd: Client, path: str) -> None:
    await perform(scrapyd.app, "one", said("hello"))
    await wait(scrapyd.app, "later")
    answer = await exactly(scrapyd, path)
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (404, "text/html")
    assert b"404 - No Such Resource" in answer.data


@on_sqlite
async def test_double_slashes_count_as_one(scrapyd: Client) -> None:
    await perform(scrapyd.app, "one", said("hello"))
    assert (await scrapyd.get("//logs//shop///things/one.log")).data == (await scrapyd.get(LOG)).data
    assert "Directory listing for /logs/shop/<" in (await scrapyd.get("//logs//shop//")).data.decode()


async def test_projects_of_others_do_not_exist(scrapyd: Client) -> None:
    await a_version(scrapyd.app, "other")
    await perform(scrapyd.app, "one", said("hello"))
    await perform(scrapyd.app, "two", said("hello"), project="other")
    guest = await scrapyd.with_role(Role.VIEWER, "other")
    assert [name for name, _ in await listed(guest, "/logs/")] == ["other/"]
    for path in ("/logs/shop/", "/logs/shop/things/", LOG, ITEMS, "/logs/shop/things/one.json"):
        assert (await guest.get(path)).status == 404
    assert (await guest.get("/logs/other/things/two.log")).status == 200


@on_sqlite
async def test_names_cannot_become_markup(scrapyd: Client) -> None:
    await perform(scrapyd.app, "<b>&'\"", said("hello"))
    text = (await scrapyd.get("/logs/shop/things/")).data.decode()
    assert "<b>" not in text
    [(href, _)] = await listed(scrapyd, "/logs/shop/things/")
    assert (await exactly(scrapyd, f"/logs/shop/things/{href}")).data.endswith(b"hello\n")
