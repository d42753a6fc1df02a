"""The files of raw exchanges that are kept of a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crawls.exchanges import exchange
from weft.adapters.blobs.files import FileBlobs
from weft.crawls import files
from weft.crawls.cdxj import places_of
from weft.crawls.files import CrawlFiles
from weft.crawls.warc import WarcWriter
from weft.errors import NotFound
from weft.workers.file_delivery import deliver_all


@pytest.fixture
async def kept(tmp_path: Path) -> CrawlFiles:
    """The pages of two runs of one crawl."""
    blobs = FileBlobs(f"file:{tmp_path}/blobs")
    for run_id, pages in ((7, ("/b", "/d")), (8, ("/a", "/c"))):
        folder = tmp_path / f"{run_id}-1"
        folder.mkdir()
        writer = WarcWriter(folder, 1_000_000)
        writer.crawl = 5
        for page in pages:
            writer.write(exchange(f"page {page}", f"http://site.example{page}"))
        writer.close()
        assert await deliver_all(blobs, run_id, 1, folder) == ""
    return CrawlFiles(blobs)


async def test_the_index_of_a_crawl_is_that_of_all_its_files_in_order(kept: CrawlFiles) -> None:
    index = await kept.index(5)
    assert [line.split(b" ")[0] for line in index.splitlines()] == [
        *(b"example,site)/a", b"example,site)/b", b"example,site)/c", b"example,site)/d")
    ]
    (place,) = places_of(index, "http://site.example/c")
    assert place.filename == "weft-5-8-1-00000.warc.gz"


async def test_a_file_is_given_piece_by_piece(kept: CrawlFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART", 100)
    (name, _) = [each.name for each in await kept.all(5)]
    whole, parts = await kept.get(5, name), [part async for part in kept.parts(5, name)]
    assert b"".join(parts) == whole
    assert {len(part) for part in parts[:-1]} == {100}


async def test_a_crawl_that_is_forgotten_leaves_no_files(kept: CrawlFiles) -> None:
    await kept.forget(5)
    assert await kept.all(5) == []


@pytest.mark.parametrize("name", ["nothing.warc.gz", "../warc/weft-5-7-1-00000.warc.gz", "weft-5-7-1-00000"])
async def test_what_is_no_file_of_the_crawl_is_not_found(kept: CrawlFiles, name: str) -> None:
    with pytest.raises(NotFound):
        await anext(kept.parts(5, name))
    with pytest.raises(NotFound):
        await kept.get(5, name)
