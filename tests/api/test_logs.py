"""Logs through the API: as text, as records, searched, and their errors in groups."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.api.acting import Visitor
from tests.api.listening import listening
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from weft.access.model import Role
from weft.app import App
from weft.logs.storage import store_log

pytestmark = on_sqlite

AT = 1_794_790_923_000_000


def said(message: str, **fields: object) -> bytes:
    record = {"at": AT, "level": "INFO", "logger": "shop", "message": message} | fields
    return b"\x1e" + json.dumps(record).encode() + b"\n"


LOG = (
    said("Spider opened", spider="books", run_id=1)
    + b"printed\x1b[31m red\x1b[0m\n"
    + said("price is missing", level="WARNING", url="http://shop.example/1", status=200)
    + said("failed on http://shop.example/1", level="ERROR", exception="Traceback\nKeyError: 'a'")
    + said("failed on http://shop.example/2", level="ERROR", at=AT + 1_000_000, exception="Traceback\nKeyError: 'b'")
)


async def ended_with(app: App, log: bytes) -> str:
    """The address of the log of a run that has printed this."""
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    key = f"logs/{run_id}/1.log"
    await store_log(app.blobs, key, len(log), lambda start, size: log[start : start + size])
    await hand.end(lease, log_key=key, log_bytes=len(log))
    return f"/v1/runs/{run_id}/log"


async def test_a_log_is_told_as_text_records_or_bytes(admin: Visitor) -> None:
    path = await ended_with(admin.app, LOG)
    text = (await admin.get(path)).data.decode().splitlines()
    assert text[:4] == [
        "2026-11-16 01:02:03 [shop] INFO: Spider opened",
        "printed red",
        "2026-11-16 01:02:03 [shop] WARNING: price is missing",
        "2026-11-16 01:02:03 [shop] ERROR: failed on http://shop.example/1",
    ]
    answer = await admin.get(f"{path}?format=jsonl")
    records = [json.loads(line) for line in answer.data.splitlines()]
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert records[1] == {"message": "printed\x1b[31m red\x1b[0m"}
    assert (records[2]["url"], records[2]["status"], records[0]["spider"]) == ("http://shop.example/1", 200, "books")
    assert (await admin.get(f"{path}?format=raw")).data == LOG


async def test_a_log_is_searched_on_the_server(admin: Visitor) -> None:
    path = await ended_with(admin.app, LOG)

    async def messages(query: str) -> list[str]:
        lines = (await admin.get(f"{path}?format=jsonl&{query}")).data.splitlines()
        return [json.loads(line)["message"] for line in lines]

    assert await messages("level=WARNING&tail=3") == await messages("level=WARNING")
    assert len(await messages("level=ERROR")) == 2
    assert await messages("text=PRICE") == ["price is missing"]
    assert await messages("regex=KeyError:%20.b") == ["failed on http://shop.example/2"]
    assert await messages("level=ERROR&tail=1") == ["failed on http://shop.example/2"]
    assert await messages("text=nowhere") == []


async def test_no_pattern_holds_a_search_of_a_log(admin: Visitor) -> None:
    path = await ended_with(admin.app, said("a" * 5_000 + "!") + said("aaa"))
    found = (await admin.get(f"{path}?format=jsonl&regex={quote('(a+)+$')}")).data.splitlines()
    assert [json.loads(line)["message"] for line in found] == ["aaa"]


@pytest.mark.parametrize(
    ("query", "field"), [("level=LOUD", "level"), ("regex=(", "regex"), ("tail=0", "tail"), ("format=pdf", "format")]
)
async def test_a_search_that_means_nothing_is_refused(admin: Visitor, query: str, field: str) -> None:
    answer = await admin.get(f"{await ended_with(admin.app, LOG)}?{query}")
    assert (answer.status, answer.json["field"]) == (422, field)


async def test_identical_errors_are_grouped(admin: Visitor) -> None:
    [group] = (await admin.get(f"{await ended_with(admin.app, LOG)}/errors")).json["items"]
    assert (group["count"], group["message"]) == (2, "failed on <url> | KeyError: '…'")
    assert (group["first_at"], group["last_at"]) == ("2026-11-16T01:02:03.000Z", "2026-11-16T01:02:04.000Z")
    assert group["example"].endswith("    Traceback\n    KeyError: 'a'")


async def test_a_log_of_many_segments_is_told_whole_and_its_end_alone(admin: Visitor) -> None:
    log = b"".join(said(f"page {number}") for number in range(30_000))
    assert len(log) > 2 << 20
    path = await ended_with(admin.app, log)
    assert (await admin.get(f"{path}?format=raw")).data == log
    assert (await admin.get(path)).data.count(b"\n") == 30_000
    run_id = path.split("/")[3]
    await admin.app.blobs.delete(f"logs/{run_id}/1/000000.gz")  # so that reading it would show
    assert (await admin.get(f"{path}?tail=2")).data.splitlines()[-1].endswith(b"page 29999")
    assert b"ERROR: 1048576 bytes of this log are damaged" in (await admin.get(path)).data


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut off": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "of zeros": lambda file: file.write_bytes(bytes(1000)),
    "overwritten": lambda file: file.write_bytes(file.read_bytes()[:5000] + b"x" * 5000),
    "of another log": lambda file: file.write_bytes(gzip.compress(b"of another\n" * 100_000)),
    "gone": Path.unlink,
}


async def test_a_damaged_log_is_told_as_far_as_it_can_be_read_and_says_what_is_damaged(admin: Visitor) -> None:
    log = b"".join(said(f"page {number}") for number in range(30_000))
    path = await ended_with(admin.app, log)
    folder = admin.app.config.folder / "blobs" / "logs" / path.split("/")[3] / "1"
    asked = ("/lines?limit=100", "/errors", "?tail=5", "/lines?text=page", "/lines?after=14000", "/lines?level=ERROR")
    for place, (what, harm) in enumerate(DAMAGES.items()):
        number, far_from_it = place % 3, (20_000, 29_990, 5)[place % 3]
        file = folder / f"{number:06}.gz"
        sound = file.read_bytes()
        harm(file)
        shown = (await admin.get(path)).data
        assert b"[weft] ERROR: " in shown, what
        assert b"bytes of this log are damaged and cannot be shown" in shown, what
        assert f"page {far_from_it}\n".encode() in shown, what
        assert len((await admin.get(f"{path}?format=raw")).data) == len(log), what
        page = (await admin.get(f"{path}/lines?around={far_from_it}&limit=3")).json
        assert (far_from_it, f"page {far_from_it - 1}") in [(e["line"], e["message"]) for e in page["items"]], what
        for query in asked:
            assert (await admin.get(path + query)).status == 200, (what, query)
        file.write_bytes(sound)
    assert (await admin.get(f"{path}?format=raw")).data == log


async def test_a_log_without_its_index_is_told_whole_with_a_mark_at_its_end(admin: Visitor) -> None:
    log = b"".join(said(f"page {number}") for number in range(20_000))
    path = await ended_with(admin.app, log)
    folder = admin.app.config.folder / "blobs" / "logs" / path.split("/")[3] / "1"
    for harm in (lambda: (folder / "index").write_bytes(b'{"segments": [[1'), (folder / "index").unlink):
        harm()
        raw = (await admin.get(f"{path}?format=raw")).data
        assert raw.startswith(log)
        assert b"the index of this log is damaged" in raw[len(log) :]
        assert (await admin.get(f"{path}/lines?around=20000")).json["items"][-1]["level"] == "ERROR"
    os.truncate(folder / "000000.gz", 1000)
    text = (await admin.get(path)).data
    assert text.count(b" [weft] ERROR: ") == 2
    assert b"page 19999" in text
    for each in folder.iterdir():
        each.unlink()
    assert b"ERROR: this log is missing" in (await admin.get(path)).data


async def test_records_are_streamed_as_text_or_as_json(admin: Visitor) -> None:
    path = f"{await ended_with(admin.app, LOG)}/stream"
    async with listening(admin, path, since="1.0") as ear:
        assert (
            (await ear.event()).json["text"].startswith("2026-11-16 01:02:03 [shop] INFO: Spider opened\nprinted red\n")
        )
    async with listening(admin, f"{path}?format=jsonl", since="1.0") as ear:
        lines = (await ear.event()).json["text"].splitlines()
        assert [json.loads(line).get("level") for line in lines] == ["INFO", None, "WARNING", "ERROR", "ERROR"]


async def test_errors_and_records_are_only_for_those_who_may_view_the_run(admin: Visitor) -> None:
    path = await ended_with(admin.app, LOG)
    stranger = await admin.with_role(Role.ADMIN, "other")
    for each in (path, f"{path}/errors"):
        assert (await stranger.get(each)).status == 404


async def test_lines_come_with_their_numbers_from_the_end_or_around_one(admin: Visitor) -> None:
    path = f"{await ended_with(admin.app, LOG)}/lines"
    page = (await admin.get(f"{path}?limit=2")).json
    assert [each["line"] for each in page["items"]] == [4, 5]
    assert (page["attempt"], page["size"], page["lines"], page["place"]) == (1, len(LOG), 5, f"1.{len(LOG)}")
    assert (page["older"], page["newer"]) == (4, None)
    older = (await admin.get(f"{path}?limit=2&before={page['older']}")).json
    assert [(each["line"], each["message"]) for each in older["items"]] == [(2, "printed red"), (3, "price is missing")]
    assert (older["older"], older["newer"]) == (2, 3)
    midst = (await admin.get(f"{path}?limit=3&around=3")).json
    assert [each["line"] for each in midst["items"]] == [2, 3, 4]
    assert [each["line"] for each in (await admin.get(f"{path}?after=0&limit=1")).json["items"]] == [1]


async def test_a_line_is_told_as_plain_text_and_no_longer_than_asked(admin: Visitor) -> None:
    log = said("<b>\x1b[31mred\x1b[0m \u202e\x07</b>", level="ERROR", exception="Trace\r\nback\x00") + b"x" * 99
    items = (await admin.get(f"{await ended_with(admin.app, log)}/lines?width=50")).json["items"]
    assert items[0] == {
        "line": 1,
        "at": "2026-11-16T01:02:03.000Z",
        "level": "ERROR",
        "logger": "shop",
        "message": "<b>red \\u202e\\x07</b>",
        "exception": "Trace\nback\\x00",
        "more": 0,
        "fields": {},
    }
    assert (items[1]["message"], items[1]["more"], items[1]["level"]) == ("x" * 50, 49, "")


async def test_the_error_before_and_after_a_line_is_found(admin: Visitor) -> None:
    path = f"{await ended_with(admin.app, LOG)}/lines?level=ERROR&limit=1"
    for query, line in (("", 5), ("&before=5", 4), ("&after=0", 4), ("&after=4", 5)):
        assert [each["line"] for each in (await admin.get(path + query)).json["items"]] == [line]
    for query in ("&before=4", "&after=5"):
        assert (await admin.get(path + query)).json["items"] == []


@pytest.mark.parametrize("query", ["before=3&after=1", "before=2&around=1", "after=-1", "limit=0", "regex=("])
async def test_lines_that_can_not_be_are_refused(admin: Visitor, query: str) -> None:
    answer = await admin.get(f"{await ended_with(admin.app, LOG)}/lines?{query}")
    assert (answer.status, answer.json["field"]) == (422, query.partition("=")[0])


async def test_a_line_that_a_live_run_has_begun_is_told_when_it_is_whole(admin: Visitor) -> None:
    run_id = await submit(admin.app)
    hand = await Hand.join(admin.app)
    lease = await hand.lease_one()
    await hand.ship(lease, b"one\ntwo\nthr", 0)
    path = f"/v1/runs/{run_id}/log"
    page = (await admin.get(f"{path}/lines")).json
    assert ([each["message"] for each in page["items"]], page["place"]) == (["one", "two"], "1.8")
    async with listening(admin, f"{path}/stream?format=lines&after={page['place']}") as ear:
        await hand.ship(lease, b"ee\n" + said("lost", level="ERROR"), 1)
        heard = (await ear.event()).json
        assert [(each["line"], each["level"], each["message"]) for each in heard["lines"]] == [
            (3, "", "three"),
            (4, "ERROR", "lost"),
        ]
    async with listening(admin, f"{path}/stream?format=lines&regex=^t|lost&level=ERROR", since="1.4") as ear:
        assert [each["line"] for each in (await ear.event()).json["lines"]] == [4]
        await admin.app.blobs.put(
            "log", b"one\ntwo\nthree\n" + said("lost", level="ERROR") + said("end", level="ERROR")
        )
        await hand.end(lease, log_key="log", log_bytes=9)
        assert (await ear.event()).json["lines"] == []
    async with listening(admin, f"{path}/stream?format=lines", since="1.8") as ear:
        assert [each["line"] for each in (await ear.event()).json["lines"]] == [3, 4, 5]


async def test_a_stream_with_a_pattern_that_is_none_is_refused(admin: Visitor) -> None:
    path = f"{await ended_with(admin.app, LOG)}/stream"
    assert (await admin.get(f"{path}?format=lines&regex=(")).status == 422
    assert (await admin.get(f"{path}?after=soon")).status == 422


async def test_groups_of_errors_tell_where_they_are_and_can_be_of_the_end_alone(admin: Visitor) -> None:
    filler = b"".join(said(f"page {number}") for number in range(15_000))
    path = f"{await ended_with(admin.app, LOG + filler + said('the last', level='ERROR'))}/errors"
    first, last = (await admin.get(path)).json["items"]
    assert (first["count"], first["first_line"], first["last_line"]) == (2, 4, 5)
    assert last["first_line"] == 15_006
    assert [each["count"] for each in (await admin.get(f"{path}?most_bytes=1000")).json["items"]] == [1]
