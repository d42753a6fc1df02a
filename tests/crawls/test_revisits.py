"""When a page is fetched again."""

import pytest

from tests.cases import for_each
from weft.crawl_spec import RevisitSpec
from weft.crawler.visits import lastmod, next_interval

HOUR, DAY = 3_600.0, 86_400.0


@for_each(
    ("policy", "last", "changed", "age", "expected"),
    [
        (RevisitSpec(), 0.0, None, 0.0, 0.0),
        (RevisitSpec(policy="fixed", seconds=2 * HOUR), 5.0, True, 0.0, 2 * HOUR),
        (RevisitSpec(policy="adaptive"), 0.0, None, 0.0, DAY),
        (RevisitSpec(policy="adaptive"), DAY, False, 0.0, 1.4 * DAY),
        (RevisitSpec(policy="adaptive"), DAY, True, 0.0, 0.8 * DAY),
        (RevisitSpec(policy="adaptive"), HOUR, True, 0.0, HOUR),
        (RevisitSpec(policy="adaptive", most_seconds=DAY), DAY, False, 0.0, DAY),
        (RevisitSpec(policy="lastmod"), 0.0, None, 10 * DAY, 2 * DAY),
        (RevisitSpec(policy="lastmod"), 0.0, None, 60.0, HOUR),
        (RevisitSpec(policy="lastmod"), 0.0, None, 60 * 365 * DAY, DAY),
    ],
)
def test_the_interval_follows_the_policy(
    policy: RevisitSpec, last: float, changed: bool | None, age: float, expected: float
) -> None:
    assert next_interval(policy, last, changed, age) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2026-01-02", 1_767_312_000), ("2026-01-02T01:00:00+01:00", 1_767_312_000), ("yesterday", 0), ("", 0)],
)
def test_a_date_of_a_sitemap_is_read(text: str, expected: int) -> None:
    assert lastmod(text) == expected * 1_000_000
