"""Takes over what has ended: each job of a Scrapyd becomes a run that has ended, with its log and its items.

The run is written first, its log and its items after it, and each step finds what an import before it has done. So one
that was killed anywhere goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.access.model import NAME
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.ports import Blobs
from weft.runs.log_shelf import keep_log
from weft.runs.model import NewRun, Outcome, RunSpec, RunState, storable
from weft.scrapyd import import_dbs, import_folders, import_store
from weft.scrapyd.conf import ScrapydConf
from weft.scrapyd.import_folders import opened
from weft.scrapyd.import_items import ItemShelf, Owner
from weft.scrapyd.import_logs import read_end
from weft.scrapyd.import_model import IMPORTED, ORIGIN, Fate, Finished, JobKey, Kind, LogEnd, Report
from weft.scrapyd.job_store import KIND
from weft.workers.wire import log_key

AT_ONCE = 100
"""Jobs whose runs one transaction writes."""
LARGEST_LOG = 4 << 30
STILL_SECONDS = 120.0
"""What was written to within that, and does not say how it ended, may still run: Scrapy writes each minute."""
DAY_SECONDS = 86_400.0
MOST_OF_A_NAME = 20

ENDS = {
    "finished": (RunState.SUCCEEDED, Outcome.SUCCEEDED),
    "shutdown": (RunState.CANCELLED, Outcome.CANCELLED),
    "start_error": (RunState.FAILED, Outcome.FAILED),
}
"""What Scrapy's reasons mean; any other is one that the spider chose, and it succeeded."""


@dataclass(frozen=True, slots=True)
class Found:
    """A job that has ended, and what its log tells."""

    job: Finished
    end: LogEnd | None


@dataclass(frozen=True, slots=True)
class Placed:
    """The run of a job: ``is_new`` where it was written now, or would be."""

    found: Found
    run_id: int
    is_new: bool
    has_log: bool
    finished_at: Moment
    problem: str = ""


