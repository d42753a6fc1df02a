"""Where links lead is the same whether it is remembered or not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.crawler.pages import LinkResolver
from weft.fetching.urls import DEFAULT_CANONICALIZER, key_of

BASES = [
    *("http://site.example/", "http://site.example/a", "http://site.example/a/", "http://site.example/a/b?c=/d/"),
    *("https://site.example/a/b", "http://site.example:81/a/", "http://other.example/a/"),
]
HREFS = [
    *("b", "./b", "../b", "/b", "//other.example/b", "http://other.example/b", "https://other.example/b", "http:b"),
    *("https:b", "?b", "#b", " ?b", "\t/b", "/\t/other.example/b", "\\b", "/\\other.example/b", "", ".", "..", "%41"),
    *("mailto:a@b.example", "javascript:void(0)", "http://", "/b?utm_source=x", "b?sid=0123456789abcdef01", "\ud800"),
]


@settings(max_examples=300, deadline=None)
@given(
    pages=st.lists(st.tuples(st.sampled_from(BASES), st.lists(st.sampled_from(HREFS), max_size=12)), max_size=12),
    room=st.integers(0, 20_000),
)
def test_a_link_leads_where_it_led_before_wherever_it_stands(pages: list[tuple[str, list[str]]], room: int) -> None:
    links = LinkResolver(DEFAULT_CANONICALIZER, room)
    for base, hrefs in pages:
        leads = links.lead(base, hrefs)
        assert list(leads) == DEFAULT_CANONICALIZER.resolve(base, hrefs)
        assert all(key == key_of(url) for url, key in leads.items())


@for_each("href", [href for href in HREFS if href])
@for_each("first", BASES)
def test_what_a_link_means_on_one_page_is_not_taken_for_what_it_means_on_another(first: str, href: str) -> None:
    links = LinkResolver(DEFAULT_CANONICALIZER)
    links.lead(first, [href])
    for base in BASES:
        assert list(links.lead(base, [href])) == DEFAULT_CANONICALIZER.resolve(base, [href])


@settings(max_examples=300, deadline=None)
@given(
    pages=st.lists(
        st.tuples(st.sampled_from(BASES), st.lists(st.sampled_from(HREFS), max_size=12), st.booleans()), max_size=12
    ),
    room=st.integers(0, 20_000),
)
def test_no_address_is_passed_over_and_few_are_taken_again(pages: list[tuple[str, list[str], bool]], room: int) -> None:
    """Some pages are not followed; what they link to may be new on the next page."""
    links = LinkResolver(DEFAULT_CANONICALIZER, room)
    taken: set[str] = set()
    for base, hrefs, is_followed in pages:
        leads = links.lead(base, hrefs)
        if is_followed:
            new = links.take(leads)
            assert new == [url for url in leads if url in set(new)]
            assert leads.keys() - set(new) <= taken
            taken.update(new)


def test_an_address_is_taken_once() -> None:
    links = LinkResolver(DEFAULT_CANONICALIZER)
    for base in BASES[:4]:
        taken = links.take(links.lead(base, ["/a", "/b", "http://other.example/c"]))
        assert len(taken) == (3 if base == BASES[0] else 0)


def test_links_that_are_remembered_take_only_so_much_room() -> None:
    links = LinkResolver(DEFAULT_CANONICALIZER, 50_000)
    for page in range(50):
        hrefs = [f"/{page}/{number}" for number in range(30)]
        assert len(links.lead(f"http://site.example/{page}/", hrefs)) == 30
        texts = [text for known in links._known.values() for link in known.items() for text in (link[0], link[1][0])]
        assert sum(map(len, texts)) < 50_000
        assert sum(map(len, links._known.values())) < 250
