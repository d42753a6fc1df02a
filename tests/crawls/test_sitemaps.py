"""The addresses that a sitemap lists."""

import gzip

import pytest

from weft.crawler.sitemaps import LARGEST, MOST, SitemapEntry, SitemapListing, read

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
PLAIN = f"""<?xml version="1.0" encoding="UTF-8"?>
<urlset {NAMESPACE} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc> http://site.example/a?x=1&amp;y=2 </loc><lastmod>2026-01-02</lastmod>
<image:image><image:loc>http://site.example/i.png</image:loc></image:image></url>
<url><loc>http://site.example/b</loc></url></urlset>""".encode()
ENTRIES = [SitemapEntry("http://site.example/a?x=1&y=2", "2026-01-02"), SitemapEntry("http://site.example/b")]


@pytest.mark.parametrize("body", [PLAIN, gzip.compress(PLAIN), b"\xef\xbb\xbf" + PLAIN], ids=["xml", "gzip", "bom"])
def test_addresses_and_dates_are_read(body: bytes) -> None:
    assert read(body).entries == ENTRIES


def test_an_index_lists_sitemaps() -> None:
    body = f"<sitemapindex {NAMESPACE}><sitemap><loc>http://site.example/1.xml.gz</loc></sitemap></sitemapindex>"
    assert read(body.encode()).entries == [SitemapEntry("http://site.example/1.xml.gz", is_sitemap=True)]


def test_a_text_has_an_address_in_each_line() -> None:
    assert read(b"http://site.example/a\r\n\nnone\nhttps://site.example/b\n").entries == [
        SitemapEntry("http://site.example/a"),
        SitemapEntry("https://site.example/b"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"<rss><channel><link>http://site.example/</link><item><title>t</title><link>http://site.example/a</link>"
        b"<pubDate>x</pubDate></item></channel></rss>",
        b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link rel="self" href="http://site.example/s"/>'
        b'<link href="http://site.example/a"/><updated>x</updated></entry></feed>',
    ],
    ids=["rss", "atom"],
)
def test_feeds_are_read_as_well(body: bytes) -> None:
    assert read(body).entries == [SitemapEntry("http://site.example/a", "x")]


def test_no_entity_is_expanded() -> None:
    bomb = b'<!DOCTYPE urlset [<!ENTITY a "http://site.example/a">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert read(bomb).entries == []


def test_what_was_read_before_the_document_breaks_still_counts() -> None:
    assert read(PLAIN[:-40]).entries == ENTRIES[:1]


def test_no_more_than_50000_addresses_count() -> None:
    body = b"<urlset>" + b"<url><loc>http://site.example/a</loc></url>" * (MOST + 5) + b"</urlset>"
    assert len(read(body).entries) == MOST


@pytest.mark.parametrize("over", [0, 5])
@pytest.mark.parametrize("kind", ["xml", "prefixed", "text"])
def test_what_is_beyond_them_is_counted(kind: str, over: int) -> None:
    entry = {
        "xml": b"<url><loc>http://site.example/a</loc></url>",
        "prefixed": b"<s:url><s:loc>http://site.example/a</s:loc></s:url>",
        "text": b"http://site.example/a\n",
    }[kind]
    begin, end = {
        "xml": (b"<urlset>", b"</urlset>"),
        "prefixed": (b'<s:urlset xmlns:s="x">', b"</s:urlset>"),
        "text": (b"", b""),
    }[kind]
    listed = read(begin + entry * (MOST + over) + end)
    assert (len(listed.entries), listed.over) == (MOST, over)


def test_a_sitemap_that_is_cut_off_has_more() -> None:
    body = b"<urlset><url><loc>http://site.example/a</loc></url>" + b" " * LARGEST + b"</urlset>"
    assert read(gzip.compress(body, 1)) == SitemapListing([SitemapEntry("http://site.example/a")], over=1)
    assert read(PLAIN).over == 0


@pytest.mark.parametrize("body", [b"", b"\x1f\x8bbroken", b"<", b"\xff\xfe\x00", b"<html><p>no sitemap</html>"])
def test_what_is_no_sitemap_lists_nothing(body: bytes) -> None:
    assert read(body).entries == []
