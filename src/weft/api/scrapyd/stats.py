"""``/logs/stats.json`` and ``/logs/<project>/<spider>/<job>.json`` in the form of LogParser, from our own numbers.

ScrapydWeb shows pages, items and errors from them. Each field of LogParser's is there; one that we have no number for
has the value that LogParser gives it before it knows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from weft.api.scrapyd.asked import Asked
from weft.api.scrapyd.log_digest import HEAD_LINES, MATCHES, NA, Digest, digest, seconds_of
from weft.api.scrapyd.log_parts import log_file
from weft.api.scrapyd.log_text import local_second
from weft.api.scrapyd.pages import file_url, runtime
from weft.clock import SECOND, Moment
from weft.items.model import AttemptStats
from weft.scrapyd.figures import newest_stats
from weft.scrapyd.model import Job, JobState

FORM = "0.8.4"
"""The version of LogParser whose form this is; ScrapydWeb looks at no other than its own."""
MOST_LOG = 2 << 20
"""Bytes of a log, at its end, in which lines are looked for; how many there are is in the stats, however long it is."""
COUNTED = {
    "critical_logs": "log_count/CRITICAL",
    "error_logs": "log_count/ERROR",
    "warning_logs": "log_count/WARNING",
    "retry_logs": "retry/count",
    "ignore_logs": "httperror/response_ignored_count",
}
REDIRECTS = "downloader/response_status_count/3"

Document = dict[str, Any]


async def every_job(asked: Asked, at: Moment) -> Response:
    """Every job that runs, and the last that have ended, in few words."""
    listed = await asked.app.jobs.listing(asked.visible())
    begun = [*listed.running, *listed.finished]
    told = await newest_stats(asked.app.db, [job.run_id for job in begun])
    datas: dict[str, dict[str, dict[str, Document]]] = {}
    for job in begun:
        document = _brief(job, told.get(job.run_id), at, str(asked.request.base_url))
        datas.setdefault(job.project, {}).setdefault(job.spider, {})[job.id] = document
    return _json({"status": "ok", "datas": datas, "settings_py": "", "settings": {}, **_updated(at), **_version()})


async def one_job(asked: Asked, job: Job, at: Moment) -> Response:
    """All that is known of a job."""
    log = await log_file(asked.app.runs, job)
    size, beginning, end = await log.ends(MOST_LOG)
    found = await asyncio.to_thread(lambda: digest(beginning.decode(errors="replace"), end.decode(errors="replace")))
    stats = (await newest_stats(asked.app.db, [job.run_id])).get(job.run_id)
    outcome = (await asked.app.runs.get(job.run_id)).outcome
    return _json(job_document(job, found, stats, at, size=size, outcome=outcome, base=str(asked.request.base_url)))


def job_document(
    job: Job, found: Digest, stats: AttemptStats | None, at: Moment, *, size: int, outcome: str | None, base: str
) -> Document:
    brief = _brief(job, stats, at, base)
    counted: Mapping[str, Any] = stats.stats if stats is not None else {}
    first, latest = _first_and_latest(found, brief)
    ended = job.state is JobState.FINISHED
    return {
        **{name: brief[name] for name in ("log_path", "json_path", "json_url")},
        "size": size,
        "position": size,
        "status": "ok",
        "_head": found.head if found.head.count("\n") + 1 < HEAD_LINES else HEAD_LINES,
        "head": found.head,
        "tail": found.tail,
        "first_log_time": first,
        "latest_log_time": latest,
        "runtime": _between(first, latest),
        "first_log_timestamp": seconds_of(first),
        "latest_log_timestamp": seconds_of(latest),
        "datas": found.progress,
        **{name: brief[name] for name in ("pages", "items")},
        "latest_matches": {name: found.matches[name] for name in MATCHES},
        **{f"{name}_timestamp": seconds_of(found.matches[name]) for name in ("latest_crawl", "latest_scrape")},
        "log_categories": _categories(found, counted),
        "shutdown_reason": found.shutdown_reason,
        "finish_reason": _finish_reason(counted, outcome if ended else None),
        "crawler_stats": _crawler_stats(stats),
        **_updated(at),
        **_version(),
        "crawler_engine": {},
    }


def _brief(job: Job, stats: AttemptStats | None, at: Moment, base: str) -> Document:
    log, told = file_url(job, "logs", "log"), file_url(job, "logs", "json")
    end = (job.ended_at or at) if job.state is JobState.FINISHED else (stats.at if stats is not None else at)
    start = min(job.started_at or end, end)
    counted: Mapping[str, Any] = stats.stats if stats is not None else {}
    return {
        "log_path": log,
        "json_path": told,
        "json_url": base.rstrip("/") + told,
        "size": 0,
        "position": 0,
        "status": "ok",
        "pages": _count(counted, "response_received_count", 0 if counted else None),
        "items": _count(counted, "item_scraped_count", stats.items if stats is not None else None),
        "first_log_time": local_second(start // SECOND),
        "latest_log_time": local_second(end // SECOND),
        "runtime": runtime(start, end),
        "shutdown_reason": NA,
        "finish_reason": _finish_reason(counted, None),
        "last_update_time": local_second(at // SECOND),
    }


def _first_and_latest(found: Digest, brief: Document) -> tuple[str, str]:
    """The times of the log's lines; where it has none, those of the job."""
    if found.first_time == NA or found.latest_time == NA:
        return str(brief["first_log_time"]), str(brief["latest_log_time"])
    return found.first_time, found.latest_time


def _between(first: str, latest: str) -> str:
    return runtime(seconds_of(first) * SECOND, seconds_of(latest) * SECOND)


def _categories(found: Digest, counted: Mapping[str, Any]) -> Document:
    """How many lines of each kind: as many as the spider has counted, or as many as were seen."""
    redirects = sum(_count(counted, name, 0) or 0 for name in counted if name.startswith(REDIRECTS))
    numbers = {kind: _count(counted, name, 0) for kind, name in COUNTED.items()} | {"redirect_logs": redirects}
    return {
        kind: {"count": numbers.get(kind) or each.count, "details": each.details}
        for kind, each in found.categories.items()
    }


def _finish_reason(counted: Mapping[str, Any], outcome: str | None) -> str:
    """Scrapy's own; of a job that ended without one, how it ended."""
    return str(counted.get("finish_reason") or outcome or NA)


def _crawler_stats(stats: AttemptStats | None) -> Document:
    if stats is None or not stats.stats:
        return {}
    return {"source": "weft", **_updated(stats.at), **dict(sorted(stats.stats.items()))}


def _count(counted: Mapping[str, Any], name: str, unknown: int | None) -> int | None:
    value = counted.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else unknown


def _updated(at: Moment) -> Document:
    return {"last_update_time": local_second(at // SECOND), "last_update_timestamp": at // SECOND}


def _version() -> Document:
    return {"logparser_version": FORM}


def _json(document: Document) -> Response:
    return Response(json.dumps(document, ensure_ascii=False).encode(errors="replace"), media_type="application/json")
