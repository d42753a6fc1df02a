"""Specs of crawls that are wrong, and patterns of people that are right."""

from typing import Any

import pytest

from tests.cases import for_each
from weft.crawl_spec import CrawlSpec, ScopeSpec, TrapSpec
from weft.crawler.messages import CrawlPolicy
from weft.crawler.scope import ScopeFilter as Bounds
from weft.crawls.validation import validated_spec
from weft.errors import Invalid
from weft.fetching.urls import Canonicalizer

SITE = "https://site.example/"
POLICY = CrawlPolicy(contact="us@weft.example")


@for_each(
    ("spec", "names"),
    [
        ({"fetching": {"headers": {"X-Key": "hidden\r\nx: y"}}}, "crawl.fetching.headers.X-Key"),
        ({"fetching": {"headers": {"a b": "c"}}}, "crawl.fetching.headers"),
        ({"fetching": {"headers": {"Host": "other.example"}}}, "crawl.fetching.headers"),
        ({"fetching": {"user_agent": "shop\nx: y"}}, "crawl.fetching.user_agent"),
        ({"fetching": {"contact": "us@weft.example\r\nx: y"}}, "crawl.fetching.contact"),
        ({"fetching": {"password": ["hidden"]}}, "crawl.fetching.password"),
        ({"dataset": ""}, "crawl.dataset"),
        ({"feeds": "pages"}, "crawl.feeds"),
        ({"revisit": {"policy": "fixed", "least_seconds": 10, "most_seconds": 5}}, "crawl.revisit.least_seconds"),
        ({"revisit": {"policy": "fixed", "seconds": 60}}, "least_seconds, which is 3600"),
        ({"urls": ["http://ann:hidden@site.example/"]}, "urls"),
    ],
)
def test_a_field_that_is_wrong_is_named_before_anything_begins_and_no_secret_is_shown(
    spec: dict[str, Any], names: str
) -> None:
    with pytest.raises(Invalid) as refused:
        validated_spec({"urls": [SITE], **spec}, POLICY)
    assert names in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_each_pattern_has_flags_and_groups_of_its_own() -> None:
    scope = ScopeSpec(allow=("(?i)/shop", r"/(?P<x>a)a$"), deny=(r"/(?P<x>b)b$", r"/(?P<x>c)c$"))
    bounds = Bounds(CrawlSpec(urls=(SITE,), scope=scope), [SITE])
    reasons = [bounds.refuses(f"{SITE}{path}", 1) for path in ("SHOP", "aa", "ab", "shop/bb", "shop/cc", "shop/bc")]
    assert reasons == ["", "", "allow", "deny", "deny", ""]
    spelling = Canonicalizer(drop_parameters=TrapSpec(drop_parameters=("(?i)ref", "(?i)from")).drop_parameters)
    assert spelling.canonical(f"{SITE}?REF=1&a=2&From=3") == f"{SITE}?a=2"
