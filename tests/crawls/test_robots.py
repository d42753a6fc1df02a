"""What robots.txt allows."""

import pytest

from tests.cases import for_each
from weft.crawl_spec import PolitenessSpec
from weft.crawler.robots import (
    LARGEST_ROBOTS,
    NONE,
    RULES,
    RobotsPolicies,
    RobotsRules,
    StoredRobots,
    text_of,
    token_of,
)

HERE = "http://site.example"


def allows(text: bytes, path: str, token: str = "weft") -> bool:
    return RobotsRules(text_of(text), token).allows(HERE + path)


@for_each(
    ("text", "path", "allowed"),
    [
        (b"User-agent: *\nDisallow: /private", "/private/x", False),
        (b"User-agent: *\nDisallow: /private", "/public", True),
        (b"User-agent: *\nDisallow: /\nAllow: /open", "/open/x", True),
        (b"User-agent: *\nAllow: /a\nDisallow: /a/b", "/a/b/c", False),
        (b"User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf", False),
        (b"User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf?z", True),
        (b"User-agent: weft\nDisallow: /w\n\nUser-agent: *\nDisallow: /", "/elsewhere", True),
        (b"User-agent: weft\nDisallow: /w\n\nUser-agent: *\nDisallow: /", "/w", False),
        (b"User-agent: other\nDisallow: /", "/", True),
        (b"User-agent: we\nDisallow: /", "/", True),
        (b"User-agent: weft-news\nDisallow: /", "/", True),
        (b"User-agent: Weft/1.0 # us\nDisallow: /", "/", False),
        (b"User-agent: other\nUser-agent: weft\nDisallow: /", "/", False),
        (b"User-agent: *\nDisallow:", "/", True),
        (b"", "/", True),
        (b"\xef\xbb\xbfUser-agent: *\nDisallow: /private", "/private", False),
        (b"User-agent: *\rDisallow: /private\r", "/private", False),
        (b"User-agent: *\r\nDisallow: /private\r\n", "/private", False),
        (b"user-AGENT: WEFT\ndisallow: /private", "/private", False),
        (b"User-agent: *\nDisallow: /%7Ejoe", "/~joe", False),
        (bytes(range(256)) * 50 + b"\nUser-agent: *\nDisallow: /private", "/private", False),
    ],
)
def test_rules_are_read_as_rfc_9309_says(text: bytes, path: str, allowed: bool) -> None:
    assert allows(text, path) is allowed


def test_what_is_beyond_500_kib_does_not_count_nor_does_a_line_that_is_cut_off() -> None:
    filler = b"# nothing\n" * (LARGEST_ROBOTS // 10 - 1)
    text = b"User-agent: *\nDisallow: /early\n" + filler + b"Disallow: /late\n"
    assert len(text) > LARGEST_ROBOTS
    assert not allows(text, "/early")
    assert allows(text, "/late")
    assert allows(b"User-agent: *\n" + b"#" * (LARGEST_ROBOTS - 27) + b"\nDisallow: /abcdef", "/axyz")


def test_the_crawl_delay_and_the_sitemaps_are_told() -> None:
    rules = RobotsRules("User-agent: *\nCrawl-delay: 2.5\nSitemap: http://site.example/map.xml", "weft")
    assert rules.crawl_delay == 2.5
    assert rules.sitemaps == ["http://site.example/map.xml"]


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [("weft/1.0 (+mailto:a@b.example)", "weft"), ("My-Crawler/2", "my-crawler"), ("Shop (+x)", "shop"), ("/1", "*")],
)
def test_robots_txt_knows_a_crawler_by_its_product_name(user_agent: str, token: str) -> None:
    assert token_of(user_agent) == token


def test_rules_that_were_pushed_out_of_memory_are_read_again_and_large_ones_are_fetched_again() -> None:
    allowances, at = RobotsPolicies(PolitenessSpec(), "weft"), 1_000
    small = StoredRobots(at, RULES, "User-agent: *\nDisallow: /private")
    large = StoredRobots(at, RULES, large=True)
    allowances.learn("http://large.example", large, "#" * 600_000)
    first = allowances.of("http://small.example", small, at)
    assert first is not None
    assert first.counts(at)
    allowances.learn("http://other.example", large, "#" * 600_000)
    allowances.learn("http://another.example", large, "#" * 600_000)
    assert not first.counts(at)
    again = allowances.of("http://small.example", small, at)
    assert again is not None
    assert again.rules is not None
    assert not again.rules.allows(HERE + "/private")
    assert allowances.of("http://large.example", large, at) is None


def test_a_robots_txt_counts_for_a_day() -> None:
    allowances, day = RobotsPolicies(PolitenessSpec(), "weft"), 86_400 * 1_000_000
    kept = StoredRobots(1_000, NONE)
    assert allowances.of(HERE, kept, 1_000 + day - 1) is not None
    assert allowances.of(HERE, kept, 1_000 + day) is None
