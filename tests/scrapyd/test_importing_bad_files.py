"""What lies in the folders of a Scrapyd may be anything: it is told by its name, and the rest is taken."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.conftest import SetClock, on_sqlite
from tests.projects.making import a_version
from tests.scrapyd.left_behind import (
    OLD,
    add_egg,
    add_finished,
    add_items,
    add_log,
    add_pending,
    contents,
    egg,
    log_text,
    opened,
    written,
)
from tests.scrapyd.taking import Taking, counts, refused, stored
from weft.app import App
from weft.clock import moment
from weft.items.collector import LARGEST_ITEM
from weft.scrapyd.import_finished import lines_of, read_item
from weft.scrapyd.model import ImportKind, ImportOutcome

SECRET = b"root:x:0:0\n"


@pytest.fixture
def take(app: App, clock: SetClock, tmp_path: Path) -> Taking:
    folder = tmp_path / "scrapyd"
    folder.mkdir()
    return Taking(app, clock, folder)


@on_sqlite
async def test_no_link_is_followed_on_the_way_to_a_file(take: Taking, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for place in ("logs/shop/prices", "items/shop/prices", "eggs/shop", "dbs"):
        (take.folder / place).mkdir(parents=True)
    written(elsewhere / "deep" / "secret.log", SECRET)
    written(elsewhere / "secret.jl", b'{"a": 1}\n')
    add_egg(elsewhere, "shop", "1", egg())
    add_pending(elsewhere, "shop", {"name": "prices", "_job": "a"})
    links = {
        "logs/shop/prices/secret.log": elsewhere / "deep" / "secret.log",
        "logs/shop/linked": elsewhere / "deep",
        "logs/linked": elsewhere,
        "items/shop/prices/secret.jl": elsewhere / "secret.jl",
        "eggs/shop/1.egg": elsewhere / "eggs" / "shop" / "1.egg",
        "eggs/linked": elsewhere / "eggs" / "shop",
        "dbs/shop.db": elsewhere / "dbs" / "shop.db",
        "dbs/jobs.db": elsewhere / "dbs" / "shop.db",
    }
    for name, target in links.items():
        (take.folder / name).symlink_to(target)
    add_log(take.folder, "prices", "plain", "plain\n")
    report = await take()
    assert counts(report) == {
        "eggs": (0, 0, 2),
        "finished jobs": (1, 0, 1),
        "logs": (1, 0, 3),
        "items": (0, 0, 1),
        "pending jobs": (0, 0, 1),
    }
    assert set(refused(report)) == {name.partition("/")[2] for name in links}
    assert all("links are not followed" in why for why in refused(report).values())
    assert (await stored(take.app))["runs"] == 1


@on_sqlite
async def test_a_folder_that_scrapyd_was_told_to_use_may_be_a_link(take: Taking, tmp_path: Path) -> None:
    add_log(tmp_path / "disk", "prices", "a", "x\n")
    (take.folder / "logs").symlink_to(tmp_path / "disk" / "logs")
    assert counts(await take())["logs"] == (1, 0, 0)


@on_sqlite
async def test_pipes_and_folders_in_the_place_of_files_hold_up_nothing(take: Taking) -> None:
    add_log(take.folder, "prices", "plain", "plain\n")
    os.mkfifo(take.folder / "logs/shop/prices/pipe.log")
    (take.folder / "logs/shop/prices/folder.log").mkdir()
    os.mkfifo(take.folder / "logs/pipe")
    report = await take()
    assert set(refused(report)) == {"shop/prices/pipe.log", "shop/prices/folder.log", "pipe"}
    assert report.counts[ImportKind.LOG, ImportOutcome.TAKEN] == 1


@on_sqlite
async def test_names_that_weft_does_not_allow_are_told(take: Taking) -> None:
    add_log(take.folder, "prices", "a", "x\n", project="my shop")
    add_log(take.folder, "prices", "x" * 240, "x\n")
    add_log(take.folder, "prices\n2", "a", "x\n")
    add_egg(take.folder, "my shop", "1", egg())
    add_egg(take.folder, "shop", "_1", egg())
    odd = os.fsencode(take.folder / "logs/shop/prices") + b"/\xff.log"
    Path(os.fsdecode(odd)).write_bytes(b"x\n")
    add_finished(take.folder, ("../shop", "prices", "a", "", ""), ("shop", "prices", "../a", "", ""))
    add_finished(take.folder, (None, b"\xff", 7, None, None))
    report = await take()
    assert counts(report) == {"eggs": (0, 0, 2), "finished jobs": (0, 0, 3), "logs": (0, 0, 4)}
    for name in refused(report):
        name.encode()
    assert (await stored(take.app))["runs"] == 0


@on_sqlite
async def test_what_other_tools_write_beside_logs_is_passed_over(take: Taking) -> None:
    add_log(take.folder, "prices", "a", "x\n")
    written(take.folder / "logs/shop/prices/a.json", b"{}")
    written(take.folder / "logs/stats.json", b"{}")
    written(take.folder / "logs/.hidden", b"")
    report = await take()
    assert (report.is_whole, report.counts[ImportKind.LOG, ImportOutcome.TAKEN]) == (True, 1)
    written(take.folder / "logs/shop/prices/b.log.gz", b"\x1f\x8b")
    assert refused(await take()) == {"shop/prices/b.log.gz": "its name does not end with .log"}


GOOD = {"name": "prices", "_job": "good", "settings": {"A": "1"}, "country": "at"}
BAD_MESSAGES: list[tuple[object, str]] = [
    (b"not json", "no JSON object"),
    (b"[1]", "no JSON object"),
    (b"\xff", "no JSON object"),
    (b"{" * 5000, "no JSON object"),
    (b'{"name": "prices", "_job": "big", "x": "%b"}' % (b"x" * 1_000_000), "no JSON object of 1000000 bytes"),
    ({"_job": "a"}, "must have name and _job"),
    ({"name": "prices"}, "must have name and _job"),
    ({"name": 7, "_job": "a"}, "must have name and _job"),
    ({"name": "prices", "_job": "a", "settings": [1]}, "of another type"),
    ({"name": "prices", "_job": "a", "_version": 3}, "of another type"),
    ({"name": "prices", "_job": "a", "settings": {"A": {"b": 1}}}, "is no text"),
    ({"name": "prices", "_job": "a", "x": None}, "is no text"),
    ({"name": "prices", "_job": "../x"}, "without slashes"),
    ({"name": "prices", "_job": ".x"}, "without slashes"),
    ({"name": "prices", "_job": ""}, "without slashes"),
    ({"name": "prices", "_job": "x" * 201}, "at most 200"),
    ({"name": "pri\nces", "_job": "a"}, "characters that print"),
    ({"name": "unknown", "_job": "a"}, "there is no spider unknown"),
    ({"name": "prices", "_job": "a", "_version": "9.9"}, "there is no version 9.9"),
]


@pytest.mark.parametrize(("message", "why"), BAD_MESSAGES, ids=[why for _, why in BAD_MESSAGES])
@on_sqlite
async def test_a_message_that_cannot_be_a_job_is_told_and_the_others_are_taken(
    take: Taking, message: object, why: str
) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", message, GOOD)
    report = await take()
    (told,) = report.refused
    assert why in told.why
    assert (await take.run("good")).spec.spec["args"] == {"_job": "good", "country": "at"}
    assert (await stored(take.app))["runs"] == 1


@on_sqlite
@pytest.mark.parametrize(("priority", "kept"), [(1e300, 1000), (-1e300, -1000), (2.5, 2), (float("inf"), 1000)])
async def test_a_priority_is_kept_as_far_as_weft_has_them(take: Taking, priority: float, kept: int) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", GOOD, priority=priority)
    await take()
    assert (await take.run("good")).priority == kept


@on_sqlite
@pytest.mark.parametrize("priority", [None, "high", b"x"])
async def test_a_priority_that_is_no_number_is_told(take: Taking, priority: object) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", GOOD, priority=priority)
    assert refused(await take()) == {"shop.db row 1": "its priority is no number"}


@on_sqlite
async def test_a_queue_of_a_project_that_is_gone_is_told(take: Taking) -> None:
    add_pending(take.folder, "gone", GOOD)
    assert refused(await take()) == {"gone.db job good": "there is no project gone"}


@on_sqlite
async def test_files_that_are_no_queue_are_told(take: Taking) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", GOOD)
    written(take.folder / "dbs/text.db", b"this is no database, though it is long enough to be taken for one" * 100)
    written(take.folder / "dbs/empty.db", b"")
    written(take.folder / "dbs/note.txt", b"")
    with opened(take.folder, "other") as database:
        database.execute("CREATE TABLE spider_queue (a, b)")
    with opened(take.folder, "view") as database:
        endless = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS id, i AS priority, i AS message"
        )
        database.execute(f"CREATE VIEW spider_queue AS {endless} FROM n")
    why = refused(await take())
    assert why.keys() == {"text.db", "other.db", "view.db"}
    assert why["view.db"] == "spider_queue is no table"
    assert "cannot be read" in why["text.db"]
    assert (await take.app.jobs.counts())["pending"] == 1


@on_sqlite
async def test_a_queue_in_the_midst_of_a_write_is_read_as_it_was_before(take: Taking) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", GOOD)
    writer = sqlite3.connect(take.folder / "dbs/shop.db")
    try:
        writer.execute("INSERT INTO spider_queue (priority, message) VALUES (0, '{}')")
        before = contents(take.folder / "dbs")
        report = await take()
        assert contents(take.folder / "dbs") == before
    finally:
        writer.close()
    assert counts(report) == {"pending jobs": (1, 0, 0)}


KILLED = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size = 1")
for _ in range(500):
    database.execute("INSERT INTO spider_queue (priority, message) VALUES (0, ?)", (b"x" * 2000,))
os.kill(os.getpid(), 9)
"""


