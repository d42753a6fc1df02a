"""A log as text, however its bytes come, and how to begin in its midst."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.scrapyd.performing import AT, said
from weft.logs.storage import StoredLog
from weft.scrapyd_http.files import ByteRange, LengthCache, bytes_between
from weft.scrapyd_http.logs import LONGEST_LINE, AttemptLog, JobLog, LogFormatter, local_second, record_text

SEGMENT = 100_000


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        local_second.cache_clear()
        yield
    time.tzset()
    local_second.cache_clear()


def text_of(data: bytes, size: int) -> bytes:
    """The text of bytes that come in pieces of this size."""
    lines = LogFormatter()
    return b"".join([*(lines.feed(data[at : at + size]) for at in range(0, len(data), size)), lines.end()])


def file_of(data: bytes, read: list[int]) -> JobLog:
    """A kept log, which notes the segments of it that are read."""
    cuts = [data[at : at + SEGMENT] for at in range(0, len(data), SEGMENT)]

    async def segment(number: int) -> bytes:
        read.append(number)
        return cuts[number]

    async def opened() -> StoredLog:
        return StoredLog([len(cut) for cut in cuts], segment)

    return JobLog([AttemptLog(opened, is_live=False)])


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_text_is_the_same_wherever_its_bytes_are_cut(size: int) -> None:
    log = said("één\nzwei") + b"\r\n\nprinted" + said("x", exception="a\nb") + b"\x1e\x1e{\n" + b"\xff\x00\n" + b"end"
    assert text_of(log, size) == text_of(log, len(log))


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    lines, told, piece = LogFormatter(), 0, b"x" * 1_000_000
    for _ in range(20):
        told += len(lines.feed(piece))
    assert told >= 20_000_000 - LONGEST_LINE - len(piece)
    assert lines.held is None
    assert lines.feed(b"y\n" + said("after")).endswith(b"after\n")
    assert lines.held == 0


@pytest.mark.usefixtures("in_tokyo")
def test_times_are_those_of_this_place() -> None:
    assert record_text(said("hello")[1:-1]) == b"2026-11-16 10:02:03 [shop] INFO: hello"


@pytest.mark.parametrize(
    "part", [b"", b"{", b"[]", b"no JSON", b'{"at": "soon"}', b'{"at": 1e99, "level": "INFO"}', b'{"message": 1}']
)
def test_what_is_no_record_stays_as_it_is(part: bytes) -> None:
    assert record_text(part) == part


@pytest.mark.parametrize("at", [-1, 2**62])
def test_a_record_of_no_time_is_told_somehow(at: int) -> None:
    assert b"hello" in record_text(said("hello", at=at)[1:-1])


async def test_the_end_of_a_measured_log_is_read_alone() -> None:
    log = b"".join(said(f"line {number}", at=AT + number) for number in range(20_000))
    read: list[int] = []
    file, lengths = file_of(log, read), LengthCache()
    measured = await lengths.of("log", file)
    assert measured.size == len(text_of(log, len(log)))
    segments = len(set(read))
    read.clear()
    told = [part async for part in bytes_between(file, measured, measured.size - 11, measured.size)]
    assert b"".join(told) == b"line 19999\n"
    assert len(read) < segments / 2
    read.clear()
    assert await lengths.of("log", file) is measured
    assert read == []


async def test_every_range_of_a_measured_log_is_that_of_its_text() -> None:
    log = b"".join(said(f"line {number}", at=AT + number) for number in range(9_000))
    text, file = text_of(log, len(log)), file_of(log, [])
    measured = await LengthCache().of(None, file)
    for first in range(0, len(text), 77_777):
        for length in (1, 100_000, len(text)):
            end = min(first + length, len(text))
            assert b"".join([part async for part in bytes_between(file, measured, first, end)]) == text[first:end]


def test_a_range_is_within_the_file() -> None:
    assert ByteRange(0, None).within(0) is None
    assert ByteRange(None, 5).within(3) == (0, 3)
    assert ByteRange(2, 2).within(3) == (2, 3)
    assert ByteRange(3, None).within(3) is None
