"""Import finished jobs of a Scrapyd: each becomes a run that has ended, with its log and its items.

The run is written first, its log and its items afterwards; so an import that was interrupted can be repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.access.model import NAME
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items import item_store
from weft.items.collector import LARGEST_ITEM, AttemptTally, ParsedItem, parse_lines, store_items
from weft.items.model import ItemBatch
from weft.logs.storage import store_log
from weft.ports import Blobs
from weft.runs.model import NewRun, RunOutcome, RunSpec, RunState, storable
from weft.scrapyd import import_files, job_store
from weft.scrapyd.conf import ScrapydConf
from weft.scrapyd.import_files import open_plain_file, parse_log
from weft.scrapyd.job_store import KIND
from weft.scrapyd.model import IMPORTED, ORIGIN, FinishedJob, ImportKind, ImportOutcome, ImportReport, JobKey, ParsedLog
from weft.workers.remote.wire import log_key

BATCH_LINES, BATCH_BYTES = 1_000, 4_000_000
"""What one transaction stores."""
CHUNK = 1 << 20
LONGEST_NAME = 100

LineBatch = list[bytes | None]
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class ItemImport:
    """Puts items of runs that have ended where they belong."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def keep(self, run: ItemOwner, file: int) -> tuple[int, int]:
        """Store what is not stored yet; how many lines that were, and how many of them are no item."""
        done = await self._db.transact(lambda tx: self._begin(tx, run)) - 1
        number, taken, bad = 0, 0, 0
        batches = iter(batches_of(file))
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            first, number = number + 1, number + len(batch)
            if number <= done:
                continue
            reads = await asyncio.to_thread(lambda lines: [read_item(each, run.at) for each in lines], batch)
            fresh = await self._db.transact(lambda tx: self._store(tx, run, first, reads))  # noqa: B023
            taken += fresh
            bad += sum(read is None for read in reads[len(reads) - fresh :])
        await self._db.transact(lambda tx: job_store.keep_profile(tx, run.id))
        return taken, bad

    def _begin(self, tx: Transaction, run: ItemOwner) -> int:
        dataset_id = self._dataset(tx, run)
        job_store.begin_stats(tx, run.id, dataset_id, run.stats, self._clock())
        job_store.set_dataset(tx, run.id, dataset_id)
        return job_store.counted_items(tx, run.id) or 1

    def _store(self, tx: Transaction, run: ItemOwner, first: int, reads: Sequence[ParsedItem | None]) -> int:
        """One batch; how many of its lines were new."""
        place = (run.id, job_store.ATTEMPT)
        row = item_store.lock_stats(tx, [place])[place]
        tally, before = _item_tally(row, run), row.next_seq
        tally.take(ItemBatch(*place, first=first), reads)
        dataset = item_store.datasets_by_id(tx, [row.dataset_id])[row.dataset_id]
        store_items(tx, dataset, [tally], run.at)
        item_store.save_stats(tx, [tally.row(self._clock())])
        return int(tally.next_seq - before)

    def _dataset(self, tx: Transaction, run: ItemOwner) -> int:
        name = storable(run.spider)[:LONGEST_NAME]
        found = item_store.dataset_named(tx, run.project, name)
        if found is not None:
            return found.id
        at = self._clock()
        dataset_id = item_store.add_dataset(tx, run.project, name, at)
        events.append(tx, [Fact("dataset_created", run.project, run.id, None, {"dataset": name})], at)
        return dataset_id


class ItemOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The run that items belong to."""

    id: int
    project: str
    spider: str
    at: Moment
    """When they were yielded, as far as that is known: when the run ended."""
    stats: str = "{}"


def batches_of(file: int) -> Iterator[LineBatch]:
    """The lines of a file, some at a time; None for one that is too long to be an item."""
    batch: LineBatch = []
    size = 0
    for line in lines_of(file):
        batch.append(line)
        size += len(line or b"")
        if len(batch) >= BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def lines_of(file: int) -> Iterator[bytes | None]:
    """The lines of a file as long as it is now, but for empty ones; None for one that is too long to be held."""
    held, is_long, offset, size = bytearray(), False, 0, os.fstat(file).st_size
    while offset < size and (data := os.pread(file, min(CHUNK, size - offset), offset)):
        offset += len(data)
        *whole, rest = data.split(b"\n")
        for part in whole:
            line = None if is_long or len(held) + len(part) > LARGEST_ITEM else bytes(held) + part
            held.clear()
            is_long = False
            if line is None or line.strip():
                yield line
        held += rest
        if len(held) > LARGEST_ITEM:
            held.clear()
            is_long = True
    if is_long or held.strip():
        yield None if is_long else bytes(held)


def read_item(line: bytes | None, at: Moment) -> ParsedItem | None:
    """One line as an item of that moment; None where it is none."""
    if line is None or not _is_object(line):
        return None
    return parse_lines(b'{"item":%b,"at":%d}' % (line.strip(), at))[0]


def _is_object(line: bytes) -> bool:
    """Whether the line by itself is JSON: what is put around it must not make it so."""
    try:
        _is_json(line)
        return True
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace"), strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _item_tally(row: Any, run: ItemOwner) -> AttemptTally:
    """What is stored of a run so far. Its items were counted where they were scraped, so no counter grows by them."""
    names = ("run_id", "attempt", "dataset_id", "next_seq", "items", "new_records", "changed_records", "refused")
    known = {name: getattr(row, name) for name in (*names, "invalid", "stats", "told_at")}
    return AttemptTally(project=run.project, task_id=None, name=run.spider, counted=Counter(), **known)


AT_ONCE = 100
"""Jobs whose runs one transaction writes."""
LARGEST_LOG = 4 << 30
STILL_SECONDS = 120.0
"""What was written to within that, and does not say how it ended, may still run: Scrapy writes each minute."""
DAY_SECONDS = 86_400.0
MOST_OF_A_NAME = 20

ENDS = {
    "finished": (RunState.SUCCEEDED, RunOutcome.SUCCEEDED),
    "shutdown": (RunState.CANCELLED, RunOutcome.CANCELLED),
    "start_error": (RunState.FAILED, RunOutcome.FAILED),
}
"""What Scrapy's reasons mean; any other is one that the spider chose, and it succeeded."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that has ended, and what its log tells."""

    job: FinishedJob
    end: ParsedLog | None


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """The run of a job: ``is_new`` where it was written now, or would be."""

    found: FoundJob
    run_id: int
    is_new: bool
    has_log: bool
    finished_at: Moment
    problem: str = ""


