"""The metrics of weft, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from weft import __version__
from weft import metrics as m
from weft.access.model import Role
from weft.app import App
from weft.clock import SECOND, now
from weft.counters import store
from weft.counters.counters import CounterTotals
from weft.counters.store import MINUTE, CounterSeries
from weft.crawls.metrics import CrawlMetrics, measure_crawls
from weft.operations.operation import Call, Operations
from weft.ports import STATES
from weft.proxies.model import VERDICTS
from weft.proxies.spending import UNIT
from weft.workers.workers import WorkerStatus

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

Values = Mapping[tuple[str, ...], float]
Histograms = Mapping[tuple[str, ...], m.Histogram]

OF_SPIDERS = {m.ITEMS: store.ITEMS, m.PAGES: store.PAGES, m.ERRORS: store.ERRORS, m.BYTES: store.BYTES}
OF_WORKERS = {
    m.WORKER_ITEMS: store.ITEMS,
    m.WORKER_PAGES: store.PAGES,
    m.WORKER_ERRORS: store.ERRORS,
    m.WORKER_BYTES: store.BYTES,
}
DONE, FAILED = f"{store.URLS}done", f"{store.URLS}failed"


async def counted_metrics(app: App) -> tuple[dict[m.Metric, Values], dict[m.Metric, Histograms]]:
    """Counters and histograms, and those of them by the names that other crawlers have."""
    totals, recent = await app.counters.totals(), (await app.counters.recent())[MINUTE]
    values: dict[m.Metric, Values] = {
        metric: {(*of,): count for of, count in totals.by_name(name).items()} for metric, name in OF_SPIDERS.items()
    }
    for metric, name in OF_WORKERS.items():
        values[metric] = {(worker,): count for worker, count in totals.by_worker(name).items()}
    urls, ended = _by_rest(totals, store.URLS), totals.metrics(store.ENDED)
    values[m.URLS] = {(*of, state): count for state, names in urls.items() for of, count in names.items()}
    values[m.RUNS_ENDED] = {
        (project, outcome): count
        for outcome, names in _by_rest(totals, store.ENDED).items()
        for (project, _), count in names.items()
    }
    values[m.WORKER_ENDED] = {
        (worker, each.removeprefix(store.ENDED)): count
        for each in sorted(ended)
        for worker, count in totals.by_worker(each).items()
    }
    values[m.CRAWLER_MESSAGES] = {(): totals.sum(store.MESSAGES)}
    values[m.CRAWLER_URLS] = {(): totals.sum(DONE) + totals.sum(FAILED)}
    fetches = _histograms(totals, store.FETCH, m.FETCH_SECONDS)
    together = {m.DISPATCH_SECONDS: store.DISPATCH, m.LATENESS_SECONDS: store.LATENESS, m.CRAWLER_SECONDS: store.FETCH}
    histograms: dict[m.Metric, Histograms] = {m.FETCH_SECONDS: fetches}
    for metric, name in together.items():
        histograms[metric] = {(): _summed(_histograms(totals, name, metric), metric)}
    return values | _rates(recent), histograms


def _by_rest(totals: CounterTotals, begin: str) -> dict[str, dict[tuple[str, str], int]]:
    """By what comes behind the begin of a name."""
    return {each.removeprefix(begin): totals.by_name(each) for each in sorted(totals.metrics(begin))}


def _rates(hour: CounterSeries) -> dict[m.Metric, Values]:
    """What part of the last hour went well; nothing where there was nothing."""
    done, failed, asks, met = (sum(hour.of(name)) for name in (DONE, FAILED, store.ASKS, store.ASKS_MET))
    found: dict[m.Metric, Values] = {}
    if done + failed:
        found[m.CRAWLER_SUCCESS] = {(): done / (done + failed)}
        found[m.CRAWLER_ERRORS] = {(): failed / (done + failed)}
    if asks:
        found[m.CRAWLER_LOCKS] = {(): met / asks}
    return found


def _histograms(totals: CounterTotals, name: str, metric: m.Metric) -> dict[tuple[str, ...], m.Histogram]:
    found: dict[tuple[str, ...], m.Histogram] = {}
    for place, bound in enumerate((*map("{:g}".format, metric.buckets), store.BEYOND)):
        for of, count in totals.by_name(f"{name}/{bound}").items():
            found.setdefault(of, _empty_histogram(metric)).counts[place] = count
    for of, total in totals.by_name(f"{name}/{store.SUM}").items():
        found.setdefault(of, _empty_histogram(metric)).total = total / SECOND
    return found


def _summed(histograms: Mapping[tuple[str, ...], m.Histogram], metric: m.Metric) -> m.Histogram:
    found = _empty_histogram(metric)
    for each in histograms.values():
        found.counts = [one + other for one, other in zip(found.counts, each.counts, strict=True)]
        found.total += each.total
    return found


def _empty_histogram(metric: m.Metric) -> m.Histogram:
    return m.Histogram([0] * (len(metric.buckets) + 1))


GaugeValues = dict[tuple[str, ...], float]


async def crawl_gauges(app: App) -> dict[m.Metric, GaugeValues]:
    """Of every crawl that is not over: what it knows, how fast it is, and what goes wrong."""
    found = {_labels(each): each for each in await measure_crawls(app.db, app.crawls)}
    known = found.items()
    return {
        m.CRAWLS: {(state,): count for state, count in (await app.crawls.states()).items()},
        m.CRAWL_URLS: {(*of, state): getattr(each.counts, state) for of, each in known for state in STATES},
        m.CRAWL_BACKLOG: {of: each.backlog for of, each in known},
        m.CRAWLER_QUEUE: {(): sum(each.backlog for each in found.values())},
        m.CRAWL_HOSTS: {of: each.counts.hosts for of, each in known},
        m.CRAWL_BYTES: {of: each.counts.size for of, each in known},
        m.CRAWL_RATE: {of: each.pages_per_second for of, each in known},
        m.CRAWL_SUCCESS: {of: each.success_ratio for of, each in known if each.success_ratio is not None},
        m.CRAWL_LEASES: {of: each.lease_ratio for of, each in known if each.lease_ratio is not None},
        m.CRAWL_FETCH: {of: each.fetch_seconds for of, each in known if each.fetch_seconds is not None},
    }


def _labels(each: CrawlMetrics) -> tuple[str, ...]:
    return each.crawl.project, each.crawl.name, str(each.crawl.id)


METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

operations = Operations("metrics", prefix="")

LARGEST_VALUE, LONGEST_LABEL, MOST_BREAKERS = 2**63, 200, 100
"""How much is believed of what a worker says of itself."""


@operations.get(
    "/metrics", needs=Role.VIEWER, media_type=METRICS_MEDIA_TYPE, example=f'weft_build{{version="{__version__}"}} 1.0\n'
)
async def read(call: Call) -> Response:
    """Tell every metric, as Prometheus reads it."""
    call.check_everywhere()
    await call.app.measure.catch_up()
    values, histograms = await counted_metrics(call.app)
    return Response(
        _exposition(call.app.meter, await _gauges(call.app) | values, histograms), media_type=METRICS_MEDIA_TYPE
    )


async def _gauges(app: App) -> dict[m.Metric, Values]:
    workers = await app.workers.all()
    here = [worker for worker in workers if worker.state not in ("offline", "lost")]
    at, spent = now(), await app.proxies.totals()
    return {
        m.BUILD: {(__version__,): 1},
        m.RUNNING: {(*of,): count for of, count in (await app.measure.running()).items()},
        m.RUNS: {(state,): count for state, count in (await _run_counts(app)).items()},
        m.WORKERS: _counted((worker.state,) for worker in workers),
        m.WORKER_CAPACITY: {(worker.name,): worker.capacity for worker in here},
        m.WORKER_RUNNING: {(worker.name,): worker.running for worker in here},
        m.WORKER_DONE: {(worker.name,): worker.done for worker in here},
        m.WORKER_SILENT: {(worker.name,): worker.silent_seconds(at) for worker in here},
        m.WORKER_LABELS: {(worker.name, label): 1 for worker in here for label in worker.labels},
        m.WORKER_MEMORY: _reported(here, "memory_bytes"),
        m.WORKER_CPU: _reported(here, "cpu_seconds"),
        m.CUSTOM: {
            (*of, name): number for of, numbers in app.measure.reported.items() for name, number in numbers.items()
        },
        m.WEBHOOK_BREAKERS: {
            (str(webhook_id), app.webhooks.state(circuit)): 1
            for webhook_id, circuit in (await app.webhooks.circuits()).items()
            if not circuit.is_closed
        },
        m.INTAKE_CONNECTED: {(each.inbox.name,): each.fault is None for each in app.receivers},
        m.LIMITER_DEGRADED: _reported(here, "limiter_degraded"),
        m.PROXY_REQUESTS: {
            (each["project"], each["name"], verdict): each[verdict]
            for each in spent
            for verdict in VERDICTS
            if each[verdict]
        },
        m.PROXY_COST: {(each["project"], each["name"]): each["cost"] / UNIT for each in spent},
        m.BREAKERS: {labels: 1 for worker in here for labels in _open_breakers(worker)},
        **await crawl_gauges(app),
    }


def _open_breakers(worker: WorkerStatus) -> Iterator[tuple[str, ...]]:
    """Those that a worker tells of; a remote one may say anything."""
    told = worker.stats.get("breakers")
    for breaker in told[:MOST_BREAKERS] if isinstance(told, list) else ():
        if isinstance(breaker, dict) and breaker.get("state") != "closed":
            target, state, project = (
                str(breaker.get(each, ""))[:LONGEST_LABEL] for each in ("target", "state", "project")
            )
            yield worker.name, target, state, project


def _reported(workers: Iterable[WorkerStatus], what: str) -> dict[tuple[str, ...], float]:
    """What workers say of themselves with each beat; those of an older version may not."""
    found = {(worker.name,): worker.stats.get(what) for worker in workers}
    return {
        labels: float(value)
        for labels, value in found.items()
        if isinstance(value, int | float) and 0 <= value < LARGEST_VALUE
    }


def _counted(labels: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for each in labels:
        found[each] = found.get(each, 0) + 1
    return found


async def _run_counts(app: App) -> dict[str, int]:
    """Runs by state; those that a limit holds back are counted apart from those that are ready."""
    counts, held = await app.runs.counts(), await app.runs.held()
    ready = counts.get("ready", 0)
    return {**counts, "ready": max(0, ready - held), "held": min(held, ready)}


def _exposition(meter: m.Meter, values: Mapping[m.Metric, Values], histograms: Mapping[m.Metric, Histograms]) -> bytes:
    from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    own, own_histograms = _process_metrics(meter)
    families = [
        _family(
            metric,
            own.get(metric.name) or values.get(metric, {}),
            own_histograms.get(metric.name) or histograms.get(metric, {}),
        )
        for metric in m.METRICS
    ]
    registry.register(_CollectedFamilies(families))
    return generate_latest(registry)


def _process_metrics(meter: m.Meter) -> tuple[dict[str, dict[m.Labels, float]], dict[str, dict[m.Labels, m.Histogram]]]:
    """What this process has counted itself, by the name of the metric."""
    counts: dict[str, dict[m.Labels, float]] = {}
    for (name, labels), count in meter.counts.items():
        counts.setdefault(name, {})[labels] = count
    histograms: dict[str, dict[m.Labels, m.Histogram]] = {}
    for (name, labels), histogram in meter.histograms.items():
        histograms.setdefault(name, {})[labels] = histogram
    return counts, histograms


class _CollectedFamilies:
    """Metrics that were made already, as the registry asks for them."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


def _family(metric: m.Metric, values: Values, histograms: Histograms) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.doc, labels=metric.labels)
        bounds = [*(f"{bound:g}" for bound in metric.buckets), "+Inf"]
        for labels, each in histograms.items():
            histogram.add_metric(labels, list(zip(bounds, accumulate(each.counts), strict=True)), each.total)
        return histogram
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = family(metric.name, metric.doc, labels=metric.labels)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made
