"""Exchanges as a server would have answered them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from weft.crawler.cdxj import RecordLocation, location_of
from weft.crawler.warc import WarcWriter
from weft.fetching.model import Exchange
from weft.ports import Blobs
from weft.workers.warc_delivery import deliver_all

BEGAN_AT = 1_763_290_000_123_456


async def keep_pages(blobs: Blobs, crawl: int, folder: Path) -> None:
    """The pages of two runs of one crawl."""
    for run_id, pages in ((7, ("/b", "/d", "/b")), (8, ("/a", "/c", "/b"))):
        own = folder / f"{run_id}-1"
        own.mkdir()
        writer = WarcWriter(own, 1_000_000)
        writer.crawl = crawl
        for page in pages:
            writer.write(exchange(f"page {page} of {run_id}", f"http://site.example{page}"))
        writer.close()
        assert await deliver_all(blobs, run_id, 1, own) == ""


def check_fits(index: bytes, files: dict[str, bytes], count: int) -> None:
    """Each line is in order and leads to the record of its address, in the file that it names."""
    lines = index.splitlines()
    assert (len(lines), lines) == (count, sorted(lines))
    for place in map(location_of, lines):
        assert _target(files[place.filename], place) == (place.url, place.digest)


def _target(data: bytes, place: RecordLocation) -> tuple[str, str]:
    start = int(place.offset)
    [record] = ArchiveIterator(io.BytesIO(data[start : start + int(place.length)]))
    assert record.rec_type in ("response", "revisit")
    return record.rec_headers["WARC-Target-URI"], record.rec_headers["WARC-Payload-Digest"]


def exchange(
    body: bytes | str = b"",
    url: str = "http://site.example/",
    *,
    content_type: str = "text/html; charset=utf-8",
    status: int = 200,
    packed: bool = False,
    chunked: bool = False,
    headers: tuple[tuple[str, str], ...] = (),
    began_at: int = BEGAN_AT,
) -> Exchange:
    body = body.encode() if isinstance(body, str) else body
    raw = gzip.compress(body, mtime=0) if packed else body
    told = [("Content-Type", content_type)] if content_type else []
    told += [("Content-Encoding", "gzip")] if packed else []
    told += [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(raw))), *headers]
    head = f"HTTP/1.1 {status} So\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told) + "\r\n"
    return Exchange(
        url=url,
        status=status,
        head=head.encode("latin-1"),
        headers=[(name.lower().encode(), value.encode("latin-1")) for name, value in told],
        raw_body=raw,
        body=body,
        request=b"GET / HTTP/1.1\r\nHost: site.example\r\nUser-Agent: weft\r\n\r\n",
        address="192.0.2.7",
        http="1.1",
        began_at=began_at,
        seconds=0.1,
    )
