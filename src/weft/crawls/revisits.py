"""When a page is fetched again."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from weft.clock import Moment, moment, seconds
from weft.crawl_spec import Revisit

CHANGED, UNCHANGED = 0.8, 1.4
"""What the interval is multiplied by where a page has changed, or not."""
OLDEST_SECONDS = 50 * 365 * 86_400.0
"""A page that calls itself older than the web tells nothing."""


AGE_SHARE = 0.2
"""By ``lastmod`` a page that has not changed for five days is looked at in a day."""


def next_interval(policy: Revisit, last: float, changed: bool | None, age: float = 0.0) -> float:
    """Seconds until the next visit; 0: there is none. ``changed`` is None on the first visit, ``age`` is how long ago
    the page last changed, as its site says."""
    if policy.policy == "none":
        return 0.0
    if policy.policy == "lastmod" and 0 < age < OLDEST_SECONDS:
        wanted = age * AGE_SHARE
    elif policy.policy != "adaptive" or changed is None or not last:
        wanted = policy.seconds
    else:
        wanted = last * (CHANGED if changed else UNCHANGED)
    return min(max(wanted, policy.least_seconds, 1.0), max(policy.most_seconds, 1.0))


def next_visit(at: Moment, interval: float) -> Moment:
    return at + seconds(interval) if interval else 0


def lastmod(text: str) -> Moment:
    """The moment that a sitemap names, in W3C's form; 0 where it is none."""
    try:
        named = datetime.fromisoformat(text.strip())
    except ValueError:
        return 0
    return max(0, moment(named.replace(tzinfo=named.tzinfo or UTC)))


def http_date(value: bytes) -> Moment:
    """The moment that a header such as Last-Modified names; 0 where it is none."""
    try:
        return moment(parsedate_to_datetime(value.decode("latin-1"))) if value else 0
    except (ValueError, TypeError, OverflowError):
        return 0
