"""How fast crawls are: from what their runs have told of themselves now and then."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from weft.clock import SECOND, Moment
from weft.crawl_ports import Counts
from weft.crawls.model import Crawl
from weft.crawls.report import Beat, Share
from weft.items.model import Sample

POINTS = 60
"""Into how many parts the time of a crawl is divided."""
LATELY: Moment = 10 * SECOND
"""How far back one looks for the speed of now."""

Course = Sequence[Sample]


def now(shares: Sequence[Share], courses: Sequence[Course], at: Moment) -> float:
    """Pages a second of all runs together in their last seconds; of those that have just begun, since then."""
    if rate := sum(_newest_rate(course) for course in courses):
        return rate
    live = [share for share in shares if share.finished_at is None and share.started_at is not None]
    return sum(share.pages * SECOND / max(at - (share.started_at or 0), SECOND) for share in live)


def _newest_rate(course: Course) -> float:
    if len(course) < 2:
        return 0.0
    last = course[-1]
    before = next((each for each in reversed(course[:-1]) if last.at - each.at >= LATELY), course[0])
    return max(0.0, (last.requests - before.requests) * SECOND / max(last.at - before.at, 1))


def on_average(crawl: Crawl, counts: Counts) -> float:
    """Pages a second from the begin of a crawl until its end; 0 where it has not ended."""
    passed = 0 if crawl.ended_at is None else crawl.ended_at - crawl.created_at
    return (counts.done + counts.failed) * SECOND / passed if passed >= SECOND else 0.0


def beats(courses: Sequence[Course], begin: Moment, end: Moment, points: int = POINTS) -> list[Beat]:
    """Pages a second in equal parts of the time; what came between two samples is spread evenly over their time."""
    width = max((end - begin) // points, SECOND)
    count = max(1, -(-(end - begin) // width))
    pages = [0.0] * count
    for course in courses:
        for earlier, later in pairwise(course):
            _spread(pages, (earlier.at - begin) / width, (later.at - begin) / width, later.requests - earlier.requests)
    return [
        Beat(at=begin + place * width, pages_per_second=round(each * SECOND / width, 3))
        for place, each in enumerate(pages)
    ]


def _spread(pages: list[float], since: float, until: float, amount: int) -> None:
    """Add an amount that came between two places, to each part of the time as much as lies in it."""
    if until <= since or amount <= 0:
        return
    for place in range(max(0, int(since)), min(len(pages), int(until) + 1)):
        inside = min(until, place + 1) - max(since, place)
        pages[place] += amount * max(0.0, inside) / (until - since)
