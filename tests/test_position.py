"""A position misses no event and gives none twice, in whatever order transactions commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.cursor import MOST_GAPS, OLD, WAIT, Cursor, Gap
from weft.errors import Invalid

NOW = 1_780_315_200_000_000

Step = tuple[str, int]

STEPS = st.lists(st.tuples(st.sampled_from(["reserve", "commit", "roll back", "read", "resume"]), st.integers(0, 9)))


class Table:
    """Events whose ids are reserved in order and become visible in any."""

    def __init__(self) -> None:
        self.last, self.open, self.visible = 0, list[list[int]](), set[int]()

    def reserve(self, count: int) -> None:
        self.open.append(list(range(self.last + 1, self.last + count + 2)))
        self.last += count + 1

    def end(self, which: int, *, committed: bool) -> None:
        if self.open:
            ids = self.open.pop(which % len(self.open))
            self.visible |= set(ids if committed else ())

    def beyond(self, position: Cursor, limit: int) -> list[int]:
        wanted = [range(first, last + 1) for first, last in position.missing]
        found = sorted(i for i in self.visible if i > position.high or any(i in each for each in wanted))
        return found[:limit]


class Reader:
    """Keeps what it was given, and its place as text, as a client does."""

    def __init__(self) -> None:
        self.position, self.got, self.place = Cursor(), list[int](), "0"

    def read(self, table: Table, limit: int) -> None:
        for event_id in table.beyond(self.position, limit):
            assert self.position.take(event_id, NOW, NOW)
            self.got.append(event_id)
            self.place = str(self.position)

    def resume(self) -> None:
        self.position = Cursor.parse(self.place, NOW)


@given(STEPS)
def test_every_event_is_read_exactly_once_however_commits_and_reads_interleave(steps: list[Step]) -> None:
    table, reader = Table(), Reader()
    for step, number in steps:
        if step == "reserve":
            table.reserve(number)
        elif step == "read":
            reader.read(table, number + 1)
        elif step == "resume":
            reader.resume()
        else:
            table.end(number, committed=step == "commit")
    reader.read(table, 10_000)
    assert sorted(reader.got) == sorted(table.visible)


@given(STEPS, STEPS)
def test_a_reader_that_joins_a_tail_gets_the_rest_from_it(before: list[Step], after: list[Step]) -> None:
    table, reader, tail = Table(), Reader(), Reader()
    for step, number in before:
        if step == "reserve":
            table.reserve(number)
        elif step == "read":
            (reader if number % 2 else tail).read(table, 10_000)
        else:
            table.end(number, committed=step == "commit")
    heard = len(tail.got)
    joined = tail.position.copy()
    reader.read(table, 10_000)
    reader.position.join(joined)
    for step, number in after:
        if step == "reserve":
            table.reserve(number)
        elif step != "read":
            table.end(number, committed=step == "commit")
        tail.read(table, 10_000)
    tail.read(table, 10_000)
    reader.got += [event_id for event_id in tail.got[heard:] if reader.position.take(event_id, NOW, NOW)]
    assert sorted(reader.got) == sorted(table.visible)
    assert str(reader.position) == str(tail.position)


def test_a_missing_id_is_given_up_after_a_minute() -> None:
    position = Cursor(10)
    position.take(13, NOW, NOW)
    position.give_up(NOW + WAIT - 1)
    assert position.missing == [(11, 12)]
    position.give_up(NOW + WAIT)
    assert position.missing == []
    assert not position.take(12, NOW, NOW + WAIT)


def test_nothing_is_missing_before_an_old_event() -> None:
    position = Cursor(10)
    position.take(13, NOW - OLD, NOW)
    assert str(position) == "13"


def test_a_position_stays_small() -> None:
    position = Cursor()
    for number in range(MOST_GAPS + 5):
        position.take(2 * number + 2, NOW, NOW)
    assert len(position.missing) == MOST_GAPS
    assert position.missing[-1] == (2 * MOST_GAPS + 9, 2 * MOST_GAPS + 9)


def test_a_position_reads_as_text() -> None:
    text = "1042~1030,1035-1039"
    assert str(Cursor.parse(text, NOW)) == text
    assert str(Cursor(7, [Gap(3, 3, NOW), Gap(5, 6, NOW)])) == "7~3,5-6"


@for_each("text", ["", "x", "-1", "7~", "7~8", "7~7", "7~5-4", "7~5,5", "7~5,4", "7~0", "9" * 20, "7 ", "٧", "7~1,2-"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="Last-Event-ID"):
        Cursor.parse(text, NOW)
