"""The attempts of a job, whose logs together are one file."""

from __future__ import annotations

from weft.api.scrapyd.log_text import LogFile, LogPart
from weft.runs.runs import Runs
from weft.scrapyd.model import Job


async def log_file(runs: Runs, job: Job) -> LogFile:
    """Every attempt of a job as one file; the newest may still grow."""
    ended = {each.attempt for each in await runs.attempts(job.run_id)}
    return LogFile([_part(runs, job, number, ended) for number in range(1, job.attempt + 1)])


def _part(runs: Runs, job: Job, attempt: int, ended: set[int]) -> LogPart:
    is_live = attempt == job.attempt and attempt not in ended
    return LogPart(lambda: runs.open_log(job.run_id, attempt), is_live)
