"""Every metric of weft by its name, and what this process has counted of them.

``docs/reference/metrics.md`` says the same for people; a test compares the two. Numbers of the whole weft come from the
database when somebody asks (``http/metrics.py``), so every gateway tells the same of them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from weft.errors import Invalid

Labels = tuple[str, ...]

NUMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}", re.ASCII)
MOST_NUMBERS = 20
"""How many numbers one run may say of itself."""
MOST_CUSTOM = 1000
"""How many numbers of runs are told in all."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it tells, and the labels that each of its values has."""

    name: str
    kind: str
    """gauge, counter or histogram."""
    doc: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in seconds."""


SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
FETCH_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)

BUILD = Metric("weft_build", "gauge", "1, with the version of this gateway.", ("version",))
REQUESTS = Metric("weft_requests", "counter", "Requests that this gateway has answered.", ("method", "status"))
REQUEST_SECONDS = Metric("weft_request_seconds", "histogram", "How long its answers took.", ("method",), SHORT)
RUNS = Metric(
    "weft_runs", "gauge", "Runs that have not ended: ready, held (by a limit), waiting, paused or running.", ("state",)
)
RUNS_ENDED = Metric("weft_runs_ended", "counter", "Runs that have ended.", ("project", "outcome"))
RUNNING = Metric(
    "weft_running",
    "gauge",
    "Runs that run now, partitions of crawls among them.",
    ("project", "kind", "task", "worker"),
)
DISPATCH_SECONDS = Metric(
    "weft_dispatch_seconds",
    "histogram",
    "From queued to started, of runs that ended at their first attempt.",
    (),
    SHORT,
)
LATENESS_SECONDS = Metric(
    "weft_schedule_lateness_seconds",
    "histogram",
    "From the time of a schedule's tick to its run being queued.",
    (),
    LONG,
)
WORKERS = Metric("weft_workers", "gauge", "Workers by state; those that left within the last hour too.", ("state",))
WORKER_CAPACITY = Metric("weft_worker_capacity", "gauge", "How many runs a worker takes at once.", ("worker",))
WORKER_RUNNING = Metric("weft_worker_running", "gauge", "How many runs a worker has now.", ("worker",))
WORKER_DONE = Metric(
    "weft_worker_done", "gauge", "How many runs a worker has seen through since it joined.", ("worker",)
)
WORKER_SILENT = Metric("weft_worker_silent_seconds", "gauge", "How long ago a worker was last heard of.", ("worker",))
WORKER_LABELS = Metric("weft_worker_labels", "gauge", "1 for each label that a worker has.", ("worker", "label"))
WORKER_MEMORY = Metric("weft_worker_memory_bytes", "gauge", "Memory of a worker's own process.", ("worker",))
WORKER_CPU = Metric(
    "weft_worker_cpu_seconds", "gauge", "Processor time of a worker and of its commands that have ended.", ("worker",)
)
BREAKERS = Metric(
    "weft_breakers",
    "gauge",
    "Circuit breakers that are not closed: 1 where one is in this state.",
    ("worker", "target", "state", "project"),
)
WEBHOOK_BREAKERS = Metric(
    "weft_webhook_breakers",
    "gauge",
    "Circuit breakers of webhooks that are not closed: 1 where one is in this state.",
    ("webhook", "state"),
)
INTAKE_RECEIVED = Metric("weft_intake_received", "counter", "Messages that this process has received.", ("inbox",))
INTAKE_ACCEPTED = Metric("weft_intake_accepted", "counter", "Messages of which it has made a run.", ("inbox",))
INTAKE_KNOWN = Metric("weft_intake_known", "counter", "Messages that were a run already.", ("inbox",))
INTAKE_DEAD = Metric("weft_intake_dead", "counter", "Messages that it keeps as dead letters.", ("inbox",))
INTAKE_LATER = Metric("weft_intake_later", "counter", "Messages put back, as a project's queue was full.", ("inbox",))
INTAKE_REPLIES = Metric("weft_intake_replies", "counter", "Replies that it has sent.", ("inbox",))
INTAKE_SECONDS = Metric("weft_intake_seconds", "histogram", "How long it took to take a batch.", ("inbox",), SHORT)
INTAKE_CONNECTED = Metric("weft_intake_connected", "gauge", "1 where the inbox answers this process.", ("inbox",))
LIMITER_DEGRADED = Metric(
    "weft_limiter_degraded",
    "gauge",
    "1 where the shared limiter, or the gateway before it, does not answer a worker.",
    ("worker",),
)
PROXY_REQUESTS = Metric(
    "weft_proxy_requests",
    "gauge",
    "Requests of a proxy plan in 31 days that went through a proxy or were blocked, by what they ended in.",
    ("project", "plan", "verdict"),
)
PROXY_COST = Metric(
    "weft_proxy_cost", "gauge", "What a proxy plan has cost in 31 days, in the unit of its prices.", ("project", "plan")
)
OF_SPIDER = ("project", "name")
"""The name is that of a spider or of a crawl; those beyond the first thousand share one."""
ITEMS = Metric("weft_items", "counter", "Items that were stored.", OF_SPIDER)
PAGES = Metric("weft_pages", "counter", "Responses that spiders and crawls have received.", OF_SPIDER)
ERRORS = Metric(
    "weft_errors", "counter", "Errors that spiders have logged, and fetches of crawls that failed.", OF_SPIDER
)
BYTES = Metric("weft_received_bytes", "counter", "Bytes of the responses.", OF_SPIDER)
URLS = Metric(
    "weft_urls", "counter", "URLs that crawls have finished, by state; a revisit counts again.", (*OF_SPIDER, "state")
)
FETCH_SECONDS = Metric("weft_fetch_seconds", "histogram", "From a request to its response.", OF_SPIDER, FETCH_BOUNDS)
WORKER_ENDED = Metric("weft_worker_runs_ended", "counter", "Runs that have ended on a worker.", ("worker", "outcome"))
WORKER_ITEMS = Metric("weft_worker_items", "counter", "Items that runs of a worker have yielded.", ("worker",))
WORKER_PAGES = Metric("weft_worker_pages", "counter", "Responses that they have received.", ("worker",))
WORKER_ERRORS = Metric("weft_worker_errors", "counter", "Errors that they have counted.", ("worker",))
WORKER_BYTES = Metric("weft_worker_received_bytes", "counter", "Bytes of their responses.", ("worker",))
OF_CRAWL = ("project", "name", "crawl")
CRAWLS = Metric("weft_crawls", "gauge", "Crawls by state; of those that have ended, the newest thousand.", ("state",))
CRAWL_URLS = Metric(
    "weft_crawl_urls", "gauge", "Addresses that a crawl knows, by state, until it is over.", (*OF_CRAWL, "state")
)
CRAWL_BACKLOG = Metric("weft_crawl_backlog", "gauge", "Addresses of a crawl that are still to be fetched.", OF_CRAWL)
CRAWL_HOSTS = Metric("weft_crawl_hosts", "gauge", "Hosts that a crawl knows.", OF_CRAWL)
CRAWL_BYTES = Metric("weft_crawl_bytes", "gauge", "What a crawl has fetched.", OF_CRAWL)
CRAWL_RATE = Metric("weft_crawl_pages_per_second", "gauge", "How fast a crawl is.", OF_CRAWL)
CRAWL_SUCCESS = Metric(
    "weft_crawl_success_ratio", "gauge", "Of the pages that a crawl has fetched, those that did not fail.", OF_CRAWL
)
CRAWL_LEASES = Metric(
    "weft_crawl_lease_ratio", "gauge", "Of the questions for hosts, those that were answered with any.", OF_CRAWL
)
CRAWL_FETCH = Metric("weft_crawl_fetch_seconds", "gauge", "How long an answer takes, on average.", OF_CRAWL)
CUSTOM = Metric(
    "weft_custom",
    "gauge",
    "What runs say of themselves: the numbers of each task's newest run that had any.",
    ("project", "task", "name"),
)
CRAWLER_MESSAGES = Metric("crawler_messages_received", "counter", "Messages that came from queues.")
CRAWLER_URLS = Metric("crawler_urls_crawled", "counter", "URLs that crawls have fetched, whatever came of it.")
CRAWLER_SUCCESS = Metric(
    "crawler_success_rate", "gauge", "Of the URLs fetched in the last hour, those that did not fail."
)
CRAWLER_ERRORS = Metric("crawler_error_rate", "gauge", "Of the URLs fetched in the last hour, those that failed.")
CRAWLER_LOCKS = Metric(
    "crawler_lock_acquisition_rate", "gauge", "Of the requests for hosts in the last hour, those that got any."
)
CRAWLER_SECONDS = Metric(
    "crawler_processing_duration_seconds", "histogram", "From a request to its response.", (), FETCH_BOUNDS
)
CRAWLER_QUEUE = Metric("crawler_queue_depth", "gauge", "URLs of all crawls that are still to be fetched.")

METRICS = (
    BUILD,
    REQUESTS,
    REQUEST_SECONDS,
    RUNS,
    RUNS_ENDED,
    RUNNING,
    DISPATCH_SECONDS,
    LATENESS_SECONDS,
    WORKERS,
    WORKER_CAPACITY,
    WORKER_RUNNING,
    WORKER_DONE,
    WORKER_SILENT,
    WORKER_LABELS,
    WORKER_MEMORY,
    WORKER_CPU,
    BREAKERS,
    WEBHOOK_BREAKERS,
    INTAKE_RECEIVED,
    INTAKE_ACCEPTED,
    INTAKE_KNOWN,
    INTAKE_DEAD,
    INTAKE_LATER,
    INTAKE_REPLIES,
    INTAKE_SECONDS,
    INTAKE_CONNECTED,
    LIMITER_DEGRADED,
    PROXY_REQUESTS,
    PROXY_COST,
    ITEMS,
    PAGES,
    ERRORS,
    BYTES,
    URLS,
    FETCH_SECONDS,
    WORKER_ENDED,
    WORKER_ITEMS,
    WORKER_PAGES,
    WORKER_ERRORS,
    WORKER_BYTES,
    CRAWLS,
    CRAWL_URLS,
    CRAWL_BACKLOG,
    CRAWL_HOSTS,
    CRAWL_BYTES,
    CRAWL_RATE,
    CRAWL_SUCCESS,
    CRAWL_LEASES,
    CRAWL_FETCH,
    CUSTOM,
    CRAWLER_MESSAGES,
    CRAWLER_URLS,
    CRAWLER_SUCCESS,
    CRAWLER_ERRORS,
    CRAWLER_LOCKS,
    CRAWLER_SECONDS,
    CRAWLER_QUEUE,
)
"""All of them."""


@dataclass(slots=True)
class Histogram:
    """How many values fell into each bucket and beyond the last, and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class Meter:
    """What this process has counted."""

    counts: Counter[tuple[str, Labels]] = field(default_factory=Counter)
    histograms: dict[tuple[str, Labels], Histogram] = field(default_factory=dict)

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        self.counts[metric.name, labels] += by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        histogram = self._histogram(metric, labels)
        histogram.counts[bisect_left(metric.buckets, value)] += 1
        histogram.total += value

    def _histogram(self, metric: Metric, labels: Labels) -> Histogram:
        return self.histograms.setdefault((metric.name, labels), Histogram([0] * (len(metric.buckets) + 1)))


def numbers_of(said: object) -> dict[str, float]:
    """What a run says of itself, by name; Invalid where it is something else."""
    if not isinstance(said, dict) or len(said) > MOST_NUMBERS:
        raise Invalid("what the run says of itself", said, f"it must be an object of at most {MOST_NUMBERS} numbers")
    for name, value in said.items():
        if not isinstance(name, str) or not NUMBER.fullmatch(name):
            raise Invalid("the name of a number", name, "it must be letters, digits and _, at most 60, no digit first")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_wide(value)):
            raise Invalid(f"the number {name}", value, "it must be a number that is not endless")
    return {name: _wide(value) for name, value in said.items()}


def _wide(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
