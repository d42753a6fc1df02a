"""Job statistics in the form of LogParser: ``/logs/stats.json`` and ``/logs/<project>/<spider>/<job>.json``."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from weft.clock import SECOND, Moment
from weft.db.database import Database, Transaction
from weft.items import item_store
from weft.items.model import AttemptStats
from weft.scrapyd.model import Job, JobState
from weft.scrapyd_http.logs import job_log, local_second
from weft.scrapyd_http.pages import file_url, runtime
from weft.scrapyd_http.requests import ScrapydRequest


async def newest_stats(db: Database, run_ids: Iterable[int]) -> dict[int, AttemptStats]:
    """By run; one that has told nothing yet is not among them."""

    def work(tx: Transaction) -> dict[int, AttemptStats]:
        found = ((run_id, item_store.stats_of(tx, run_id)) for run_id in run_ids)
        return {run_id: told[-1] for run_id, told in found if told}

    return await db.read(work)


NOT_AVAILABLE = "N/A"
HEAD_LINES, TAIL_LINES, MOST_DETAILS = 100, 200, 10
LONGEST_TEXT, LONGEST_DETAIL = 200_000, 20_000

_ENTRY = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]\n]*\] (DEBUG|INFO|WARNING|ERROR|CRITICAL): ", re.MULTILINE
)
_PROGRESS = re.compile(r"Crawled (\d+) pages \(at (\d+) pages/min\), scraped (\d+) items \(at (\d+) items/min\)")
_SIGNAL = re.compile(r"Received SIG(?:BREAK|INT|TERM)(?: twice)?(?=,)")
_SCRAPED = "Scraped from <"

FIRST = {
    "scrapy_version": re.compile(r"Scrapy (\d+\.\d+\.\d+) started"),
    "telnet_console": re.compile(r"Telnet console listening on (\S+)"),
    "resuming_crawl": re.compile(r"(?=Resuming crawl)"),
}
"""Of these the first counts; a group is what is told, otherwise the line."""
LATEST = {
    "latest_offsite": "Filtered offsite",
    "latest_duplicate": "Filtered duplicate",
    "latest_crawl": "Crawled (",
    "latest_stat": " pages (at ",
}
LEVELS = {"critical_logs": "CRITICAL", "error_logs": "ERROR", "warning_logs": "WARNING"}
KINDS = {
    "redirect_logs": re.compile(r"^Redirecting \("),
    "retry_logs": re.compile(r"(?:^| )[Rr]etrying <"),
    "ignore_logs": re.compile(r"^Ignoring response <"),
}
GAVE_UP = "Gave up retrying <"
MATCHES = (
    *("scrapy_version", "telnet_console", "telnet_username", "telnet_password", "resuming_crawl"),
    *("latest_offsite", "latest_duplicate", "latest_crawl", "latest_stat", "latest_scrape", "latest_item"),
)
"""Every name in LogParser's order. Name and password of the telnet console are never told."""

CrawlProgress = tuple[str, int, int, int, int]


@dataclass(slots=True)
class LogCategory:
    count: int = 0
    details: list[str] = field(default_factory=list)

    def add(self, text: str, *, counts: bool = True) -> None:
        self.count += counts
        self.details = [*self.details, text[:LONGEST_DETAIL]][-MOST_DETAILS:]


@dataclass(slots=True)
class LogDigest:
    """What a log says; times are local, as in its lines."""

    head: str = ""
    tail: str = ""
    first_time: str = NOT_AVAILABLE
    latest_time: str = NOT_AVAILABLE
    progress: list[CrawlProgress] = field(default_factory=list)
    matches: dict[str, str] = field(default_factory=lambda: dict.fromkeys(MATCHES, ""))
    categories: dict[str, LogCategory] = field(
        default_factory=lambda: {name: LogCategory() for name in (*LEVELS, *KINDS)}
    )
    shutdown_reason: str = NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class _LogEntry:
    at: str
    level: str
    text: str
    """All of its lines."""
    message: str
    """What its first line says."""

    @property
    def line(self) -> str:
        return self.text.partition("\n")[0]


def digest_log(beginning: str, end: str) -> LogDigest:
    """What a log says whose beginning and end these are; of a short one both are all of it."""
    found = LogDigest(_first_lines(beginning), _last_lines(end))
    for entry in _entries(beginning):
        found.first_time = entry.at if found.first_time == NOT_AVAILABLE else found.first_time
        _note_first(found, entry)
    for entry in _entries(end):
        found.latest_time = entry.at
        _note_latest(found, entry)
        _note_kind(found, entry)
    return found


def seconds_of(text: str) -> int:
    """A local time as seconds since 1970; 0 where it is none."""
    try:
        return int(time.mktime(time.strptime(text[:19], "%Y-%m-%d %H:%M:%S")))
    except (ValueError, OverflowError):
        return 0


