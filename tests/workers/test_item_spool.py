"""What a process yields, read from its disk: each line once, whatever is cut, deleted or stored before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.workers import item_delivery
from weft.workers.item_delivery import ItemSpool, SpooledItems


def segment(folder: Path, first: int, text: str) -> Path:
    path = folder / "items" / f"{first:012d}.jl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def drained(spool: ItemSpool) -> list[SpooledItems]:
    batches = []
    while (batch := spool.batch()) is not None:
        batches.append(batch)
        spool.stored(batch, batch.first + batch.count)
    return batches


def test_a_folder_without_items_has_no_batch(tmp_path: Path) -> None:
    assert ItemSpool(tmp_path).batch() is None


def test_a_line_that_is_not_whole_yet_waits(tmp_path: Path) -> None:
    path = segment(tmp_path, 1, "1\n2\n3")
    spool = ItemSpool(tmp_path)
    assert drained(spool) == [SpooledItems(1, 2, b"1\n2\n")]
    path.write_text("1\n2\n3\n")
    assert drained(spool) == [SpooledItems(3, 1, b"3\n")]


def test_a_batch_is_the_same_until_it_is_stored(tmp_path: Path) -> None:
    segment(tmp_path, 1, "1\n2\n")
    spool = ItemSpool(tmp_path)
    assert spool.batch() == spool.batch() == SpooledItems(1, 2, b"1\n2\n")


def test_a_segment_is_deleted_once_it_is_stored_and_another_has_begun(tmp_path: Path) -> None:
    first, second = segment(tmp_path, 1, "1\n2\n"), segment(tmp_path, 3, "3\n")
    spool = ItemSpool(tmp_path)
    assert drained(spool) == [SpooledItems(1, 2, b"1\n2\n"), SpooledItems(3, 1, b"3\n")]
    assert not first.exists()
    assert second.exists()


def test_what_another_worker_has_stored_is_passed_over(tmp_path: Path) -> None:
    """It died before it could delete the segment; the store knows how far it came."""
    segment(tmp_path, 11, "11\n12\n13\n14\n")
    spool = ItemSpool(tmp_path)
    batch = spool.batch()
    assert batch == SpooledItems(11, 4, b"11\n12\n13\n14\n")
    spool.stored(batch, 13)
    assert spool.batch() == SpooledItems(13, 2, b"13\n14\n")


def test_a_segment_that_was_stored_whole_is_passed_over(tmp_path: Path) -> None:
    segment(tmp_path, 1, "1\n2\n")
    segment(tmp_path, 3, "3\n")
    spool = ItemSpool(tmp_path)
    batch = spool.batch()
    assert batch is not None
    spool.stored(batch, 3)
    assert spool.batch() == SpooledItems(3, 1, b"3\n")


def test_an_item_that_is_larger_than_a_batch_is_offered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_delivery, "MOST_BYTES", 10)
    segment(tmp_path, 1, "a" * 35 + "\n" + "b\n")
    batches = drained(ItemSpool(tmp_path))
    assert batches[0].lines.startswith(b"a" * 35 + b"\n")
    assert sum(batch.count for batch in batches) == 2


def test_statistics_are_told_once_for_each_time_that_they_change(tmp_path: Path) -> None:
    spool = ItemSpool(tmp_path)
    assert spool.new_stats() is None
    (tmp_path / "stats.json").write_text('{"stats": {"item_scraped_count": 3}, "memory_bytes": 9, "at": 1}')
    assert spool.new_stats() == {"item_scraped_count": 3, "weft/memory_bytes": 9}
    assert spool.new_stats() is None


def test_statistics_that_are_no_json_are_none(tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text("[1")
    assert ItemSpool(tmp_path).new_stats() is None


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 4), st.data())
def test_every_item_is_offered_once_whatever_the_store_had_before(
    tmp_path_factory: pytest.TempPathFactory, segments: list[int], most: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    total, first = sum(segments), 1
    for count in segments:
        segment(folder, first, "".join(f"{number}\n" for number in range(first, first + count)))
        first += count
    stored = data.draw(st.integers(0, total))
    numbers = list(range(1, stored + 1))
    spool = ItemSpool(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_delivery, "MOST_ITEMS", most)
        while (batch := spool.batch()) is not None:
            offered = [int(line) for line in batch.lines.split()]
            numbers += [number for number in offered if number == len(numbers) + 1 or number > len(numbers)]
            spool.stored(batch, len(numbers) + 1)
    assert numbers == list(range(1, total + 1))


def test_what_is_written_while_the_next_segment_is_looked_for_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(tmp_path, 1, "1\n")
    spool = ItemSpool(tmp_path)
    assert len(drained(spool)) == 1
    listdir = os.listdir

    def written_meanwhile(folder: int) -> list[str]:
        segment(tmp_path, 1, "1\n2\n")
        segment(tmp_path, 3, "3\n")
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", written_meanwhile)
    assert [batch.lines for batch in drained(spool)] == [b"2\n", b"3\n"]


def test_a_file_that_is_no_segment_is_passed_over(tmp_path: Path) -> None:
    segment(tmp_path, 1, "1\n")
    (tmp_path / "items" / "mine.jl").write_text("x\n")
    (tmp_path / "items" / "-3.jl").write_text("x\n")
    assert drained(ItemSpool(tmp_path)) == [SpooledItems(1, 1, b"1\n")]


def test_a_segment_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    other = segment(made(tmp_path / "other"), 1, "secret\n")
    (made(tmp_path / "run") / "items").mkdir()
    (tmp_path / "run" / "items" / "000000000001.jl").symlink_to(other)
    assert drained(ItemSpool(tmp_path / "run")) == []


def test_items_of_another_run_are_neither_read_nor_deleted_through_a_link(tmp_path: Path) -> None:
    first = segment(made(tmp_path / "other"), 1, "1\n")
    segment(tmp_path / "other", 2, "2\n")
    (made(tmp_path / "run") / "items").symlink_to(tmp_path / "other" / "items")
    assert drained(ItemSpool(tmp_path / "run")) == []
    assert first.exists()


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    os.mkfifo(tmp_path / "items" / "000000000001.jl")
    os.mkfifo(tmp_path / "stats.json")
    spool = ItemSpool(tmp_path)
    assert drained(spool) == []
    assert spool.new_stats() is None


def test_statistics_that_are_nested_without_end_or_too_long_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stats.json").write_text("[" * 200_000)
    assert ItemSpool(tmp_path).new_stats() is None
    (tmp_path / "stats.json").write_text('{"stats": {"page": "' + "x" * 100 + '"}}')
    monkeypatch.setattr(item_delivery, "LARGEST_STATS", 100)
    assert ItemSpool(tmp_path).new_stats() is None


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
