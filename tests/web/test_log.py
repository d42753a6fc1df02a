"""The pages of a log."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from tests.web.surfing import Shown, Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.logs.storage import store_log
from weft.web.pages import run_log

pytestmark = on_sqlite

AT = 1_794_790_923_000_000
HOSTILE = "</span><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">{{ 7 * 7 }}"
FIRST_ERROR, LAST_ERROR = 10, 450


def said(message: str, **fields: object) -> bytes:
    record = {"at": AT, "level": "INFO", "logger": "shop.spider", "message": message} | fields
    return b"\x1e" + json.dumps(record).encode() + b"\n"


def error(number: int) -> bytes:
    failed = f"failed on http://shop.example/{number}"
    return said(failed, level="ERROR", exception=f"Traceback (most recent call last):\n  …\nKeyError: 'price{number}'")


LINES = [said(f"page {number}") for number in range(1, 501)]
LINES[FIRST_ERROR - 1], LINES[LAST_ERROR - 1] = error(1), error(2)
LONG = b"".join(LINES)


async def ended_with(app: App, data: bytes, **ending: Any) -> str:
    """The address of the page of the log of a run that has printed this."""
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    key = f"logs/{run_id}/1.log"
    await store_log(app.blobs, key, len(data), lambda start, size: data[start : start + size])
    kept: dict[str, Any] = {"log_key": key, "log_bytes": len(data)}
    await hand.end(lease, **kept | ending)
    return f"/runs/{run_id}/log"


def numbers(page: Shown) -> list[int]:
    return [int(number) for number in re.findall(r'id="L(\d+)"', page.text)]


def link(page: Shown, mark: str) -> str:
    """Where the first link leads that has a mark."""
    tag, *_ = re.findall(rf"<a [^>]*{re.escape(mark)}[^>]*>", page.text)
    return html.unescape(tag.split('href="')[1].split('"')[0])


@pytest.fixture
async def reader(surfer: Surfer) -> Surfer:
    await surfer.log_in(grants={EVERYWHERE: Role.VIEWER})
    return surfer


async def test_a_log_opens_at_its_end_and_is_read_page_by_page(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    page = await reader.get(path)
    assert (numbers(page)[0], numbers(page)[-1]) == (301, 500)
    page = await reader.get(link(page, 'data-turn="older"'))
    assert (numbers(page)[0], numbers(page)[-1]) == (101, 300)
    page = await reader.get(link(page, 'data-turn="older"'))
    assert numbers(page) == list(range(1, 101))
    page = await reader.get(link(page, 'data-turn="newer"'))
    assert (numbers(page)[0], numbers(page)[-1]) == (101, 300)
    page = await reader.get(link(page, "data-oldest"))
    assert numbers(page)[0] == 1
    assert numbers(await reader.get(link(page, "data-newest")))[-1] == 500


async def test_a_line_has_a_link_that_leads_to_it(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    there = f"{path}?attempt=1&line=250"
    page = await reader.get(there)
    assert html.unescape(page.text).count(f'href="{there}#L250"') == 1
    assert numbers(page) == list(range(150, 350))
    [current] = re.findall(r'<div class="log-line[^"]* current" data-line="(\d+)"', page.text)
    assert current == "250"
    assert "There is no such line" in (await reader.get(f"{path}?after=900")).text


async def test_errors_are_jumped_to_from_either_side(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    page = await reader.get(path)
    to_last = await reader.get(link(page, 'data-jump="previous"'))
    assert to_last.leads_to == f"{path}?attempt=1&line={LAST_ERROR}#L{LAST_ERROR}"
    page = await reader.get(to_last.leads_to)
    to_first = await reader.get(link(page, 'data-jump="previous"'))
    assert to_first.leads_to.endswith(f"#L{FIRST_ERROR}")
    page = await reader.get(to_first.leads_to)
    none = await reader.get(link(page, 'data-jump="previous"'))
    assert f"line={FIRST_ERROR}" in none.leads_to
    assert 'role="status">' in (shown := (await reader.get(none.leads_to)).text)
    assert shown.count("No error comes earlier.") == 2
    assert (await reader.get(link(page, 'data-jump="next"'))).leads_to.endswith(f"#L{LAST_ERROR}")


async def test_a_log_is_searched_on_the_server(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG + b"printed\n")
    for query, found in (
        ("level=ERROR", [FIRST_ERROR, LAST_ERROR]),
        ("text=PAGE+33", [33, *range(330, 340)]),
        ("text=page+33%24&pattern=1", [33]),
        ("logger=shop&text=page+7%24", []),
        ("logger=shop&level=WARNING&text=price2", [LAST_ERROR]),
    ):
        page = await reader.get(f"{path}?{query}")
        assert numbers(page) == found, query
    assert "No line is like this" in (await reader.get(f"{path}?text=nowhere")).text


async def test_a_search_that_can_not_be_is_told_beside_its_field(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    page = await reader.get(f"{path}?text=%28%22&pattern=1")
    assert (page.status, 'id="text-error"' in page.text) == (422, True)
    assert 'value="(&#34;"' in page.text
    for query in ("level=LOUD", "attempt=2", "attempt=x", "line=x", "before=-1", "after=1&before=2"):
        assert (await reader.get(f"{path}?{query}")).status == 422, query


async def test_a_search_that_stopped_goes_on(app: App, reader: Surfer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.logs.lines.SEARCHED", 1)
    path = await ended_with(app, said("needle") + b"".join(said(f"page {number}" * 9) for number in range(15_000)))
    page = await reader.get(f"{path}?text=needle")
    assert "the rest has not been searched yet" in page.text
    while 'data-turn="older"' in page.text:
        page = await reader.get(link(page, 'data-turn="older"'))
    assert numbers(page) == [1]


async def test_what_a_line_says_is_only_text(app: App, reader: Surfer) -> None:
    path = await ended_with(
        app, said(HOSTILE, level="ERROR", logger=HOSTILE[:50], exception=HOSTILE) + b"\x1b[31m\x07\n"
    )
    for page in (await reader.get(path), await reader.get(f"{path}/errors")):
        assert "<script>document" not in page.text
        assert "<img" not in page.text.split("<main")[1]
        assert "{{ 7 * 7 }}" in page.text
    assert "\x1b" not in page.text
    assert r"\x07" in (await reader.get(path)).text


async def test_a_long_line_is_cut_and_shown_whole_by_itself(app: App, reader: Surfer) -> None:
    path = await ended_with(app, b"short\n" + b"y" * 5000 + b"\nshort\n")
    page = await reader.get(path)
    assert "3\u2009000 more characters" in page.text
    whole = await reader.get(link(page, 'class="cut"'))
    assert ("y" * 5000 in whole.text, "y" * 2001 in page.text) == (True, False)


async def test_identical_errors_are_one_group_with_a_folded_example(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    page = await reader.get(f"{path}/errors")
    assert page.text.count('class="card error-group"') == 1
    assert "2×" in page.text
    assert re.search(r"<details><summary>Example</summary><pre[^>]*>.*KeyError: &#39;price1", page.text, re.DOTALL)
    assert f'line={FIRST_ERROR}#L{FIRST_ERROR}"' in page.text
    assert f'line={LAST_ERROR}#L{LAST_ERROR}"' in page.text
    assert "No error" in (await reader.get(f"{await ended_with(app, said('fine'))}/errors")).text


async def test_of_a_huge_log_the_end_is_looked_through_for_groups(
    app: App, reader: Surfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "GROUPED_BYTES", 1000)
    filler = b"".join(said(f"page {number}") for number in range(15_000))
    path = await ended_with(app, error(1) + filler + said("the last", level="ERROR"))
    page = await reader.get(f"{path}/errors")
    assert ("the last" in page.text, "failed on" in page.text) == (True, False)
    whole = await reader.get(html.unescape(re.findall(r'href="([^"]*all=1)"', page.text)[0]))
    assert ("the last" in whole.text, "failed on" in whole.text) == (True, True)


async def test_attempts_are_chosen(app: App, reader: Surfer) -> None:
    run_id = await submit(app, retries=1, delay_seconds=0)
    hand = await Hand.join(app)
    await app.blobs.put("one", b"of the first\n")
    await hand.end(await hand.lease_one(), "failed", log_key="one", log_bytes=13)
    await app.runs.wake_waiting()
    await hand.ship(await hand.lease_one(), b"of the second\n")
    page = await reader.get(f"/runs/{run_id}/log")
    assert ("of the second" in page.text, "of the first" in page.text) == (True, False)
    assert re.findall(r'<option value="(\d)"', page.text) == ["2", "1"]
    first = await reader.get(f"/runs/{run_id}/log?attempt=1")
    assert ("of the first" in first.text, 'data-stream=""' in first.text) == (True, True)
    assert "stream?format=lines" in page.text


async def test_a_log_that_came_late_is_marked(app: App, reader: Surfer) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await hand.ship(lease, b"in time\n")
    await hand.lose()
    await app.blobs.put("late", b"in time\nlate\n")
    await hand.end(lease, log_key="late", log_bytes=13)
    await (await Hand.join(app, "other")).lease_one()
    mark = "From line 2 on it came late: its worker had been given up as lost."
    assert mark in (await reader.get(f"/runs/{run_id}/log?attempt=1")).text
    assert mark not in (await reader.get(f"/runs/{run_id}/log?attempt=2")).text
    assert re.findall(r">late</span>", (await reader.get(f"/runs/{run_id}")).text) == [">late</span>"]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ({"log_key": None, "log_bytes": 0}, "Nothing was printed"),
        ({"log_key": None, "log_bytes": 0, "reason": "its log was not kept: no"}, "Its log was not kept: no."),
        ({"log_key": "logs/gone", "log_bytes": 5000}, "this log is missing: there is no file of it any more"),
    ],
)
async def test_a_log_without_lines_says_why(app: App, reader: Surfer, ending: dict[str, object], words: str) -> None:
    assert words in (await reader.get(await ended_with(app, b"", **ending))).text


async def test_a_run_that_waits_or_has_said_nothing_yet_says_so(app: App, reader: Surfer) -> None:
    run_id = await submit(app)
    assert "The run waits" in (page := await reader.get(f"/runs/{run_id}/log")).text
    assert 'data-place="1.0"' in page.text
    assert "None was logged so far" in (await reader.get(f"/runs/{run_id}/log/errors")).text
    await (await Hand.join(app)).lease_one()
    assert "Nothing was printed yet" in (await reader.get(f"/runs/{run_id}/log")).text
    cancelled = await submit(app)
    await app.runs.cancel(cancelled)
    assert "The run never began" in (await reader.get(f"/runs/{cancelled}/log")).text


async def test_a_log_is_downloaded_whole(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    page = await reader.get(f"{path}?level=ERROR")
    assert (await reader.get(link(page, '-attempt-1.log"'))).data.count(b" INFO: page ") == 498
    assert (await reader.get(link(page, ".raw.log"))).data == LONG
    assert (await reader.get(link(page, "-found.log"))).data.count(b"KeyError") == 2
    assert len((await reader.get(link(page, ".jsonl"))).data.splitlines()) == 500


async def test_the_json_of_a_log_has_its_lines_and_its_run(app: App, reader: Surfer) -> None:
    path = await ended_with(app, LONG)
    told = json.loads((await reader.get(f"{path}.json?level=ERROR")).data)
    assert [each["line"] for each in told["items"]] == [FIRST_ERROR, LAST_ERROR]
    assert (told["run"]["state"], told["lines"]) == ("succeeded", 500)
    groups = json.loads((await reader.get(f"{path}/errors.json")).data)
    assert [each["count"] for each in groups["items"]] == [2]


async def test_a_log_is_only_for_those_who_may_see_its_run(app: App, surfer: Surfer) -> None:
    path = await ended_with(app, LONG)
    await surfer.log_in(grants={"other": Role.ADMIN})
    for each in (path, f"{path}/errors", f"{path}.json", "/runs/999/log", "/runs/x/log"):
        assert (await surfer.get(each)).status == 404
