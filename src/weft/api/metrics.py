"""``/metrics``: what this gateway has counted and how the whole weft stands, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from weft import __version__
from weft import metrics as m
from weft.access.model import Role
from weft.api.call import Call
from weft.api.crawl_metrics import crawl_gauges
from weft.api.operation import Operations
from weft.app import App
from weft.clock import now
from weft.fetching.proxy_plan import VERDICTS
from weft.fetching.spending import UNIT
from weft.workers.workers import WorkerInfo

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

TYPE = "text/plain; version=0.0.4; charset=utf-8"

operations = Operations("metrics", prefix="")

Values = Mapping[tuple[str, ...], float]

MOST, LONGEST, MOST_BREAKERS = 2**63, 200, 100
"""How much is believed of what a worker says of itself."""


@operations.get("/metrics", needs=Role.VIEWER, media_type=TYPE, example=f'weft_build{{version="{__version__}"}} 1.0\n')
async def read(call: Call) -> Response:
    """Tell every metric, as Prometheus reads it."""
    call.check_everywhere()
    await call.app.measure.catch_up()
    gauges = await _gauges(call.app)
    return Response(_text(call.app.meter, gauges), media_type=TYPE)


async def _gauges(app: App) -> dict[m.Metric, Values]:
    workers = await app.workers.all()
    here = [worker for worker in workers if worker.state not in ("offline", "lost")]
    at, spent = now(), await app.proxies.totals()
    return {
        m.BUILD: {(__version__,): 1},
        m.RUNS: {(state,): count for state, count in (await app.runs.counts()).items()},
        m.WORKERS: _counted((worker.state,) for worker in workers),
        m.WORKER_CAPACITY: {(worker.name,): worker.capacity for worker in here},
        m.WORKER_RUNNING: {(worker.name,): worker.running for worker in here},
        m.WORKER_DONE: {(worker.name,): worker.done for worker in here},
        m.WORKER_SILENT: {(worker.name,): worker.silent_seconds(at) for worker in here},
        m.WORKER_LABELS: {(worker.name, label): 1 for worker in here for label in worker.labels},
        m.WORKER_MEMORY: _said(here, "memory_bytes"),
        m.WORKER_CPU: _said(here, "cpu_seconds"),
        m.CUSTOM: {
            (*of, name): number for of, numbers in app.measure.reported.items() for name, number in numbers.items()
        },
        m.WEBHOOK_BREAKERS: {
            (str(webhook_id), app.webhooks.state(circuit)): 1
            for webhook_id, circuit in (await app.webhooks.circuits()).items()
            if not circuit.is_closed
        },
        m.INTAKE_CONNECTED: {(each.inbox.name,): each.fault is None for each in app.receivers},
        m.LIMITER_DEGRADED: _said(here, "limiter_degraded"),
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


def _open_breakers(worker: WorkerInfo) -> Iterator[tuple[str, ...]]:
    """Those that a worker tells of; a remote one may say anything."""
    told = worker.stats.get("breakers")
    for breaker in told[:MOST_BREAKERS] if isinstance(told, list) else ():
        if isinstance(breaker, dict) and breaker.get("state") != "closed":
            yield worker.name, str(breaker.get("target"))[:LONGEST], str(breaker.get("state"))[:LONGEST]


def _said(workers: Iterable[WorkerInfo], what: str) -> dict[tuple[str, ...], float]:
    """What workers say of themselves with each beat; those of an older version may not."""
    found = {(worker.name,): worker.stats.get(what) for worker in workers}
    return {
        labels: float(value) for labels, value in found.items() if isinstance(value, int | float) and 0 <= value < MOST
    }


def _counted(labels: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for each in labels:
        found[each] = found.get(each, 0) + 1
    return found


def _text(meter: m.Meter, gauges: Mapping[m.Metric, Values]) -> bytes:
    from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Families([_family(metric, meter, gauges.get(metric, {})) for metric in m.METRICS]))
    return generate_latest(registry)


class _Families:
    """Metrics that were made already, as the registry asks for them."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


def _family(metric: m.Metric, meter: m.Meter, values: Values) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.doc, labels=metric.labels)
        for (name, labels), counted in meter.histograms.items():
            if name == metric.name:
                bounds = [*(f"{bound:g}" for bound in metric.buckets), "+Inf"]
                buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
                histogram.add_metric(labels, buckets, counted.total)
        return histogram
    if metric.kind == "counter":
        counter = CounterMetricFamily(metric.name, metric.doc, labels=metric.labels)
        for (name, labels), count in meter.counts.items():
            if name == metric.name:
                counter.add_metric(labels, count)
        return counter
    gauge = GaugeMetricFamily(metric.name, metric.doc, labels=metric.labels)
    for labels, value in values.items():
        gauge.add_metric(labels, value)
    return gauge