class FinishedImport:
    def __init__(self, db: Database, blobs: Blobs, clock: Clock) -> None:
        self._db, self._blobs, self._clock = db, blobs, clock
        self._items = ItemShelf(db, clock)

    async def take(self, conf: ScrapydConf, only: str | None, report: Report, *, dry_run: bool) -> None:
        """Write a run for each job, in the order in which they ended, with all that is known of it."""
        jobs = await asyncio.to_thread(all_jobs, conf, only, report)
        for start in range(0, len(jobs), AT_ONCE):
            found = await asyncio.to_thread(_looked_at, conf, jobs[start : start + AT_ONCE], report)
            work = self._db.read if dry_run else self._db.transact
            for each in await work(lambda tx: self._place_all(tx, found, dry_run=dry_run)):  # noqa: B023
                await self._fill(conf, each, report, dry_run=dry_run)
            report.tell(f"{min(start + AT_ONCE, len(jobs))} of {len(jobs)} jobs that have ended were looked at")
        for project, count in report.too_old.items():
            report.notes.append(f"logs and items of {count} jobs of {project} are older than it keeps them (keep_days)")

    def _place_all(self, tx: Transaction, found: Sequence[Found], *, dry_run: bool) -> list[Placed]:
        projects = {each.job.key[0] for each in found}
        known: dict[str, dict[str, import_store.Named]] = {}
        for project in projects:
            names = [each.job.key[2] for each in found if each.job.key[0] == project]
            known[project] = import_store.named(tx, project, names)
        return [self._place(tx, each, known[each.job.key[0]], dry_run=dry_run) for each in found]

    def _place(self, tx: Transaction, found: Found, known: dict[str, import_store.Named], *, dry_run: bool) -> Placed:
        """The run of a job: the one that an earlier import has written, or a new one under a name that is free."""
        project, spider, job = found.job.key
        began, ended = _times(found)
        if job in known and (known[job].spider, known[job].origin) != (spider, job):
            names = [job, *(f"{job[:190]}-{number}" for number in range(2, MOST_OF_A_NAME + 1))]
            known |= import_store.named(tx, project, names)
        else:
            names = [job]
        for name in names:
            there = known.get(name)
            if there is None:
                new = 0 if dry_run else self._add(tx, found, name, began, ended)
                known[name] = import_store.Named(new, spider, job, ended, False)
                return Placed(found, new, True, False, ended)
            if (there.spider, there.origin) == (spider, job):
                return Placed(found, there.run_id, False, there.has_log, there.finished_at or ended)
        problem = f"{MOST_OF_A_NAME} jobs of the name {job} are there already"
        return Placed(found, 0, False, False, ended, problem)

    def _add(self, tx: Transaction, found: Found, name: str, began: Moment, ended: Moment) -> int:
        project, spider, job = found.job.key
        spec = RunSpec(spec={"spider": spider, "args": {"_job": job}, "settings": {}})
        run = NewRun(project=project, task=spider if NAME.fullmatch(spider) else KIND, kind=KIND, spec=spec)
        return import_store.add_ended(tx, run, name, _ending(found, began, ended), began)

    async def _fill(self, conf: ScrapydConf, placed: Placed, report: Report, *, dry_run: bool) -> None:
        """Add to a run what is not there yet: its numbers, its log, its items."""
        job = placed.found.job
        if placed.problem:
            report.refuse(Kind.FINISHED, "/".join(job.key), placed.problem)
            return
        report.count(Kind.FINISHED, Fate.TAKEN if placed.is_new else Fate.KNOWN)
        if dry_run:
            _foretell(placed, report)
            return
        if await self._is_too_old(job.key[0], placed.finished_at):
            report.too_old[job.key[0]] += 1
            return
        owner = _owner(placed)
        if job.has_log:
            await self._keep_log(conf, placed, owner, report)
        if job.has_items:
            await self._keep_items(conf, job.key, owner, report)

    async def _keep_log(self, conf: ScrapydConf, placed: Placed, owner: Owner, report: Report) -> None:
        end, key = placed.found.end, placed.found.job.key
        if placed.has_log:
            report.count(Kind.LOG, Fate.KNOWN)
            return
        size = 0 if end is None else end.size
        if size > LARGEST_LOG:
            report.refuse(Kind.LOG, _file(key, ".log"), f"it has {size} bytes; {LARGEST_LOG} are allowed")
            return
        top, place = conf.place("logs_dir"), log_key(placed.run_id, import_store.ATTEMPT)
        with opened(top, Kind.LOG, *key) as file:
            if file is None:
                report.refuse(Kind.LOG, _file(key, ".log"), import_folders.NOT_PLAIN)
                return
            await keep_log(self._blobs, place, size, lambda offset, length: os.pread(file, length, offset))
        await self._db.transact(lambda tx: self._log_is_kept(tx, owner, place, size))
        report.count(Kind.LOG, Fate.TAKEN)

    def _log_is_kept(self, tx: Transaction, owner: Owner, key: str, size: int) -> None:
        import_store.set_log(tx, owner.id, key, size)
        if owner.stats != "{}":
            import_store.begin_stats(tx, owner.id, None, owner.stats, self._clock())

    async def _keep_items(self, conf: ScrapydConf, key: JobKey, owner: Owner, report: Report) -> None:
        before = await self._db.read(lambda tx: import_store.has_dataset(tx, owner.id))
        with opened(conf.place("items_dir"), Kind.ITEMS, *key) as file:
            if file is None:
                report.refuse(Kind.ITEMS, _file(key, ".jl"), import_folders.NOT_PLAIN)
                return
            taken, bad = await self._items.keep(owner, file)
        report.items += taken - bad
        report.bad_items += bad
        if bad:
            report.refuse(Kind.ITEMS, _file(key, ".jl"), f"{bad} of its lines are no items; the others were taken")
        else:
            report.count(Kind.ITEMS, Fate.KNOWN if before and not taken else Fate.TAKEN)

    async def _is_too_old(self, project: str, finished_at: Moment) -> bool:
        """Whether the sweeper would take it away again, or has done so already."""
        days = await self._db.read(lambda tx: import_store.keep_days(tx, project))
        return days is not None and finished_at < self._clock() - seconds(days * DAY_SECONDS)


def all_jobs(conf: ScrapydConf, only: str | None, report: Report) -> list[Finished]:
    """Every job that has ended, from all that tells of one, in the order in which they ended."""
    jobs: dict[JobKey, Finished] = {}
    again: Counter[JobKey] = Counter()
    if (dbs := conf.place("dbs_dir")) is not None:
        for each in import_dbs.finished(dbs, report):
            if only not in (None, each.key[0]):
                continue
            if (problem := import_folders.problem_of(each.key)) is not None:
                report.refuse(Kind.FINISHED, import_folders.shown("/".join(each.key)), problem)
            else:
                again[each.key] += each.key in jobs
                jobs[each.key] = each
    report.notes += [
        f"{'/'.join(key)} has ended {count + 1} times; its last end is taken" for key, count in again.items() if count
    ]
    for kind, name in ((Kind.LOG, "logs_dir"), (Kind.ITEMS, "items_dir")):
        if (top := conf.place(name)) is not None:
            import_folders.merged(jobs, kind, import_folders.files_of_jobs(top, only, kind, report), report)
    for key in [each.key for each in jobs.values() if not each.seen_at]:
        report.refuse(Kind.FINISHED, "/".join(key), "it has no file, and nothing says when it ended")
        del jobs[key]
    return sorted(jobs.values(), key=lambda each: (each.seen_at, each.key))