class FinishedImport:
    def __init__(self, db: Database, blobs: Blobs, clock: Clock) -> None:
        self._db, self._blobs, self._clock = db, blobs, clock
        self._items = ItemImport(db, clock)

    async def take(self, conf: ScrapydConf, only: str | None, report: ImportReport, *, dry_run: bool) -> None:
        """Write a run for each job, in the order in which they ended, with all that is known of it."""
        jobs = await asyncio.to_thread(ended_jobs, conf, only, report)
        for start in range(0, len(jobs), AT_ONCE):
            found = await asyncio.to_thread(_with_log, conf, jobs[start : start + AT_ONCE], report)
            work = self._db.read if dry_run else self._db.transact
            for each in await work(lambda tx: self._place_all(tx, found, dry_run=dry_run)):  # noqa: B023
                await self._fill(conf, each, report, dry_run=dry_run)
            report.tell(f"{min(start + AT_ONCE, len(jobs))} of {len(jobs)} jobs that have ended were looked at")
        for project, count in report.too_old.items():
            report.notes.append(f"logs and items of {count} jobs of {project} are older than it keeps them (keep_days)")

    def _place_all(self, tx: Transaction, found: Sequence[FoundJob], *, dry_run: bool) -> list[ImportedRun]:
        projects = {each.job.key[0] for each in found}
        known: dict[str, dict[str, job_store.NamedRun]] = {}
        for project in projects:
            names = [each.job.key[2] for each in found if each.job.key[0] == project]
            known[project] = job_store.named_runs(tx, project, names)
        return [self._place(tx, each, known[each.job.key[0]], dry_run=dry_run) for each in found]

    def _place(
        self, tx: Transaction, found: FoundJob, known: dict[str, job_store.NamedRun], *, dry_run: bool
    ) -> ImportedRun:
        """The run of a job: the one that an earlier import has written, or a new one under a name that is free."""
        project, spider, job = found.job.key
        began, ended = _times(found)
        if job in known and (known[job].spider, known[job].origin) != (spider, job):
            names = [job, *(f"{job[:190]}-{number}" for number in range(2, MOST_OF_A_NAME + 1))]
            known |= job_store.named_runs(tx, project, names)
        else:
            names = [job]
        for name in names:
            there = known.get(name)
            if there is None:
                new = 0 if dry_run else self._add(tx, found, name, began, ended)
                known[name] = job_store.NamedRun(new, spider, job, ended, False)
                return ImportedRun(found, new, True, False, ended)
            if (there.spider, there.origin) == (spider, job):
                return ImportedRun(found, there.run_id, False, there.has_log, there.finished_at or ended)
        problem = f"{MOST_OF_A_NAME} jobs of the name {job} are there already"
        return ImportedRun(found, 0, False, False, ended, problem)

    def _add(self, tx: Transaction, found: FoundJob, name: str, began: Moment, ended: Moment) -> int:
        project, spider, job = found.job.key
        spec = RunSpec(spec={"spider": spider, "args": {"_job": job}, "settings": {}})
        run = NewRun(project=project, task=spider if NAME.fullmatch(spider) else KIND, kind=KIND, spec=spec)
        return job_store.add_ended(tx, run, name, _ending(found, began, ended), began)

    async def _fill(self, conf: ScrapydConf, placed: ImportedRun, report: ImportReport, *, dry_run: bool) -> None:
        """Add to a run what is not there yet: its numbers, its log, its items."""
        job = placed.found.job
        if placed.problem:
            report.refuse(ImportKind.FINISHED, "/".join(job.key), placed.problem)
            return
        report.count(ImportKind.FINISHED, ImportOutcome.TAKEN if placed.is_new else ImportOutcome.KNOWN)
        if dry_run:
            _count_items(placed, report)
            return
        if await self._is_too_old(job.key[0], placed.finished_at):
            report.too_old[job.key[0]] += 1
            return
        owner = _owner(placed)
        if job.has_log:
            await self._keep_log(conf, placed, owner, report)
        if job.has_items:
            await self._keep_items(conf, job.key, owner, report)

    async def _keep_log(self, conf: ScrapydConf, placed: ImportedRun, owner: ItemOwner, report: ImportReport) -> None:
        end, key = placed.found.end, placed.found.job.key
        if placed.has_log:
            report.count(ImportKind.LOG, ImportOutcome.KNOWN)
            return
        size = 0 if end is None else end.size
        if size > LARGEST_LOG:
            report.refuse(ImportKind.LOG, _file(key, ".log"), f"it has {size} bytes; {LARGEST_LOG} are allowed")
            return
        top, place = conf.place("logs_dir"), log_key(placed.run_id, job_store.ATTEMPT)
        with open_plain_file(top, ImportKind.LOG, *key) as file:
            if file is None:
                report.refuse(ImportKind.LOG, _file(key, ".log"), import_files.NOT_PLAIN)
                return
            await store_log(self._blobs, place, size, lambda offset, length: os.pread(file, length, offset))
        await self._db.transact(lambda tx: self._log_is_kept(tx, owner, place, size))
        report.count(ImportKind.LOG, ImportOutcome.TAKEN)

    def _log_is_kept(self, tx: Transaction, owner: ItemOwner, key: str, size: int) -> None:
        job_store.set_log(tx, owner.id, key, size)
        if owner.stats != "{}":
            job_store.begin_stats(tx, owner.id, None, owner.stats, self._clock())

    async def _keep_items(self, conf: ScrapydConf, key: JobKey, owner: ItemOwner, report: ImportReport) -> None:
        before = await self._db.read(lambda tx: job_store.has_dataset(tx, owner.id))
        with open_plain_file(conf.place("items_dir"), ImportKind.ITEMS, *key) as file:
            if file is None:
                report.refuse(ImportKind.ITEMS, _file(key, ".jl"), import_files.NOT_PLAIN)
                return
            taken, bad = await self._items.keep(owner, file)
        report.items += taken - bad
        report.bad_items += bad
        if bad:
            report.refuse(
                ImportKind.ITEMS, _file(key, ".jl"), f"{bad} of its lines are no items; the others were taken"
            )
        else:
            report.count(ImportKind.ITEMS, ImportOutcome.KNOWN if before and not taken else ImportOutcome.TAKEN)

    async def _is_too_old(self, project: str, finished_at: Moment) -> bool:
        """Whether the sweeper would take it away again, or has done so already."""
        days = await self._db.read(lambda tx: job_store.keep_days(tx, project))
        return days is not None and finished_at < self._clock() - seconds(days * DAY_SECONDS)


