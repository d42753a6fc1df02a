"""Jobs as ``listjobs.json`` has them: times local and without a zone, and the addresses of log and items.

There may be a hundred thousand, so each is put together as text, in the form that Python's own encoder gives it.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache

from weft.clock import SECOND, Moment
from weft.scrapyd.model import Job, JobLists

_text = json.encoder.encode_basestring_ascii


def members(found: JobLists) -> str:
    """The members of the answer that are lists of jobs."""
    pending = ", ".join([_pending(job) for job in found.pending])
    running = ", ".join([_running(job) for job in found.running])
    finished = ", ".join([_finished(job) for job in found.finished])
    return f'"pending": [{pending}], "running": [{running}], "finished": [{finished}]'


def local_time(at: Moment | None) -> str:
    """Such as ``2026-11-16 04:46:55.000000``, where this process thinks it is."""
    whole, rest = divmod(at or 0, SECOND)
    return f"{_second(whole)}.{rest:06d}"


def log_url(job: Job) -> str:
    return f"/logs/{job.project}/{job.spider}/{job.id}.log"


def items_url(job: Job) -> str:
    return f"/items/{job.project}/{job.spider}/{job.id}.jl"


@lru_cache(10_000)
def _second(whole: int) -> str:
    """A list names the same few seconds again and again."""
    return datetime.fromtimestamp(whole).isoformat(" ")  # noqa: DTZ006  # as Scrapyd does


def _named(job: Job) -> str:
    return f'"id": {_text(job.id)}, "project": {_text(job.project)}, "spider": {_text(job.spider)}'


def _pending(job: Job) -> str:
    asked = json.dumps({"version": job.version, "settings": job.settings, "args": job.args})
    return f"{{{_named(job)}, {asked[1:-1]}}}"


def _running(job: Job) -> str:
    pid = "null" if job.pid is None else job.pid
    return f'{{{_named(job)}, "pid": {pid}, "start_time": "{local_time(job.started_at)}", {_addresses(job)}}}'


def _finished(job: Job) -> str:
    times = f'"start_time": "{local_time(job.started_at)}", "end_time": "{local_time(job.ended_at)}"'
    return f"{{{_named(job)}, {times}, {_addresses(job)}}}"


def _addresses(job: Job) -> str:
    return f'"log_url": {_text(log_url(job))}, "items_url": {_text(items_url(job))}'
