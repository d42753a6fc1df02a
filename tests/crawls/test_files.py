"""The files of raw exchanges that are kept of a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crawls.exchanges import check_fits, keep_pages
from tests.servers import s3
from weft.adapters.registry import open_blobs
from weft.crawler.cdxj import locations_of, relocated
from weft.crawls import files
from weft.crawls.files import LEAST_OF_INDEX, CrawlFiles
from weft.errors import NotFound


@pytest.fixture(params=["file", "s3"])
async def kept(tmp_path: Path, request: pytest.FixtureRequest) -> CrawlFiles:
    """The pages of two runs of one crawl."""
    if request.param == "file":
        blobs = open_blobs(f"file:{tmp_path}/blobs")
    else:
        server = request.getfixturevalue("s3_server")
        blobs = open_blobs(s3.bucket_url(server, s3.new_bucket(server), "some/prefix"))
    await keep_pages(blobs, 5, tmp_path)
    return CrawlFiles(blobs)


@pytest.fixture(params=[LEAST_OF_INDEX, 100], ids=["whole", "piece by piece"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_OF_INDEX", request.param)
    monkeypatch.setattr(files, "INDEXES_AT_ONCE", 2 * request.param)


async def index_of(kept: CrawlFiles, joined_as: str = "") -> bytes:
    return b"".join([piece async for piece in kept.index(5, joined_as)])


async def test_the_index_of_a_crawl_is_that_of_all_its_files_in_order(kept: CrawlFiles, pieces: None) -> None:
    index = await index_of(kept)
    assert [line.split(b" ")[0][-1:] for line in index.splitlines()] == [b"a", b"b", b"b", b"b", b"c", b"d"]
    (place,) = locations_of(index, "http://site.example/c")
    assert place.filename == "weft-5-8-1-00000.warc.gz"
    check_fits(index, {each.name: await kept.get(5, each.name) for each in await kept.all(5)}, 6)


async def test_the_index_of_all_files_as_one_fits_that_one(kept: CrawlFiles, pieces: None) -> None:
    listed = await kept.all(5)
    whole = b"".join([await kept.get(5, each.name) for each in listed])
    assert sum(each.size for each in listed) == len(whole)
    check_fits(await index_of(kept, "site.warc.gz"), {"site.warc.gz": whole}, 6)


@pytest.mark.parametrize("line", [b"", b"a", b"a 1 {}", b"a 1 {", b'a 1 {"offset":"x"}'])
def test_a_line_that_leads_nowhere_is_left_out(line: bytes) -> None:
    assert relocated(line, "site.warc.gz", 7) == b""


async def test_a_file_without_an_index_moves_those_after_it(kept: CrawlFiles) -> None:
    await kept._blobs.delete("crawls/5/warc/weft-5-7-1-00000.cdxj")
    listed = await kept.all(5)
    assert [each.has_index for each in listed] == [False, True]
    whole = b"".join([await kept.get(5, each.name) for each in listed])
    check_fits(await index_of(kept, "site.warc.gz"), {"site.warc.gz": whole}, 3)


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
