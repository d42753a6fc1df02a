"""What belongs to a crawl, what is a trap, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from tests.cases import for_each
from tests.crawls.exchanges import exchange
from weft import crawl_spec
from weft.crawl_spec import CrawlSpec
from weft.crawler.pages import PageReader
from weft.crawler.reasons import REASONS, TRAPS, describe_reason
from weft.crawler.scope import ScopeFilter
from weft.crawler.similarity import are_alike, missing_url, pattern_of
from weft.crawler.traps import MOST_PATTERNS, TrapDetector, TrapReason


def spec(**parts: Any) -> CrawlSpec:
    return crawl_spec.read({"urls": ["http://www.site.example/docs/start"], **parts})


STRICT = {"level": "strict"}
"""Pages that are alike are a trap, whatever else is known."""


def scope(**parts: Any) -> ScopeFilter:
    told = spec(scope=parts)
    return ScopeFilter(told, told.urls)


@pytest.mark.parametrize(
    ("within", "inside", "outside"),
    [
        (
            "host",
            ["http://www.site.example/x", "https://site.example/"],
            ["http://a.site.example/", "http://x.example/"],
        ),
        ("domain", ["http://site.example/", "https://a.b.site.example:8443/"], ["http://notsite.example/"]),
        ("path", ["http://site.example/docs/a?b"], ["http://site.example/doc", "http://site.example/"]),
        ("any", ["http://x.example/"], []),
    ],
)
def test_a_crawl_stays_within_its_bounds(within: str, inside: list[str], outside: list[str]) -> None:
    told = scope(within=within)
    assert [told.refuses(url, 1) for url in inside] == [""] * len(inside)
    assert [told.refuses(url, 1) for url in outside] == ["scope"] * len(outside)


def test_patterns_and_depth_bound_a_crawl_as_well() -> None:
    told = scope(allow=["/docs/", "/blog/"], deny=[r"\.pdf$"], depth=3)
    urls = ["http://site.example/docs/a", "http://site.example/x", "http://site.example/docs/a.pdf"]
    assert [told.refuses(url, 1) for url in urls] == ["", "allow", "deny"]
    assert (told.refuses(urls[0], 3), told.refuses(urls[0], 4)) == ("", "depth")


def test_a_crawl_without_seeds_is_bounded_by_its_patterns_alone() -> None:
    told = crawl_spec.read({"tier": "fetch", "scope": {"deny": ["//x"]}})
    assert [ScopeFilter(told, ()).refuses(url, 0) for url in ("http://a.example/", "http://x.example/")] == ["", "deny"]


@for_each(
    ("url", "refusal"),
    [
        ("http://a.example/ok/page", None),
        ("http://a.example/" + "x" * 2_048, ("url_length", "")),
        ("http://a.example/" + "/".join(f"s{number}" for number in range(21)), ("segments", "")),
        ("http://a.example/a/b/a/b/a/b/a/b", ("repeats", "/a/…/a")),
        ("http://a.example/a/b/a/b/a/b", None),
        ("http://a.example/events/2999/04", ("calendar", "/events/{number}/{number}")),
        ("http://a.example/events?month=4&year=2999", ("calendar", "/events?month={value}&year={value}")),
        ("http://a.example/day/2999-04-01", ("calendar", "/day/{date}")),
        ("http://a.example/events/1999/04", None),
        ("http://a.example/item/2999", None),
    ],
)
def test_an_address_that_looks_like_a_trap_is_refused(url: str, refusal: TrapReason | None) -> None:
    assert TrapDetector(spec(traps=STRICT)).refuses(url) == refusal


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("item/17-lamp?b=x&a=y", "item/{number}-lamp?a={value}&b={value}"),
        ("s/0123456789abcdef0123/page", "s/{id}/page"),
        ("v/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "v/{id}"),
        ("log/2026-11-16/x", "log/{date}/x"),
        ("blog/internationalisation", "blog/internationalisation"),
    ],
)
def test_addresses_have_in_common_what_does_not_vary(path: str, pattern: str) -> None:
    assert pattern_of(path) == pattern


def let_in(traps: TrapDetector, urls: Iterable[str]) -> int:
    return sum(traps.refuses(url) is None for url in urls)


@pytest.mark.parametrize("most", [10, 500, 5_000])
def test_a_pattern_has_about_as_many_addresses_as_it_may(most: int) -> None:
    traps = TrapDetector(spec(traps={"pages_per_pattern": most}))
    urls = [f"http://a.example/p/1/{number}" for number in range(most * 3)]
    assert most * 0.97 <= let_in(traps, urls) <= most * 1.03 + 1
    assert traps.refuses("http://a.example/p/1/999999999") == ("pattern", "/p/{number}/{number}")
    assert let_in(traps, ["http://b.example/p/1/1", "http://a.example/q/1/1", "http://a.example/about"]) == 3


def test_a_shop_may_have_many_more_things_than_a_pattern_has_addresses() -> None:
    traps = TrapDetector(spec(traps={"pages_per_pattern": 10}))
    assert let_in(traps, (f"http://a.example/item/{number}" for number in range(900))) == 900
    assert let_in(traps, (f"http://a.example/list?page={number}" for number in range(900))) == 10


def test_an_address_that_is_met_again_counts_once() -> None:
    traps = TrapDetector(spec(traps={"pages_per_pattern": 500}))
    urls = [f"http://a.example/p/1/{number}" for number in range(400)]
    for _ in range(10):
        assert let_in(traps, urls) == 400


def test_patterns_that_were_met_long_ago_are_forgotten() -> None:
    traps = TrapDetector(spec(traps={"pages_per_pattern": 1}))
    let_in(traps, ["http://a.example/p/1/1", "http://a.example/p/1/2"])
    let_in(traps, (f"http://h{number}.example/1/{number}" for number in range(MOST_PATTERNS)))
    assert traps.refuses("http://a.example/p/1/3") is None
    assert traps.refuses(f"http://h{MOST_PATTERNS - 1}.example/1/7") == ("pattern", "/{number}/{number}")


def feed(traps: TrapDetector, url: str, html: str) -> TrapReason | None:
    """What the crawler does with a page."""
    reader = PageReader(spec())
    return traps.saw(url, reader.read(exchange(html, url), alike=traps.looks_at(url)))


def calendar(month: int) -> str:
    days = "".join(f"<td>{day}</td>" for day in range(1, 29 + month % 3))
    return f"<body><h1>Month {month}</h1><table><tr>{days}</tr></table><p>Nothing happens in this month.</p>"


def article(number: int) -> str:
    words = ["river", "stone", "window", "garden", "letter", "market", "winter", "silver", "harbour", "engine"]
    told = " ".join(words[(number * 7 + place * (number + 3)) % 10] for place in range(120))
    return (
        f"<body><nav><a href=/>Home</a><a href=/all>All</a></nav><h1>{told[:30]}</h1><p>{told}</p><footer>Us</footer>"
    )


def test_pages_that_are_all_alike_make_a_trap_of_their_pattern() -> None:
    traps = TrapDetector(spec(traps={"near_duplicates": 20, **STRICT}))
    told = [feed(traps, f"http://a.example/cal/{month}", calendar(month)) for month in range(40)]
    assert told[:20] == [None] * 20
    assert told[20] == ("near_duplicates", "/cal/{number}")
    assert traps.refuses("http://a.example/cal/999") == ("near_duplicates", "/cal/{number}")
    assert traps.trap_of("http://a.example/cal/25") == ("near_duplicates", "/cal/{number}")
    assert traps.trap_of("http://b.example/cal/25") is None


def test_pages_that_say_different_things_are_no_trap() -> None:
    traps = TrapDetector(spec(traps={"near_duplicates": 5}))
    assert [feed(traps, f"http://a.example/n/{number}", article(number)) for number in range(200)] == [None] * 200


def test_pages_of_a_pattern_that_differ_are_looked_at_less_often() -> None:
    traps = TrapDetector(spec())
    for number in range(40):
        feed(traps, f"http://a.example/n/{number}", article(number))
    assert sum(traps.looks_at(f"http://a.example/n/{number}") for number in range(320)) == 20


def test_a_maze_of_pages_without_a_pattern_ends_as_well() -> None:
    traps = TrapDetector(spec(traps={"near_duplicates": 3, **STRICT}))
    urls = [
        f"http://a.example/{''.join(chr(97 + number // 26**place % 26) for place in range(4))}" for number in range(60)
    ]
    told = [feed(traps, url, "<body><h1>Sorry</h1><p>There is nothing here.</p>") for url in urls]
    assert told[:15] == [None] * 15
    assert set(told[16:]) == {("near_duplicates", "/…")}


def test_a_page_like_the_one_for_no_page_is_a_soft_404() -> None:
    traps, reader = TrapDetector(spec()), PageReader(spec())
    nowhere = missing_url("http://a.example/x/y")
    gone = "<body><h1>Sorry</h1><p>There is nothing here, but a link to our first page.</p>"
    assert nowhere.startswith("http://a.example/")
    traps.soft_404_pages.learn(nowhere, 200, reader.read(exchange(gone, nowhere), alike=True).simhash)
    assert feed(traps, "http://a.example/lost", gone) == ("soft_404", "")
    assert feed(traps, "http://b.example/lost", gone) is None
    assert feed(traps, "http://a.example/found", article(1)) is None


def test_a_host_that_says_404_has_no_soft_ones() -> None:
    traps, reader = TrapDetector(spec()), PageReader(spec())
    page = reader.read(exchange(article(1)), alike=True)
    traps.soft_404_pages.learn("http://a.example/x", 404, page.simhash)
    assert traps.saw("http://a.example/y", page) is None


def test_fingerprints_differ_as_much_as_texts_do() -> None:
    reader = PageReader(spec())
    first, again, other = (
        reader.read(exchange(html), alike=True).simhash for html in (calendar(1), calendar(7), article(3))
    )
    assert are_alike(first, again)
    assert not are_alike(first, other)


def test_pages_of_numbers_differ_where_their_numbers_do() -> None:
    traps = TrapDetector(spec(traps={"near_duplicates": 3}))
    tables = [
        "<body><p>" + " ".join(f"{place * number % 9973}.{number}" for place in range(40)) for number in range(9, 59)
    ]
    assert [feed(traps, f"http://a.example/n/{number}", html) for number, html in enumerate(tables)] == [None] * 50


def test_a_folder_of_pages_that_are_all_alike_is_left_alone_and_others_are_not() -> None:
    traps = TrapDetector(spec(traps={"near_duplicates": 2, **STRICT}))
    for letter in "abcdefghijk":
        told = feed(traps, f"http://a.example/farm/{letter}", calendar(1))
    assert told == ("near_duplicates", "/farm/…")
    assert traps.trap_of("http://a.example/farm/z") == traps.refuses("http://a.example/farm/y") == told
    assert traps.refuses("http://a.example/other/z") is None


def photo(number: int) -> str:
    return f"<body><a href=/>All</a><h1>Photo {number} of 312</h1><img src=/p/{number}.jpg><p>Please do not copy.</p>"


def answered(traps: TrapDetector, status: int, html: str) -> str:
    """Give the answer to the path that was made up; the path."""
    name, path = traps.probe("a.example") or ("", "")
    html = traps.without_own_url(name, path, html.replace("HERE", path).encode()).decode()
    page = PageReader(spec()).read(exchange(html, f"http://a.example/{path}"), alike=True)
    traps.probed(name, status, page.simhash)
    return path


def test_pages_that_are_alike_are_kept_where_there_is_an_end_to_them() -> None:
    traps = TrapDetector(spec())
    assert [feed(traps, f"http://a.example/photo/{number}", photo(number)) for number in range(1, 60)] == [None] * 59
    assert answered(traps, 404, photo(1)) == "photo/10000059"
    assert [feed(traps, f"http://a.example/photo/{number}", photo(number)) for number in range(60, 313)] == [None] * 253
    assert traps.refuses("http://a.example/photo/313") is None


def test_pages_that_are_alike_are_a_trap_where_any_address_has_one() -> None:
    traps = TrapDetector(spec())
    told = [feed(traps, f"http://a.example/cal/{2026 - n // 12}/{12 - n % 12}", calendar(n)) for n in range(30)]
    assert told == [None] * 30
    assert answered(traps, 200, calendar(3)) == "cal/1994/7"
    trap = ("near_duplicates", "/cal/{number}/{number}")
    assert traps.refuses("http://a.example/cal/2023/1") == traps.trap_of("http://a.example/cal/2023/5") == trap
    assert feed(traps, "http://a.example/cal/2023/6", calendar(6)) == trap


def test_a_page_that_says_where_it_is_may_be_like_the_others() -> None:
    traps, day = TrapDetector(spec()), "<body><p>nothing happens today</p><a href=/HERE>/HERE</a>"
    for number in range(1, 30):
        feed(traps, f"http://a.example/day/{number}", day.replace("HERE", f"day/{number + 1}"))
    assert answered(traps, 200, day) == "day/10000029"
    assert traps.refuses("http://a.example/day/31") == ("near_duplicates", "/day/{number}")


def test_pages_that_hold_exactly_the_same_are_a_trap() -> None:
    traps = TrapDetector(spec())
    told = [feed(traps, f"http://a.example/s/0123456789abcdef{number:04}/lamps", article(1)) for number in range(40)]
    assert told[:20] == [None] * 20
    assert told[21] == ("near_duplicates", "/s/{id}/lamps")


def test_with_traps_off_nothing_is_suspected() -> None:
    traps = TrapDetector(spec(traps={"level": "off", "pages_per_pattern": 10}))
    assert [feed(traps, f"http://a.example/cal/{month}", calendar(1)) for month in range(200)] == [None] * 200
    assert traps.probe("a.example") is None
    odd = ("http://a.example/a/b/a/b/a/b/a/b", "http://a.example/events/2999/04", "http://a.example/x?a=1")
    assert let_in(traps, odd * 20) == 60


def test_a_calendar_is_a_trap_where_it_counts_on_beyond_what_is_planned() -> None:
    traps, then = TrapDetector(spec()), time.gmtime().tm_year + 3
    trap = ("calendar", "/cal/{number}/{number}")
    assert traps.refuses(f"http://a.example/cal/{then}/1", f"http://a.example/cal/{then - 1}/12") == trap
    on, after = f"http://a.example/cal/{then}/1", f"http://a.example/cal/{then}/2"
    assert traps.refuses(after, on) is None  # it was let in because a page of another sort links to it
    assert traps.refuses(after, on, was_suspected=True) == trap
    assert traps.refuses(f"http://a.example/cal/{then}/3", "http://a.example/") is None


def test_numbers_that_look_like_years_are_no_calendar() -> None:
    traps = TrapDetector(spec())
    urls = [f"http://a.example/topic/{number}/{page}" for number in range(900, 5_000, 300) for page in (1, 2, 3)]
    assert [traps.refuses(url, before) for before, url in pairwise(urls)] == [None] * (len(urls) - 1)


def test_every_reason_is_a_sentence_and_traps_say_that_they_are_suspected() -> None:
    for reason in REASONS:
        told = describe_reason(reason)
        assert told[0].islower()
        assert "{" not in told
        assert ("trap suspected" in told) == (reason in TRAPS)
    assert (
        describe_reason("pattern", pattern="/p/{number}") == "trap suspected: too many addresses are like /p/{number}"
    )
    assert describe_reason("status_404") == "the server answered with status 404"
    assert describe_reason("what somebody else calls it") == "what somebody else calls it"