@on_sqlite
async def test_a_queue_whose_writer_was_killed_is_read_as_it_was_before(take: Taking) -> None:
    await a_version(take.app, "shop")
    add_pending(take.folder, "shop", GOOD)
    subprocess.run([sys.executable, "-c", KILLED, str(take.folder / "dbs/shop.db")], check=False)
    before = contents(take.folder / "dbs")
    assert "shop.db-journal" in before
    report = await take()
    assert contents(take.folder / "dbs") == before
    assert counts(report) == {"pending jobs": (1, 0, 0)}


@on_sqlite
async def test_a_job_that_has_ended_several_times_is_told(take: Taking) -> None:
    for day in (1, 2, 3):
        times = f"2026-02-0{day} 10:00:00.5", f"2026-02-0{day} 10:00:02.25"
        add_finished(take.folder, ("shop", "prices", "daily", *times))
    report = await take()
    assert report.notes == ["shop/prices/daily has ended 3 times; its last end is taken"]
    assert counts(report) == {"finished jobs": (1, 0, 0)}
    assert (await take.run("daily")).finished_at == moment(datetime.fromisoformat("2026-02-03T10:00:02.25"))


@on_sqlite
async def test_a_job_without_any_time_is_told(take: Taking) -> None:
    add_finished(take.folder, ("shop", "prices", "a", "2026-02-01 10:00:00.5", "yesterday"))
    add_finished(take.folder, ("shop", "prices", "b", None, None))
    add_log(take.folder, "prices", "b", log_text())
    report = await take()
    assert refused(report) == {"shop/prices/a": "it has no file, and nothing says when it ended"}
    assert (await take.run("b")).finished_at == 1_772_355_605_250_000


