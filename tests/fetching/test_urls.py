"""One spelling for each address."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.fetching.urls import LONGEST_HOST, Canonicalizer, canonical, host_of, key_of, origin_of, resolve


@for_each(
    ("spelled", "meant"),
    [
        ("HTTP://Site.Example:80", "http://site.example/"),
        ("https://site.example:443/a", "https://site.example/a"),
        ("http://site.example/a/./b/../c", "http://site.example/a/c"),
        ("http://site.example/a?", "http://site.example/a"),
        ("http://site.example/a#part", "http://site.example/a"),
        ("http://site.example/a?b=1#part?c", "http://site.example/a?b=1"),
        ("http://user:secret@site.example/", "http://site.example/"),
        ("http://site.example./a", "http://site.example/a"),
        ("http://site.example/%7euser/%41", "http://site.example/~user/A"),
        ("http://site.example/a%2fb", "http://site.example/a%2Fb"),
        ("http://site.example/ü", "http://site.example/%C3%BC"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("  http://site.example/a b\t ", "http://site.example/a%20b"),
        ("http:\\\\site.example\\a", "http://site.example/a"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[::0:1]:8080/", "http://[::1]:8080/"),
        ("http://site.example/?utm_source=x&page=2&gclid=y", "http://site.example/?page=2"),
        ("http://site.example/?UTM_Source=x", "http://site.example/"),
        ("http://site.example/?b=2&a=1", "http://site.example/?b=2&a=1"),
        ("http://site.example/?a=1&&b=2", "http://site.example/?a=1&&b=2"),
        ("http://site.example/?PHPSESSID=1&a=1", "http://site.example/?a=1"),
        ("http://site.example/a;jsessionid=0A1B?x=1", "http://site.example/a?x=1"),
        ("http://site.example/?sid=0123456789abcdef01", "http://site.example/"),
        ("http://site.example/?sid=17", "http://site.example/?sid=17"),
        ("http://site.example/(S(lit3py55t21z5v55vlm25s55))/form", "http://site.example/form"),
    ],
)
def test_an_address_has_one_spelling(spelled: str, meant: str) -> None:
    assert canonical(spelled) == meant


@for_each(
    "wrong",
    [
        *("", "site.example", "/a", "mailto:a@b.example", "javascript:void(0)", "ftp://site.example/"),
        *("http://", "http://a b/", "http://site.example:99999/", "file:///etc/passwd", "http://\ud800/"),
        *("data:text/html,x", "ws://a.example/", f"http://{'a.' * LONGEST_HOST}example/"),
    ],
)
def test_what_is_no_address_of_the_web_has_none(wrong: str) -> None:
    assert canonical(wrong) is None


def test_links_are_resolved_in_order_and_each_once() -> None:
    hrefs = [
        "b",
        "../c?d=1",
        "b#there",
        "//other.example/x",
        "mailto:a@b.example",
        "HTTP://Other.Example/x",
        "?q",
        "#top",
    ]
    assert resolve("http://site.example/a/page?x=1", hrefs) == [
        "http://site.example/a/b",
        "http://site.example/c?d=1",
        "http://other.example/x",
        "http://site.example/a/page?q",
        "http://site.example/a/page?x=1",
    ]


def test_a_crawl_may_keep_what_tracks_and_drop_what_it_names() -> None:
    spelling = Canonicalizer(keep_tracking=True, drop_parameters=("ref", "x-.*"))
    assert spelling.canonical("http://a.example/b;jsessionid=1?utm_source=n&ref=1&x-y=2&refer=3") == (
        "http://a.example/b;jsessionid=1?utm_source=n&refer=3"
    )


def test_hosts_and_origins_are_those_that_politeness_is_about() -> None:
    for url, host, origin in (
        ("https://site.example/a/b", "site.example", "https://site.example"),
        ("http://site.example:8080/", "site.example:8080", "http://site.example:8080"),
        ("http://[::1]:8080/a", "[::1]:8080", "http://[::1]:8080"),
    ):
        assert (host_of(url), origin_of(url)) == (host, origin)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PARTS = st.sampled_from(
    ["%41", "%7e", "%2f", "%%341", "..", ".", "%2e", "a", ";jsessionid=1", "(S(abcdefghijklmnopqrstu))", "", "ü"]
)
PATHS = st.lists(PARTS | TEXT, max_size=6).map("/".join)
QUERIES = st.lists(
    st.sampled_from(["utm_a=1", "a=1", "b", "sid=0123456789abcdef", "", "%75tm_b=2", "="]) | TEXT, max_size=6
)


@settings(max_examples=300, deadline=None)
@given(PATHS, QUERIES.map("&".join), TEXT)
def test_the_spelling_of_a_spelling_is_itself(path: str, query: str, fragment: str) -> None:
    once = canonical(f"http://Site.example/{path}?{query}#{fragment}")
    assert once is not None
    assert canonical(once) == once
    assert resolve("http://site.example/", [once]) == [once]


@settings(max_examples=300, deadline=None)
@given(PATHS, QUERIES.map("&".join), TEXT)
def test_a_link_that_is_resolved_is_spelled_as_an_address_is(path: str, query: str, fragment: str) -> None:
    url = f"http://site.example/{path}?{query}#{fragment}"
    assert resolve("http://other.example/a", [url]) == [canonical(url)] == resolve("http://site.example/a", [url])


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_nothing_that_a_page_says_breaks_it(href: str) -> None:
    for link in resolve("http://site.example/a/b?c", [href, f"http://{href}", f"?{href}"]):
        assert link.startswith(("http://", "https://"))
        assert canonical(link) == link


def test_keys_are_signed_numbers_of_64_bits_and_differ() -> None:
    keys = {key_of(f"http://site.example/{number}") for number in range(10_000)}
    assert len(keys) == 10_000
    assert -(2**63) <= min(keys) < 0 < max(keys) < 2**63
