"""How fast crawls are: from what their runs have told of themselves now and then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
SILENT: Moment = 25 * SECOND
"""A run that has told nothing for so long does nothing, as far as anybody knows; they tell every ten seconds."""

Course = Sequence[Sample]
Attempt = tuple[int, int]
"""A run, and which attempt of it."""


def now(shares: Sequence[Share], courses: Mapping[Attempt, Course], at: Moment) -> float:
    """Pages a second of all that runs, in its last seconds; of what has just begun, since then."""
    running = [share for share in shares if share.state == "running"]
    return sum(_rate(share, courses.get((share.run_id, share.attempt), ()), at) for share in running)


def _rate(share: Share, course: Course, at: Moment) -> float:
    if not course or at - course[-1].at > SILENT:
        return 0.0
    last = course[-1]
    before = next((each for each in reversed(course) if last.at - each.at >= LATELY), None)
    since, had = (share.started_at or last.at, 0) if before is None else (before.at, before.requests)
    return max(0.0, (last.requests - had) * SECOND / max(last.at - since, SECOND))


def told_until(courses: Iterable[Course], at: Moment) -> Moment:
    """Up to when it is known how fast a crawl is that goes on: when its runs last told, or now if that is long ago."""
    last = max((course[-1].at for course in courses if course), default=0)
    return last if at - last <= SILENT else at


def on_average(crawl: Crawl, counts: Counts) -> float:
    """Pages a second from the begin of a crawl until its end; 0 where it has not ended."""
    passed = 0 if crawl.ended_at is None else crawl.ended_at - crawl.created_at
    return (counts.done + counts.failed) * SECOND / passed if passed >= SECOND else 0.0


def beats(courses: Iterable[Course], begin: Moment, end: Moment, points: int = POINTS) -> list[Beat]:
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
