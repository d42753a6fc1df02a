"""Jobs as the objects of ``listjobs.json``: times local and without a zone, addresses of log and items."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from weft.clock import SECOND, Moment
from weft.scrapyd.model import Job, JobLists


def lists(found: JobLists) -> dict[str, list[dict[str, Any]]]:
    return {
        "pending": [_pending(job) for job in found.pending],
        "running": [_running(job) for job in found.running],
        "finished": [_finished(job) for job in found.finished],
    }


def local_time(at: Moment | None) -> str:
    """Such as ``2026-11-16 04:46:55.000000``, where this process thinks it is."""
    return datetime.fromtimestamp((at or 0) / SECOND).isoformat(" ", "microseconds")  # noqa: DTZ006  # as Scrapyd does


def log_url(job: Job) -> str:
    return f"/logs/{job.project}/{job.spider}/{job.id}.log"


def items_url(job: Job) -> str:
    return f"/items/{job.project}/{job.spider}/{job.id}.jl"


def _named(job: Job) -> dict[str, Any]:
    return {"id": job.id, "project": job.project, "spider": job.spider}


def _pending(job: Job) -> dict[str, Any]:
    return {**_named(job), "version": job.version, "settings": job.settings, "args": job.args}


def _running(job: Job) -> dict[str, Any]:
    return {**_named(job), "pid": job.pid, "start_time": local_time(job.started_at), **_addresses(job)}


def _finished(job: Job) -> dict[str, Any]:
    times = {"start_time": local_time(job.started_at), "end_time": local_time(job.ended_at)}
    return {**_named(job), **times, **_addresses(job)}


def _addresses(job: Job) -> dict[str, Any]:
    return {"log_url": log_url(job), "items_url": items_url(job)}
