"""WARC files: what other tools read in them, and what is left of them after a crash."""

from __future__ import annotations

import base64
import gzip
import hashlib
import warnings
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from tests.crawls.exchanges import BEGAN_AT, exchange
from weft.crawler.cdxj import locations_of, merge_indexes, surt
from weft.crawler.warc import WarcWriter, repair_all
from weft.fetching.model import Exchange

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it warns of parts of itself
    from fastwarc.warc import ArchiveIterator as FastIterator
    from fastwarc.warc import WarcRecordType

LARGEST = 10_000_000
TEXT = b"<html><body>" + b"a page that says something, " * 2_000


def a_writer(tmp_path: Path, largest: int = LARGEST) -> WarcWriter:
    folder = tmp_path / "34-2"
    folder.mkdir(exist_ok=True)
    writer = WarcWriter(folder, largest)
    writer.crawl = 7
    return writer


def written(tmp_path: Path, exchanges: list[Exchange], largest: int = LARGEST) -> list[Path]:
    writer = a_writer(tmp_path, largest)
    for each in exchanges:
        writer.write(each)
    writer.close()
    return sorted((tmp_path / "34-2" / "warc" / "7").glob("*.warc.gz"))


def records(file: Path) -> list[dict[str, Any]]:
    """As warcio reads them, each checked against its digests."""
    found = []
    with open(file, "rb") as opened:
        for record in ArchiveIterator(opened, check_digests="raise"):
            headers = {name.lower(): value for name, value in record.rec_headers.headers}
            found.append({"type": record.rec_type, "headers": headers, "body": record.content_stream().read()})
    return found


def index(file: Path) -> list[dict[str, str]]:
    lines = file.with_name(file.name.replace(".warc.gz", ".cdxj")).read_bytes().splitlines()
    assert lines == sorted(lines)
    return [msgspec.json.decode(line.split(b" ", 2)[2]) for line in lines]


MANY = [
    exchange(TEXT + b"1", "http://site.example/plain"),
    exchange(TEXT + b"2", "http://site.example/packed", packed=True),
    exchange(TEXT + b"3", "http://site.example/chunked", chunked=True),
    exchange(TEXT + b"4", "http://site.example/both", packed=True, chunked=True),
    exchange(bytes(range(256)) * 1_000, "http://site.example/image", content_type="image/png"),
    exchange(b"", "http://site.example/moved", status=301, headers=(("Location", "/plain"),)),
    exchange(b"", "http://site.example/moved", status=301, chunked=True),
]


def test_another_tool_reads_every_body_and_agrees_with_every_digest(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY)
    found = records(file)
    assert [each["body"] for each in found if each["type"] == "response"] == [each.body for each in MANY]
    assert Counter(each["type"] for each in found) == {"warcinfo": 1, "response": len(MANY), "request": len(MANY)}


def test_a_second_tool_reads_the_same(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY)
    with open(file, "rb") as opened:
        found = [
            (record.headers["WARC-Target-URI"], record.reader.read())
            for record in FastIterator(opened, record_types=WarcRecordType.response, auto_decode="all")
        ]
    assert found == [(each.url, each.body) for each in MANY]


def test_digests_are_checked_by_these_tests(tmp_path: Path) -> None:
    (file,) = written(tmp_path, [exchange(b"\x89PNG and so on", content_type="image/png")])
    whole, crc = file.read_bytes(), zlib.crc32
    start = whole.index(b"\x1f\x8b", whole.index(b"\x1f\x8b") + 2)
    record = gzip.decompress(whole[start : start + int(index(file)[0]["length"])])
    changed = record.replace(b"PNG", b"JPG")
    wrong = whole.replace(b"PNG", b"JPG").replace(crc(record).to_bytes(4, "little"), crc(changed).to_bytes(4, "little"))
    file.write_bytes(wrong)
    with pytest.raises(ArchiveLoadFailed, match="digest"):
        records(file)


