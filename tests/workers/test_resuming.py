"""The place of a crawl that was interrupted: kept when the spider has closed, and never more than that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.waiting import eventually
from weft.adapters.blobs.files import FileBlobs
from weft.workers import jobdir


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(f"file:{tmp_path}/blobs")


def crawled(folder: Path, queue: str = "page 2", *, closed: bool = True) -> Path:
    (folder / "jobdir" / "requests.queue").mkdir(parents=True)
    (folder / "jobdir" / "requests.queue" / "0").write_text(queue)
    if closed:
        (folder / "end.json").write_text('{"reason": "shutdown"}')
    return folder


async def restored(blobs: FileBlobs, folder: Path) -> list[tuple[str, str]]:
    folder.mkdir()
    await jobdir.restore(blobs, 7, folder)
    place = folder / "jobdir"
    return [(str(each.relative_to(place)), each.read_text()) for each in sorted(place.rglob("*")) if each.is_file()]


async def test_a_crawl_goes_on_where_it_has_closed(tmp_path: Path, blobs: FileBlobs) -> None:
    assert await jobdir.keep(blobs, 7, crawled(tmp_path / "7-1")) == ""
    assert await restored(blobs, tmp_path / "7-2") == [("requests.queue/0", "page 2")]


async def test_a_spider_that_was_killed_does_not_spoil_the_place_of_an_earlier_attempt(
    tmp_path: Path, blobs: FileBlobs
) -> None:
    await jobdir.keep(blobs, 7, crawled(tmp_path / "7-1"))
    assert "before it had closed" in await jobdir.keep(blobs, 7, crawled(tmp_path / "7-2", "half", closed=False))
    assert await restored(blobs, tmp_path / "7-3") == [("requests.queue/0", "page 2")]


async def test_a_spider_that_had_not_begun_does_not_spoil_it_either(tmp_path: Path, blobs: FileBlobs) -> None:
    await jobdir.keep(blobs, 7, crawled(tmp_path / "7-1"))
    (tmp_path / "7-2").mkdir()
    await jobdir.keep(blobs, 7, tmp_path / "7-2")
    assert await restored(blobs, tmp_path / "7-3") == [("requests.queue/0", "page 2")]


async def test_a_place_that_is_a_link_carries_nothing_away(tmp_path: Path, blobs: FileBlobs) -> None:
    folder = crawled(tmp_path / "7-1")
    (folder / "jobdir").rename(tmp_path / "not-its-own")
    (folder / "jobdir").symlink_to(tmp_path / "not-its-own")
    assert "is a link" in await jobdir.keep(blobs, 7, folder)
    assert await restored(blobs, tmp_path / "7-2") == []


async def test_keeping_a_place_writes_through_no_link(tmp_path: Path, blobs: FileBlobs) -> None:
    folder = crawled(tmp_path / "7-1")
    (tmp_path / "precious").write_text("stays")
    (folder / "place.tar.gz").symlink_to(tmp_path / "precious")
    assert await jobdir.keep(blobs, 7, folder) == ""
    assert (tmp_path / "precious").read_text() == "stays"


async def test_a_restoration_that_is_cancelled_writes_nothing_afterwards(tmp_path: Path, blobs: FileBlobs) -> None:
    folder = crawled(tmp_path / "7-1")
    for number in range(2000):
        (folder / "jobdir" / f"{number}.marker").write_text("x")
    await jobdir.keep(blobs, 7, folder)
    target = tmp_path / "7-2"
    target.mkdir()
    restoring = asyncio.create_task(jobdir.restore(blobs, 7, target))
    await eventually(lambda: any(target.iterdir()))
    restoring.cancel()
    await asyncio.wait({restoring})
    assert not [each for each in target.iterdir() if each.name != "jobdir"]
