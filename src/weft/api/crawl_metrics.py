"""What ``/metrics`` tells of crawls."""

from __future__ import annotations

from weft import metrics as m
from weft.app import App
from weft.crawl_ports import STATES
from weft.crawls.measuring import Measured, measured

Values = dict[tuple[str, ...], float]


async def crawl_gauges(app: App) -> dict[m.Metric, Values]:
    """Of every crawl that is not over: what it knows, how fast it is, and what goes wrong."""
    found = {_labels(each): each for each in await measured(app.db, app.crawls)}
    known = found.items()
    return {
        m.CRAWLS: {(state,): count for state, count in (await app.crawls.states()).items()},
        m.CRAWL_URLS: {(*of, state): getattr(each.counts, state) for of, each in known for state in STATES},
        m.CRAWL_BACKLOG: {of: each.backlog for of, each in known},
        m.CRAWL_HOSTS: {of: each.counts.hosts for of, each in known},
        m.CRAWL_BYTES: {of: each.counts.size for of, each in known},
        m.CRAWL_RATE: {of: each.pages_per_second for of, each in known},
        m.CRAWL_SUCCESS: {of: each.success_ratio for of, each in known if each.success_ratio is not None},
        m.CRAWL_LEASES: {of: each.lease_ratio for of, each in known if each.lease_ratio is not None},
        m.CRAWL_FETCH: {of: each.fetch_seconds for of, each in known if each.fetch_seconds is not None},
    }


def _labels(each: Measured) -> tuple[str, ...]:
    return each.crawl.project, each.crawl.name, str(each.crawl.id)