def test_what_was_sent_and_what_the_head_said_are_kept_to_the_byte(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY[:2])
    whole = gzip.decompress(file.read_bytes())
    for each in MANY[:2]:
        assert each.request in whole
        assert each.head + each.raw_body in whole


def test_a_body_that_came_in_chunks_is_kept_without_them_and_says_so(tmp_path: Path) -> None:
    (file,) = written(tmp_path, [MANY[3]])
    whole = gzip.decompress(file.read_bytes())
    assert b"\r\nX-Crawler-Transfer-Encoding: chunked\r\n\r\n" + MANY[3].raw_body in whole
    assert b"\nTransfer-Encoding" not in whole


def test_a_record_says_when_and_whom_it_was_asked_of(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY[:1])
    told = next(each for each in records(file) if each["type"] == "response")["headers"]
    assert (told["warc-date"], told["warc-ip-address"]) == ("2025-11-16T10:46:40.123456Z", "192.0.2.7")
    assert told["warc-target-uri"] == "http://site.example/plain"


def test_a_body_that_came_packed_is_not_packed_again(tmp_path: Path) -> None:
    (file,) = written(tmp_path, [MANY[1]])
    assert MANY[1].raw_body in file.read_bytes()


def test_the_same_payload_is_written_once_and_then_referred_to(tmp_path: Path) -> None:
    again = exchange(TEXT + b"1", "http://site.example/again", began_at=BEGAN_AT + 1_000_000)
    (file,) = written(tmp_path, [MANY[0], again])
    (revisit,) = [each for each in records(file) if each["type"] == "revisit"]
    told = revisit["headers"]
    assert told["warc-profile"].endswith("/identical-payload-digest")
    assert (told["warc-target-uri"], told["warc-refers-to-target-uri"]) == (again.url, MANY[0].url)
    assert revisit["body"] == b""


def test_a_page_that_has_not_changed_is_a_revisit(tmp_path: Path) -> None:
    (file,) = written(tmp_path, [exchange(b"", "http://site.example/same", status=304)])
    (revisit,) = [each for each in records(file) if each["type"] == "revisit"]
    assert revisit["headers"]["warc-profile"].endswith("/server-not-modified")


def test_a_file_ends_where_it_is_large_enough_and_the_next_begins(tmp_path: Path) -> None:
    pages = [
        exchange(bytes(str(n), "ascii") * 300_000, f"http://site.example/{n}", content_type="image/png")
        for n in range(9)
    ]
    files = written(tmp_path, pages, largest=1_000_000)
    assert [file.name for file in files] == [
        "weft-7-34-2-00000.warc.gz",
        "weft-7-34-2-00001.warc.gz",
        "weft-7-34-2-00002.warc.gz",
    ]
    assert [records(file)[0]["type"] for file in files] == ["warcinfo"] * 3
    assert sorted(place["url"] for file in files for place in index(file)) == sorted(each.url for each in pages)


def test_the_index_leads_to_the_record(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY)
    for place in index(file):
        start, length = int(place["offset"]), int(place["length"])
        record = gzip.decompress(file.read_bytes()[start : start + length])
        assert record.startswith(b"WARC/1.1\r\n")
        assert f"WARC-Target-URI: {place['url']}\r\n".encode() in record
        assert (place["filename"], place["digest"][:5]) == (file.name, "sha1:")


def test_an_address_is_found_in_an_index(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY)
    lines = file.with_name("weft-7-34-2-00000.cdxj").read_bytes()
    assert [place.status for place in locations_of(lines, "http://site.example/moved")] == ["301", "301"]
    assert locations_of(lines, "http://site.example/mov") == []


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://www.Site.example/A?b=C", "example,site)/a?b=c"),
        ("http://a.b.example:8080/", "example,b,a:8080)/"),
        ("http://127.0.0.1:8000/x", "127.0.0.1:8000)/x"),
        ("http://[::1]:8000/x", "[::1]:8000)/x"),
    ],
)
def test_addresses_of_one_host_stand_together_in_an_index(url: str, key: str) -> None:
    assert surt(url) == key


