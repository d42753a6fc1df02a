"""What is read from a page."""

from __future__ import annotations

import time
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.cases import for_each
from tests.crawls.exchanges import exchange
from weft import crawl_spec
from weft.crawler.extraction import as_text, charset_of, robots_directives
from weft.crawler.pages import LARGE, PageReader, ParsedPage, exceeds_parse_limits
from weft.fetching.model import Exchange

HERE = "http://site.example/a/page"


def reader(**parts: Any) -> PageReader:
    return PageReader(crawl_spec.read({"urls": ["http://site.example/"], **parts}))


def read(html: bytes | str, told: PageReader | None = None, **fields: Any) -> ParsedPage:
    return (told or reader()).read(exchange(html, HERE, **fields))


def test_a_page_has_a_title_and_links() -> None:
    page = read(
        "<title> A \n page </title><a href=b>b</a><a href='b#x'>b</a><map><area href=/c></map><a>none</a>"
        "<a href=''>here</a><a href='mailto:x@y.example'>m</a>"
    )
    assert (page.title, page.is_html) == ("A page", True)
    assert page.links == ["http://site.example/a/b", "http://site.example/c"]


def test_links_are_resolved_by_the_base_of_the_page() -> None:
    assert read("<base href=/x/><base href=/y/><a href=b>b</a>").links == ["http://site.example/x/b"]


def test_a_page_of_frames_links_to_them() -> None:
    assert read("<frameset><frame src=left><frame src=right></frameset>").links == [
        "http://site.example/a/left",
        "http://site.example/a/right",
    ]


def test_a_page_says_what_it_is_called_and_what_it_asks_for() -> None:
    page = read('<link rel="Canonical" href="/c?utm_source=x"><meta name=Robots content="NoIndex, nofollow">')
    assert (page.canonical_url, page.noindex, page.nofollow) == ("http://site.example/c", True, True)
    page = read("<p>x", headers=(("X-Robots-Tag", "noindex"),))
    assert (page.noindex, page.nofollow) == (True, False)


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        (["none"], (True, True)),
        (["otherbot: noindex", "nofollow"], (True, False)),
        (["weft: noindex"], (False, True)),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST"], (False, False)),
        (["noindex, unavailable_after: 2030-01-01"], (False, True)),
    ],
)
def test_headers_speak_to_robots_by_their_names(rules: list[str], asked: tuple[bool, bool]) -> None:
    assert robots_directives(rules) == asked


def test_links_that_are_marked_nofollow_are_left_out_where_the_crawl_minds() -> None:
    html = "<a href=/1 rel='noopener NoFollow'>1</a><a href=/2>2</a>"
    assert len(read(html).links) == 2
    page = read(html, reader(scope={"nofollow": True}))
    assert (page.links, page.links_nofollow) == (["http://site.example/2"], 1)


def test_a_page_has_only_so_many_links_and_the_rest_is_counted() -> None:
    html = "".join(f"<a href=/{number}>x</a>" for number in range(50))
    page = read(html, reader(traps={"links_per_page": 20}))
    assert (len(page.links), page.links_over) == (20, 30)


def test_links_behind_the_most_of_a_page_that_is_only_skimmed_are_counted_too() -> None:
    html = b"".join(b"<a href=/%d>x</a>" % number for number in range(50)) + b"." * LARGE
    page = read(html, reader(traps={"links_per_page": 20}))
    assert (page.is_heavy, len(page.links), page.links_over) == (True, 20, 30)
    again = b"<a href=/same>x</a>" * 25 + b"<a href=/new>x</a>" + b"." * LARGE
    page = read(again, reader(traps={"links_per_page": 20}))
    assert (page.links, page.links_over) == (["http://site.example/same"], 6)


def test_what_is_no_html_is_not_parsed_as_such() -> None:
    page = read("<title>no</title><a href=/x>", content_type="image/svg+xml")
    assert (page.is_html, page.links, page.fields) == (False, [], {"content_type": "image/svg+xml"})
    assert read("<!DOCTYPE html><title>yes</title>", content_type="").title == "yes"


