"""ScrapydWeb on a Scrapyd with a history: how long its list of jobs takes."""

import time
from dataclasses import dataclass

from bench.scrapyd_hosts import scrapyd
from tests.scrapyd.scrapydweb import ScrapydWeb, scrapydweb

LIST = "jobs"
FOR_EVER = float("inf")


@dataclass(frozen=True, slots=True)
class Listed:
    """One history."""

    jobs: int
    milliseconds: float
    """The median of several openings; for ever where it did not answer in time."""


def listed(jobs: int, times: int) -> Listed:
    """How long its list takes with so many finished jobs, once it has seen them."""
    with scrapyd(jobs) as host, scrapydweb(host.port) as web:
        try:
            _opened(web)
            took = sorted(_opened(web) for _ in range(times))
        except OSError:
            return Listed(jobs, FOR_EVER)
    return Listed(jobs, took[len(took) // 2])


def _opened(web: ScrapydWeb) -> float:
    began = time.perf_counter()
    web.open(LIST)
    return (time.perf_counter() - began) * 1000
