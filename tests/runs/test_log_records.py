"""What the bytes of a log say, however they are cut, and what they look like to people (control C23)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.errors import Invalid
from weft.logs.error_groups import ErrorGroups, masked
from weft.logs.records import LONGEST_LINE, LONGEST_RECORD, LogParser, LogRecord, LogTextRenderer, as_text, records_of
from weft.logs.search import LogQuery, search
from weft.logs.storage import StoredLog, log_in_memory

AT = 1_794_790_923_000_000
"""2026-11-16 01:02:03"""


def said(message: str, **fields: object) -> bytes:
    record = {"at": AT, "level": "INFO", "logger": "scrapy.core.engine", "message": message} | fields
    return b"\x1e" + json.dumps(record).encode() + b"\n"


LINES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=40).map(lambda text: text.encode(errors="replace") + b"\n"),
        st.text(max_size=40).map(said),
        st.sampled_from(
            [b"\x1e", b"\x1e{}\n", b"\x1e{broken\n", b"no line end", b"\x1b[31mred\x1b[0m\r\n", b"\xc3\xa4\n"]
        ),
    ),
    max_size=12,
).map(b"".join)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(LINES, st.lists(st.integers(0, 10_000), max_size=20))
def test_pieces_cut_anywhere_give_the_same_records(data: bytes, places: list[int]) -> None:
    parser = LogParser()
    found = [record for piece in cut(data, places) for record in parser.feed(piece)]
    assert found + parser.end() == records_of(data)


@given(LINES, st.lists(st.integers(0, 10_000), max_size=20))
def test_pieces_cut_anywhere_give_the_same_text_and_nothing_that_steers(data: bytes, places: list[int]) -> None:
    text = LogTextRenderer()
    pieces = [text.feed(piece) for piece in cut(data, places)]
    whole = "".join(pieces) + text.feed(b"", last=True)
    assert whole == as_text(data)
    assert all(each in "\n\t" or each.isprintable() for each in whole)


def test_a_record_looks_as_scrapy_writes_it() -> None:
    assert as_text(said("Spider opened")) == "2026-11-16 01:02:03 [scrapy.core.engine] INFO: Spider opened\n"


def test_what_follows_the_first_line_is_indented_so_that_it_cannot_pass_for_a_record() -> None:
    forged = "2026-11-16 01:02:03 [scrapy.core.engine] INFO: all is well"
    text = as_text(said(f"bad\n{forged}", exception=f"Traceback:\nValueError: x\n{forged}"))
    assert [line for line in text.splitlines() if line.startswith("2026")] == [
        "2026-11-16 01:02:03 [scrapy.core.engine] INFO: bad"
    ]
    assert text.endswith(f"    Traceback:\n    ValueError: x\n    {forged}\n")


@for_each(
    ("line", "seen"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07here", "here"),
        (b"bell\x07", r"bell\x07"),
        (b"nul\x00", r"nul\x00"),
        (b"back\x08\x08", r"back\x08\x08"),
        (b"a\rb", "a\nb"),
        ("\u202egnp.exe".encode(), r"\u202egnp.exe"),
        (b"windows\r", "windows"),
        ("line\u2028end".encode(), r"line\u2028end"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_no_printed_byte_steers_a_terminal(line: bytes, seen: str) -> None:
    assert as_text(line + b"\n") == f"{seen}\n"


def test_a_record_after_text_without_a_line_end_is_found() -> None:
    first, second = records_of(b"Loading..." + said("ready"))
    assert (first, second.message, second.level) == (LogRecord(message="Loading..."), "ready", "INFO")


def test_lines_that_scrapy_itself_has_printed_have_a_level() -> None:
    line = "2026-11-16 01:02:03 [scrapy.core.scraper] ERROR: Spider error"
    [record] = records_of(line.encode())
    assert (record.level, record.logger, record.at, record.text) == ("ERROR", "scrapy.core.scraper", AT, line)


def test_fields_of_a_record_are_kept() -> None:
    [record] = records_of(said("got", url="http://x/1", status=404, spider="books", run_id=7, extra={"a": 1}))
    assert (record.url, record.status, record.spider, record.run_id) == ("http://x/1", 404, "books", 7)


@for_each("part", [b"[]", b"3", b"{", b"{}}", b'{"at":"soon"}', b'{"status":[1]}', b"[" * 5000])
def test_what_is_no_record_is_a_printed_line(part: bytes) -> None:
    [record] = records_of(b"\x1e" + part + b"\n")
    assert (record.level, record.message) == ("", part.decode())


def test_a_line_is_shown_up_to_its_cap_and_the_rest_is_counted() -> None:
    parser = LogParser()
    for _ in range(50):
        assert parser.feed(b"x" * 100_000) == []
    [record] = parser.feed(b"\n")
    assert record.message == "x" * LONGEST_LINE + f" […{5_000_000 - LONGEST_LINE} more]"
    [long] = records_of(said("y" * (LONGEST_LINE + 5)))
    assert long.message.endswith("y […5 more]")
    assert LONGEST_RECORD > LONGEST_LINE


def segmented(*parts: bytes) -> tuple[StoredLog, list[int]]:
    """A log in parts, and which of them were read."""
    read: list[int] = []

    async def fetch(number: int) -> bytes:
        read.append(number)
        return parts[number]

    return StoredLog([len(part) for part in parts], fetch), read


async def found(log: StoredLog, **asked: object) -> list[str]:
    return [record.message async for batch in search(log, LogQuery(**asked)) for record in batch]  # type: ignore[arg-type]


async def test_the_end_of_a_log_costs_its_last_segment() -> None:
    log, read = segmented(b"a\nb\nc", b"c\nd\ne", b"e\nf\ng\n")
    assert await found(log, tail=2) == ["f", "g"]
    assert read == [2]
    assert await found(log, tail=4) == ["d", "ee", "f", "g"]
    assert await found(log, tail=100) == await found(log) == ["a", "b", "cc", "d", "ee", "f", "g"]


async def test_a_line_longer_than_segments_is_found_from_the_end() -> None:
    log, _ = segmented(b"a\nlong", b"er and long", b"er\nz")
    assert await found(log, tail=2) == ["longer and longer", "z"]


LOG = (
    said("one")
    + said("two", level="WARNING")
    + b"printed Two\n"
    + said("three", level="ERROR", exception="T\nKeyError: 2")
)


async def test_records_are_found_by_level_text_and_pattern() -> None:
    log = log_in_memory(LOG)
    assert await found(log, level="WARNING") == ["two", "three"]
    assert await found(log, text="TWO") == ["two", "printed Two"]
    assert await found(log, regex="tw[o]$|Key.rror") == ["two", "three"]
    assert await found(log, regex="Error|WARNING", tail=1) == ["three"]
    assert await found(log, level="DEBUG", text="o", regex="^2026.*two") == ["two"]


async def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match=r"regex is '\(': it must|regex is '\('; it must be a regular expression"):
        await found(log_in_memory(LOG), regex="(")
    with pytest.raises(Invalid, match="level is 'LOUD'; it must be one of DEBUG, INFO"):
        LogQuery(level="LOUD")
    with pytest.raises(Invalid, match="at most 1000"):
        LogQuery(regex="x" * 1001)
    with pytest.raises(Invalid, match="tail is 0; it must be from 1 to 100000"):
        LogQuery(tail=0)


async def test_no_pattern_takes_long_and_many_long_lines_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in_memory(b"a" * 60 + b"!\n" + b"b\n")
    assert await found(log, regex="(a+)+$") == []
    monkeypatch.setattr("weft.logs.search.PATTERN_SECONDS", 0.0)
    with pytest.raises(Invalid, match="it took longer than 0 s"):
        await found(log, regex="b")


def test_errors_that_say_the_same_of_different_pages_are_one_group() -> None:
    groups = ErrorGroups()
    for number in range(3):
        message = f"Spider error processing <GET http://shop.example/{number}> (referer: None)"
        groups.add(records_of(said(message, level="ERROR", at=AT + number, exception=f"T\nKeyError: 'price{number}'")))
    other = "Spider error processing <GET http://shop.example/9> (referer: None)"
    groups.add(records_of(said(other, level="ERROR", exception="T\nValueError: 7 of 9") + said("fine") + b"printed\n"))
    first, second = groups.all
    assert (first.count, first.first_at, first.last_at) == (3, AT, AT + 2)
    assert first.message == "Spider error processing <GET <url>> (referer: None) | KeyError: '…'"
    assert "http://shop.example/0" in first.example
    assert "KeyError: 'price0'" in first.example
    assert (second.count, second.message.rpartition("|")[2]) == (1, " ValueError: # of #")


def test_masking_leaves_out_what_differs() -> None:
    text = "took 1.5 s at 0x7f00 for \"a\" and 'b' of https://x.example/a?b=1 in h2"
    assert masked(LogRecord(message=text)) == "took # s at # for '…' and '…' of <url> in h2"


def test_an_example_of_an_error_is_no_longer_than_people_read() -> None:
    groups = ErrorGroups()
    groups.add([LogRecord(message="line\n" * 100_000, level="ERROR", logger="l" * 100_000)])
    [group] = groups.all
    assert (len(group.example), len(group.logger)) == (20_000, 500)