@for_each(
    ("body", "content_type", "text"),
    [
        ("grün".encode(), "text/html", "grün"),
        ("grün".encode("latin-1"), "text/html", "grün"),
        ("grün".encode("latin-1"), "text/html; charset=ISO-8859-1", "grün"),
        ("привет".encode("cp1251"), "text/html; charset=windows-1251", "привет"),
        (b'<meta charset="koi8-r">' + "привет".encode("koi8-r"), "text/html", '<meta charset="koi8-r">привет'),
        ("日本語".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本語"),
        ("\ufeffgrün".encode("utf-16-le"), "text/html; charset=latin-1", "grün"),
        (b"\xef\xbb\xbfgr\xc3\xbcn", "text/html; charset=latin-1", "grün"),
        ("“x”".encode("cp1252"), "text/html; charset=iso-8859-1", "“x”"),
        (b"x", "text/html; charset=no-such-thing", "x"),
        (b"x", "text/html; charset=base64", "x"),
        (b"\xff\xfe\xfd", "text/html; charset=utf-8", "\ufffd"),
    ],
)
def test_a_charset_is_found_and_an_unknown_one_fails_nothing(body: bytes, content_type: str, text: str) -> None:
    assert as_text(body, content_type.encode()) == text


def test_titles_are_read_in_their_charset() -> None:
    assert read("<title>grün</title>".encode("latin-1"), content_type="text/html; charset=latin-1").title == "grün"
    assert charset_of(b'<?xml version="1.0" encoding="koi8-r"?>', b"text/html") == "koi8-r"


HOSTILE = {
    "nested divs": b"<title>t</title>" + b"<div>" * 300_000,
    "nested lists, closed again": b"<title>t</title>" + b"<ul><li>" * 20_000 + b"</li></ul>" * 20_000,
    "attributes": b"<title>t</title><p " + b" ".join(b"a%d" % number for number in range(300_000)) + b">",
    "links": b"<title>t</title>" + b"".join(b"<a href=/page/%d>some words</a>\n" % n for n in range(500_000)),
    "entities": b"<title>t</title>" + b"&lt;" * 2_000_000,
    "unfinished tags": b"<title>t</title>" + b"<a " * 3_000_000,
    "quotes": b"<title>t</title>" + b'<a href="href="' * 600_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_page_costs_no_more_than_a_good_one_of_its_size(kind: str) -> None:
    body = HOSTILE[kind]
    good = b"<title>t</title>" + b"<p>Some <b>words</b> and <a href=/x>a link</a>.</p>\n" * (len(body) // 50)
    told = reader()
    spent = min(_seconds(told, exchange(good, HERE)) for _ in range(2)) * 20 + 1.0
    began = time.process_time()
    page = told.read(exchange(body, HERE))
    assert time.process_time() - began < spent
    assert page.title == "t"
    assert len(page.links) == (10_000 if kind == "links" else len(page.links))


def _seconds(told: PageReader, good: Exchange) -> float:
    began = time.process_time()
    told.read(good)
    return time.process_time() - began


def test_a_large_page_is_skimmed_and_still_has_title_base_and_links() -> None:
    html = b"<TITLE>Big &amp; good</TITLE><base href='/x/'><a class=q HREF=\"b?c=1&amp;d=2\">b</a>" + b"." * LARGE
    page = read(html)
    assert (page.is_heavy, page.title, page.links) == (True, "Big & good", ["http://site.example/x/b?c=1&d=2"])


@for_each(
    "part",
    [b"<br>words<br>\n", b"<li><a href=/x>x</a>\n", b"words and words ", b"<p>open", b"<td>1", b"if (a<b) { c(); }\n"],
)
def test_an_honest_page_is_not_taken_for_a_hostile_one(part: bytes) -> None:
    assert not exceeds_parse_limits(b"<html><body>" + part * 20_000)


def test_an_item_is_what_is_kept_of_a_page() -> None:
    item = read("<title>t</title><a href=/x>x</a>").item(1_763_290_000_123_456)
    assert item == {
        "url": HERE,
        "status": 200,
        "title": "t",
        "links": ["http://site.example/x"],
        "fetched_at": "2025-11-16T10:46:40.123Z",
    }
    assert "links" not in read("<p>").item(0, with_links=False)


def test_pages_are_read_as_the_parser_reads_them() -> None:
    html = "<a href=/1>1</a><template><a href=/2>2</a></template><!-- <a href=/3>3</a> --><p><a href=/4>4</a>"
    expected = [node.attributes["href"] for node in LexborHTMLParser(html).tags("a")]
    assert read(html).links == [f"http://site.example{href}" for href in expected]