async def test_indexes_are_merged_in_order() -> None:
    async def index(*pieces: list[bytes]) -> AsyncIterator[list[bytes]]:
        for piece in pieces:
            yield piece

    indexes = [index([b"a 1\n"], [b"c 1\n", b"e 1\n"]), index(), index([b"b 1\n", b"d 1\n"], [])]
    lines = [line async for line in merge_indexes(indexes)]
    assert lines == [b"a 1\n", b"b 1\n", b"c 1\n", b"d 1\n", b"e 1\n"]


@pytest.mark.parametrize("lost", [1, 500, 3_000])
def test_what_a_dead_process_left_is_cut_after_the_last_whole_record(tmp_path: Path, lost: int) -> None:
    writer = a_writer(tmp_path)
    for each in MANY:
        writer.write(each)
    (left,) = (tmp_path / "34-2" / "warc" / "7").glob("*.open")
    cut = left.read_bytes()[:-lost]
    left.write_bytes(cut)
    assert repair_all(tmp_path / "34-2") == 1
    (file,) = (tmp_path / "34-2" / "warc" / "7").glob("*.warc.gz")
    assert cut.startswith(file.read_bytes())
    found = [each for each in records(file) if each["type"] == "response"]
    assert [each["body"] for each in found] == [each.body for each in MANY[: len(found)]]
    assert len(found) >= len(MANY) - 3
    assert sorted(place["url"] for place in index(file)) == sorted(each["headers"]["warc-target-uri"] for each in found)


def test_mending_finds_what_the_writer_knew(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MANY)
    known = index(file)
    file.rename(file.with_name(file.name + ".open"))
    repair_all(tmp_path / "34-2")
    assert index(file) == known


def test_a_file_without_a_whole_record_is_gone_after_mending(tmp_path: Path) -> None:
    place = tmp_path / "34-2" / "warc" / "7"
    place.mkdir(parents=True)
    (place / "weft-7-34-2-00000.warc.gz.open").write_bytes(gzip.compress(b"WARC/1.1")[:-3])
    repair_all(tmp_path / "34-2")
    assert list(place.iterdir()) == []


def test_a_payload_digest_is_that_of_the_body_as_it_stands_there(tmp_path: Path) -> None:
    (file,) = written(tmp_path, [MANY[1]])
    told = next(each for each in records(file) if each["type"] == "response")["headers"]["warc-payload-digest"]

    assert told == "sha1:" + base64.b32encode(hashlib.sha1(MANY[1].raw_body).digest()).decode()  # noqa: S324


def test_no_login_and_no_cookie_is_kept_in_a_file_that_others_get(tmp_path: Path) -> None:
    asked = (
        b"GET /token:1?cookie=a:b HTTP/1.1\r\nhost: site.example\r\nauthorization: Basic aGlkZGVu\r\naccept: */*\r\n"
        b"X-Shop-Token: hidden\r\ncookie: session=hidden\r\nproxy-authorization: Basic aGlkZGVu\r\n\r\n"
    )
    [file] = written(tmp_path, [replace(exchange(TEXT), request=asked)])
    kept = gzip.decompress(file.read_bytes())
    assert b"\r\n\r\nGET /token:1?cookie=a:b HTTP/1.1\r\nhost: site.example\r\naccept: */*\r\n\r\n" in kept
    assert b"hidden" not in kept
    assert b"aGlkZGVu" not in kept


def test_a_file_ends_where_its_index_would_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.crawler.warc.MOST_RECORDS", 3)
    files = written(tmp_path, [exchange(f"page {number}") for number in range(8)])
    assert [len(index(file)) for file in files] == [3, 3, 2]