def _entries(text: str) -> Iterator[_LogEntry]:
    heads = list(_ENTRY.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        whole = text[head.start() : end].rstrip("\n")
        yield _LogEntry(head[1], head[2], whole, whole[head.end() - head.start() :].partition("\n")[0])


def _note_first(found: LogDigest, entry: _LogEntry) -> None:
    for name, pattern in FIRST.items():
        if not found.matches[name] and (met := pattern.search(entry.message)):
            found.matches[name] = met[1] if pattern.groups else entry.line


def _note_latest(found: LogDigest, entry: _LogEntry) -> None:
    for name, words in LATEST.items():
        if words in entry.message:
            found.matches[name] = entry.line
    if entry.message.startswith(_SCRAPED) and (item := entry.text.partition("\n")[2]).startswith("{"):
        found.matches |= {"latest_scrape": entry.line, "latest_item": item[:LONGEST_DETAIL]}
    if met := _PROGRESS.search(entry.message):
        pages, pages_min, items, items_min = map(int, met.groups())
        found.progress.append((entry.at, pages, pages_min, items, items_min))
    if met := _SIGNAL.search(entry.message):
        found.shutdown_reason = met[0]


def _note_kind(found: LogDigest, entry: _LogEntry) -> None:
    for name, level in LEVELS.items():
        if entry.level == level:
            found.categories[name].add(entry.text)
    for name, pattern in KINDS.items():
        if pattern.search(entry.message):
            found.categories[name].add(entry.text, counts=GAVE_UP not in entry.message)


def _first_lines(text: str) -> str:
    return "\n".join(text[:LONGEST_TEXT].strip().split("\n")[:HEAD_LINES])


def _last_lines(text: str) -> str:
    return "\n".join(text[-LONGEST_TEXT:].strip().split("\n")[-TAIL_LINES:])


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


async def stats_json(asked: ScrapydRequest, at: Moment) -> Response:
    """Every job that runs, and the last that have ended, in few words."""
    listed = await asked.app.jobs.listing(asked.visible())
    begun = [*listed.running, *listed.finished]
    told = await newest_stats(asked.app.db, [job.run_id for job in begun])
    datas: dict[str, dict[str, dict[str, Document]]] = {}
    for job in begun:
        document = _job_summary(job, told.get(job.run_id), at, str(asked.request.base_url))
        datas.setdefault(job.project, {}).setdefault(job.spider, {})[job.id] = document
    return _json({"status": "ok", "datas": datas, "settings_py": "", "settings": {}, **_updated(at), **_version()})


async def job_json(asked: ScrapydRequest, job: Job, at: Moment) -> Response:
    """All that is known of a job."""
    log = await job_log(asked.app.runs, job)
    size, beginning, end = await log.ends(MOST_LOG)
    found = await asyncio.to_thread(
        lambda: digest_log(beginning.decode(errors="replace"), end.decode(errors="replace"))
    )
    stats = (await newest_stats(asked.app.db, [job.run_id])).get(job.run_id)
    outcome = (await asked.app.runs.get(job.run_id)).outcome
    return _json(job_document(job, found, stats, at, size=size, outcome=outcome, base=str(asked.request.base_url)))


def job_document(
    job: Job, found: LogDigest, stats: AttemptStats | None, at: Moment, *, size: int, outcome: str | None, base: str
) -> Document:
    brief = _job_summary(job, stats, at, base)
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


def _job_summary(job: Job, stats: AttemptStats | None, at: Moment, base: str) -> Document:
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
        "shutdown_reason": NOT_AVAILABLE,
        "finish_reason": _finish_reason(counted, None),
        "last_update_time": local_second(at // SECOND),
    }


def _first_and_latest(found: LogDigest, brief: Document) -> tuple[str, str]:
    """The times of the log's lines; where it has none, those of the job."""
    if found.first_time == NOT_AVAILABLE or found.latest_time == NOT_AVAILABLE:
        return str(brief["first_log_time"]), str(brief["latest_log_time"])
    return found.first_time, found.latest_time


def _between(first: str, latest: str) -> str:
    return runtime(seconds_of(first) * SECOND, seconds_of(latest) * SECOND)


def _categories(found: LogDigest, counted: Mapping[str, Any]) -> Document:
    """How many lines of each kind: as many as the spider has counted, or as many as were seen."""
    redirects = sum(_count(counted, name, 0) or 0 for name in counted if name.startswith(REDIRECTS))
    numbers = {kind: _count(counted, name, 0) for kind, name in COUNTED.items()} | {"redirect_logs": redirects}
    return {
        kind: {"count": numbers.get(kind) or each.count, "details": each.details}
        for kind, each in found.categories.items()
    }


def _finish_reason(counted: Mapping[str, Any], outcome: str | None) -> str:
    """Scrapy's own; of a job that ended without one, how it ended."""
    return str(counted.get("finish_reason") or outcome or NOT_AVAILABLE)


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
