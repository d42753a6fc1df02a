"""Lines of a log by their numbers, whatever segments it lies in."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.logs.lines import LogLine, LogLinePage, LogLineReader
from weft.logs.records import LONGEST_RECORD, records_of
from weft.logs.search import LogQuery
from weft.logs.storage import LogSegment, StoredLog, log_in_memory

ALL = LogQuery()
ERRORS = LogQuery(level="ERROR")


def said(message: str, level: str = "INFO") -> bytes:
    record = {"at": 1_794_790_923_000_000, "level": level, "logger": "shop.spider", "message": message}
    return b"\x1e" + json.dumps(record).encode() + b"\n"


def segmented(parts: Sequence[bytes], *, counted: bool = True) -> tuple[StoredLog, list[int]]:
    """A log in parts, and which of them were read."""
    read: list[int] = []

    async def fetch(number: int) -> bytes:
        read.append(number)
        return parts[number]

    return StoredLog([LogSegment.of(part) if counted else len(part) for part in parts], fetch), read


def cut_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def told(lines: Sequence[LogLine]) -> list[tuple[int, str]]:
    return [(line.number, record.message) for line in lines for record in line.records]


async def read_back(lines: LogLineReader, asked: LogQuery, limit: int) -> list[tuple[int, str]]:
    """Page after page from the end."""
    page = await lines.before(None, asked, limit)
    found = told(page.lines)
    while page.older is not None:
        page = await lines.before(page.older, asked, limit)
        found = told(page.lines) + found
    return found


async def read_on(lines: LogLineReader, asked: LogQuery, limit: int) -> list[tuple[int, str]]:
    page = LogLinePage(lines=[], older=None, newer=0)
    found: list[tuple[int, str]] = []
    while page.newer is not None:
        page = await lines.after(page.newer, asked, limit)
        found += told(page.lines)
    return found


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["", "a", "bb", "c" * 30, "failed"]), max_size=12),
    st.booleans(),
    st.lists(st.integers(1, 120), max_size=6),
    st.integers(1, 5),
    st.booleans(),
)
async def test_every_line_is_read_once_in_either_direction(
    texts: list[str], is_open: bool, cuts: list[int], limit: int, counted: bool
) -> None:
    data = b"\n".join(text.encode() for text in texts) + (b"" if is_open else b"\n")
    log, _ = segmented(cut_at(data, cuts), counted=counted)
    lines = await LogLineReader.of(log)
    expected = list(enumerate(data.decode().removesuffix("\n").split("\n"), 1)) if data else []
    if is_open and data.endswith(b"\n"):
        expected = list(enumerate(data.decode()[:-1].split("\n"), 1))
    assert await read_back(lines, ALL, limit) == expected
    assert await read_on(lines, ALL, limit) == expected
    assert await lines.total() == len(expected)
    wanted = [(number, text) for number, text in expected if "c" in text]
    assert await read_back(lines, LogQuery(text="c"), limit) == wanted
    assert await read_on(lines, LogQuery(text="c"), limit) == wanted


COMPACT = b'\x1e{"at":1794790923000000,"level":"ERROR","logger":"a","message":"lost"}\n'


@pytest.mark.parametrize("error", [said("lost", "ERROR"), COMPACT, b"2026-11-16 01:02:03 [shop] CRITICAL: lost\n"])
async def test_an_error_is_found_wherever_its_line_is_cut(error: bytes) -> None:
    data = said("before") + error + said("after")
    for cut in range(1, len(data)):
        lines = await LogLineReader.of(segmented(cut_at(data, [cut, cut + 30]))[0])
        assert told((await lines.before(None, ERRORS, 1)).lines) == [(2, "lost")], cut
        assert told((await lines.after(0, ERRORS, 1)).lines) == [(2, "lost")], cut
        assert [each async for found in lines.errors() for each in told(found)] == [(2, "lost")], cut


async def test_segments_without_an_error_are_not_read_for_errors() -> None:
    parts = [said(f"page {n}") * 10 for n in range(8)]
    parts[2] += said("lost", "ERROR") + said("page")
    log, read = segmented(parts)
    lines = await LogLineReader.of(log)
    assert told((await lines.before(None, ERRORS, 1)).lines) == [(31, "lost")]
    assert set(read) <= {1, 2, 3}


async def test_the_end_costs_its_last_segments_and_a_line_in_the_midst_its_own() -> None:
    log, read = segmented([said(f"page {n}") * 10 for n in range(20)])
    lines = await LogLineReader.of(log)
    assert [line.number for line in (await lines.before(None, ALL, 3)).lines] == [198, 199, 200]
    assert set(read) <= {18, 19}
    read.clear()
    assert [line.number for line in (await lines.after(54, ALL, 2)).lines] == [55, 56]
    assert set(read) <= {5, 6, 19}


TEXTS = ["price", "PRICE 7", "2026-11", "01:02", "shop", "root", "o", "INFO", "[shop] info: the", 'a"b', "\\", "ü"]
MORE_TEXTS = ["red", " x", "  File", "KeyError", "    KeyError", "a/b", "\\x07", "é", "É"]


@for_each("text", [*TEXTS, *MORE_TEXTS])
async def test_a_text_is_found_by_lines_as_it_is_by_records(text: str) -> None:
    records = [
        {"at": 1_794_790_923_000_000, "level": "INFO", "logger": "shop", "message": 'the price 7 a"b \\ ü a/b \x07 É'},
        {"level": "ERROR", "message": "re\x1b[31md x", "exception": "Traceback\n  File\nKeyError: 1"},
        {"message": "odd"},
    ]
    data = b"".join(b"\x1e" + json.dumps(each).encode() + b"\n" for each in records) + b"r\x1b[1med Price\n" * 2
    lines = await LogLineReader.of(log_in_memory(data))
    asked = LogQuery(text=text)
    wanted = [number for number, record in enumerate(records_of(data), 1) if asked.wants(record)]
    assert [line.number for line in (await lines.after(0, asked, 100)).lines] == wanted


async def test_a_search_says_how_far_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.logs.lines.SEARCHED", 2000)
    lines = await LogLineReader.of(segmented([said("needle"), *[said(f"page {n}") * 10 for n in range(20)]])[0])
    page = await lines.before(None, LogQuery(text="needle"), 5)
    assert (page.lines, page.older) == ([], 23)
    assert await read_back(lines, LogQuery(text="needle"), 5) == [(1, "needle")]
    assert await read_on(lines, LogQuery(text="needle"), 5) == [(1, "needle")]


async def test_lines_are_found_by_logger_and_by_pattern() -> None:
    lines = await LogLineReader.of(log_in_memory(said("one") + b"two\n" + said("three")))
    for logger, found in (("shop", [1, 3]), ("shop.spider", [1, 3]), ("shop.spi", []), ("spider", [])):
        assert [line.number for line in (await lines.after(0, LogQuery(logger=logger), 9)).lines] == found
    assert told((await lines.before(None, LogQuery(regex="t[wh]"), 9)).lines) == [(2, "two"), (3, "three")]


async def test_a_line_that_is_longer_than_segments_is_told_with_how_much_more_there_is() -> None:
    half = b"x" * (LONGEST_RECORD // 2)
    log, read = segmented([b"a\n" + half, *[half] * 9, half + b"\nz\n"])
    lines = await LogLineReader.of(log)
    [first, long, last] = (await lines.before(None, ALL, 3)).lines
    assert (first.records[0].message, last.records[0].message, last.number) == ("a", "z", 3)
    assert long.records[0].message.endswith(f"[…{11 * len(half) - (32 << 10)} more]")
    assert read.count(5) == 0


async def test_text_before_a_record_has_the_same_line() -> None:
    lines = await LogLineReader.of(log_in_memory(b"Loading..." + said("ready")))
    assert told((await lines.before(None, ALL, 3)).lines) == [(1, "Loading..."), (1, "ready")]
    marks = await LogLineReader.of(log_in_memory(b"\x1e" * 100_000 + b"\n"))
    assert len((await marks.before(None, ALL, 3)).lines[0].records) == 50


async def test_a_traceback_that_was_printed_below_an_error_is_part_of_it() -> None:
    head = b"2026-11-16 01:02:03 [scrapy.core.scraper] ERROR: Spider error processing <GET http://x/1>\n"
    trace = b'Traceback (most recent call last):\n  File "x.py", line 1, in parse\nKeyError: 7\n'
    data = head + trace + b"2026-11-16 01:02:04 [shop] INFO: fine\n" + head + b"not a traceback\n" + head
    lines = await LogLineReader.of(log_in_memory(data))
    [found] = [batch async for batch in lines.errors()]
    assert [(line.number, line.records[0].exception) for line in found] == [
        (1, trace.decode().rstrip()),
        (6, None),
        (8, None),
    ]