LINES = b"""{"a": 1}
not json

{"a": NaN}\r
[1, 2]
{"a": 1},"at":5,"item":{"b": 2}
{"a": "\xff"}
  {"a": "\\u0000"}
{"a": 1}
"text"
{"last": true}"""


async def test_lines_that_are_no_items_are_counted_and_the_others_are_stored(take: Taking) -> None:
    add_log(take.folder, "prices", "a", log_text())
    add_items(take.folder, "prices", "a", LINES)
    report = await take()
    assert (report.items, report.bad_items) == (6, 4)
    assert refused(report) == {"shop/prices/a.jl": "4 of its lines are no items; the others were taken"}
    run = await take.run("a")
    texts = [{"a": 1}, {"a": None}, {"a": "\ufffd"}, {"a": "\ufffd"}, {"a": 1}, {"last": True}]
    assert await take.items(run) == texts
    (told,) = await take.app.items.stats(run.id)
    assert (told.items, told.refused) == (6, 4)
    again = await take()
    assert (again.items, again.bad_items, counts(again)["items"]) == (0, 0, (0, 1, 0))


def test_a_line_that_is_too_long_is_counted_and_not_held(tmp_path: Path) -> None:
    long = b"x" * (LARGEST_ITEM + 1)
    file = written(tmp_path / "a.jl", b'{"a": 1}\n' + long + b'\n{"b": 2}\n' + long, OLD)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert [None if line is None else line[:20] for line in lines_of(descriptor)] == [
            b'{"a": 1}',
            None,
            b'{"b": 2}',
            None,
        ]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("line", [b'{"a":1}}', b'{"a":1}{"b":2}', b"{", b"", b'"at":1', b'{"a":1},"item":{}', None])