def _looked_at(conf: ScrapydConf, jobs: Sequence[Finished], report: Report) -> list[Found]:
    """What the logs of these jobs tell; those that may still run are left out, and told."""
    found = []
    for job in jobs:
        end = _end_of(conf, job)
        if job.ended_at is None and (end is None or end.finish_reason is None) and _is_fresh(job):
            ago = f"{time.time() - job.changed_at / SECOND:.0f} s ago"
            why = f"it may still run: it was written to {ago}; import again when it has ended"
            report.refuse(Kind.LOG if job.has_log else Kind.ITEMS, "/".join(job.key), why)
        else:
            found.append(Found(job, end))
    return found


def _end_of(conf: ScrapydConf, job: Finished) -> LogEnd | None:
    if not job.has_log:
        return None
    with opened(conf.place("logs_dir"), Kind.LOG, *job.key) as file:
        return None if file is None else read_end(file)


def _is_fresh(job: Finished) -> bool:
    return time.time() - job.changed_at / SECOND < STILL_SECONDS


def _times(found: Found) -> tuple[Moment, Moment]:
    """When a job began and ended: as Scrapyd has stored it, else as its log tells, else when that was written."""
    job, end = found.job, found.end or LogEnd()
    latest = job.changed_at + SECOND if job.changed_at else None
    told = [None if at is None else min(at, latest or at) for at in (end.started_at, end.ended_at)]
    ended = job.ended_at or told[1] or job.changed_at
    began = job.started_at or told[0] or ended
    return min(began, ended), ended


def _ending(found: Found, began: Moment, ended: Moment) -> dict[str, Any]:
    state, outcome, reason = _outcome(found)
    trouble = None if outcome is Outcome.SUCCEEDED else outcome.value
    times = {"started_at": began, "finished_at": ended}
    result = msgspec.json.encode(_result(found)).decode()
    return {
        "state": state.value,
        "outcome": outcome.value,
        "reason": reason,
        "trouble": trouble,
        "result": result,
    } | times


def _outcome(found: Found) -> tuple[RunState, Outcome, str]:
    if found.end is None:
        return RunState.SUCCEEDED, Outcome.SUCCEEDED, f"{IMPORTED}; how it ended is not known: it has no log"
    reason = found.end.finish_reason
    if reason is None:
        return RunState.FAILED, Outcome.FAILED, f"{IMPORTED}; its log does not say that it was closed"
    state, outcome = ENDS.get(reason, ENDS["finished"])
    return state, outcome, IMPORTED if reason == "finished" else storable(f"{IMPORTED}; closed: {reason}")


def _result(found: Found) -> dict[str, Any]:
    """What lists and pages show of a crawl, and which job of Scrapyd it was."""
    stats = found.end.stats if found.end is not None else {}
    named = {
        "imported": ORIGIN,
        "job": found.job.key[2],
        "finish_reason": found.end.finish_reason if found.end is not None else None,
        "items": stats.get("item_scraped_count", 0 if stats else None),
        "pages": stats.get("response_received_count", 0 if stats else None),
        "errors": stats.get("log_count/ERROR", 0 if stats else None),
    }
    return {name: value for name, value in named.items() if value is not None}


def _owner(placed: Placed) -> Owner:
    project, spider, _ = placed.found.job.key
    stats = placed.found.end.stats if placed.found.end is not None else {}
    text = msgspec.json.encode(stats).decode()
    return Owner(id=placed.run_id, project=project, spider=spider, at=placed.finished_at, stats=text)


def _foretell(placed: Placed, report: Report) -> None:
    job = placed.found.job
    if job.has_log:
        report.count(Kind.LOG, Fate.KNOWN if placed.has_log else Fate.TAKEN)
    if job.has_items:
        report.count(Kind.ITEMS, Fate.TAKEN if placed.is_new else Fate.KNOWN)


def _file(key: JobKey, ending: str) -> str:
    return "/".join(key) + ending