def ended_jobs(conf: ScrapydConf, only: str | None, report: ImportReport) -> list[FinishedJob]:
    """Every job that has ended, from all that tells of one, in the order in which they ended."""
    jobs: dict[JobKey, FinishedJob] = {}
    again: Counter[JobKey] = Counter()
    if (dbs := conf.place("dbs_dir")) is not None:
        for each in import_files.finished_jobs(dbs, report):
            if only not in (None, each.key[0]):
                continue
            if (problem := import_files.problem_of(each.key)) is not None:
                report.refuse(ImportKind.FINISHED, import_files.printable("/".join(each.key)), problem)
            else:
                again[each.key] += each.key in jobs
                jobs[each.key] = each
    report.notes += [
        f"{'/'.join(key)} has ended {count + 1} times; its last end is taken" for key, count in again.items() if count
    ]
    for kind, name in ((ImportKind.LOG, "logs_dir"), (ImportKind.ITEMS, "items_dir")):
        if (top := conf.place(name)) is not None:
            import_files.merge_jobs(jobs, kind, import_files.job_files(top, only, kind, report), report)
    for key in [each.key for each in jobs.values() if not each.seen_at]:
        report.refuse(ImportKind.FINISHED, "/".join(key), "it has no file, and nothing says when it ended")
        del jobs[key]
    return sorted(jobs.values(), key=lambda each: (each.seen_at, each.key))


def _with_log(conf: ScrapydConf, jobs: Sequence[FinishedJob], report: ImportReport) -> list[FoundJob]:
    """What the logs of these jobs tell; those that may still run are left out, and told."""
    found = []
    for job in jobs:
        end = _end_of(conf, job)
        if job.ended_at is None and (end is None or end.finish_reason is None) and _is_fresh(job):
            ago = f"{time.time() - job.changed_at / SECOND:.0f} s ago"
            why = f"it may still run: it was written to {ago}; import again when it has ended"
            report.refuse(ImportKind.LOG if job.has_log else ImportKind.ITEMS, "/".join(job.key), why)
        else:
            found.append(FoundJob(job, end))
    return found


def _end_of(conf: ScrapydConf, job: FinishedJob) -> ParsedLog | None:
    if not job.has_log:
        return None
    with open_plain_file(conf.place("logs_dir"), ImportKind.LOG, *job.key) as file:
        return None if file is None else parse_log(file)


def _is_fresh(job: FinishedJob) -> bool:
    return time.time() - job.changed_at / SECOND < STILL_SECONDS


def _times(found: FoundJob) -> tuple[Moment, Moment]:
    """When a job began and ended: as Scrapyd has stored it, else as its log tells, else when that was written."""
    job, end = found.job, found.end or ParsedLog()
    latest = job.changed_at + SECOND if job.changed_at else None
    told = [None if at is None else min(at, latest or at) for at in (end.started_at, end.ended_at)]
    ended = job.ended_at or told[1] or job.changed_at
    began = job.started_at or told[0] or ended
    return min(began, ended), ended


def _ending(found: FoundJob, began: Moment, ended: Moment) -> dict[str, Any]:
    state, outcome, reason = _outcome(found)
    trouble = None if outcome is RunOutcome.SUCCEEDED else outcome.value
    times = {"started_at": began, "finished_at": ended}
    result = msgspec.json.encode(_result(found)).decode()
    return {
        "state": state.value,
        "outcome": outcome.value,
        "reason": reason,
        "trouble": trouble,
        "result": result,
    } | times


def _outcome(found: FoundJob) -> tuple[RunState, RunOutcome, str]:
    if found.end is None:
        return RunState.SUCCEEDED, RunOutcome.SUCCEEDED, f"{IMPORTED}; how it ended is not known: it has no log"
    reason = found.end.finish_reason
    if reason is None:
        return RunState.FAILED, RunOutcome.FAILED, f"{IMPORTED}; its log does not say that it was closed"
    state, outcome = ENDS.get(reason, ENDS["finished"])
    return state, outcome, IMPORTED if reason == "finished" else storable(f"{IMPORTED}; closed: {reason}")


def _result(found: FoundJob) -> dict[str, Any]:
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


def _owner(placed: ImportedRun) -> ItemOwner:
    project, spider, _ = placed.found.job.key
    stats = placed.found.end.stats if placed.found.end is not None else {}
    text = msgspec.json.encode(stats).decode()
    return ItemOwner(id=placed.run_id, project=project, spider=spider, at=placed.finished_at, stats=text)


def _count_items(placed: ImportedRun, report: ImportReport) -> None:
    job = placed.found.job
    if job.has_log:
        report.count(ImportKind.LOG, ImportOutcome.KNOWN if placed.has_log else ImportOutcome.TAKEN)
    if job.has_items:
        report.count(ImportKind.ITEMS, ImportOutcome.TAKEN if placed.is_new else ImportOutcome.KNOWN)


def _file(key: JobKey, ending: str) -> str:
    return "/".join(key) + ending