def test_only_a_whole_object_is_an_item(line: bytes | None) -> None:
    assert read_item(line, 1) is None


@on_sqlite
async def test_a_long_log_is_kept_byte_by_byte(take: Taking) -> None:
    text = log_text() + "2026-03-01 10:00:05 [x] DEBUG: \u2713 more\n" * 90_000 + log_text("shutdown")
    add_log(take.folder, "prices", "a", text)
    await take()
    run = await take.run("a")
    assert (run.state, await take.app.runs.log(run.id)) == ("cancelled", text.encode())


@on_sqlite
@pytest.mark.parametrize(
    "text",
    [
        "Dumping Scrapy stats:\n{'finish_reason': 'finished'",
        "Dumping Scrapy stats:\n{'start_time': datetime.datetime(0, 99, 99, 99), 'x': __import__('os').abort()}\n",
        "Dumping Scrapy stats:\n{'a': " + "(" * 100_000 + "}\n",
        "Dumping Scrapy stats:\n" + "{'a': '" * 50_000,
        "Spider closed (" + "x" * 100_000,
        "\0\x1e{\n" * 1000,
    ],
)
async def test_whatever_a_log_says_is_only_read(take: Taking, text: str) -> None:
    add_log(take.folder, "prices", "a", text)
    assert counts(await take())["logs"] == (1, 0, 0)
    run = await take.run("a")
    assert (run.state, await take.app.runs.log(run.id)) == ("failed", text.encode())


@on_sqlite
async def test_a_job_that_was_just_written_to_may_still_run(take: Taking) -> None:
    add_log(take.folder, "prices", "running", "x\n", at=time.time())
    add_log(take.folder, "prices", "closed", log_text(), at=time.time())
    add_log(take.folder, "prices", "stored", "x\n", at=time.time())
    add_items(take.folder, "prices", "only-items", b'{"a": 1}\n', at=time.time())
    add_finished(take.folder, ("shop", "prices", "stored", "2026-02-01 10:00:00.5", "2026-02-01 10:00:02.25"))
    report = await take()
    assert set(refused(report)) == {"shop/prices/running", "shop/prices/only-items"}
    assert counts(report)["finished jobs"] == (2, 0, 0)


@on_sqlite
async def test_a_scrapyd_that_has_nothing_is_taken_over(take: Taking) -> None:
    report = await take()
    assert (counts(report), report.is_whole) == ({}, True)
