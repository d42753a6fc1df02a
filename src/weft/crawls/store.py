"""The SQL of crawls: each crawl, its partitions, and what was skipped. Each query reads a bounded number of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, delete, func, insert, select, update

from weft.clock import Moment
from weft.crawl_spec import CrawlSpec
from weft.crawler.messages import ACTIVE, PAUSED, Skip
from weft.crawler.reasons import COUNTED_REASONS
from weft.crawls.model import LAST_TURN, Crawl, CrawlPartition, SkipTotal, is_spider_crawl
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction
from weft.items.item_store import sample_of
from weft.items.model import TimelineSample
from weft.runs import lease_store
from weft.runs.model import NewRun, RunSpec

crawls, skips, runs = schema.crawls, schema.crawl_skips, schema.runs

LONGEST_PATTERN = 500

_spec = msgspec.json.Decoder(CrawlSpec).decode


def held_run(tx: Transaction, run_id: int, attempt: int, worker_id: int) -> Any:
    """The run, where the worker holds this attempt of it; else None."""
    values = {"run_id": run_id, "attempt": attempt, "worker_id": worker_id}
    return tx.execute(_held_run(), values).first()


@cache
def _held_run() -> Select[Any]:
    wanted = select(runs.c.id, runs.c.project, runs.c.task, runs.c.task_id, runs.c.kind, runs.c.spec)
    held = (runs.c.attempt == bindparam("attempt"), runs.c.lease_worker == bindparam("worker_id"))
    return wanted.where(runs.c.id == bindparam("run_id"), *held)


def add(tx: Transaction, row: dict[str, Any]) -> int:
    """Enter a crawl; ``row`` has project, name, run_id, spec, created_at, created_by and frontier."""
    spec = msgspec.json.encode(row["spec"]).decode()
    values = row | {"spec": spec, "state": ACTIVE, "reason": "", "seeded": False, "ended_at": None, "hungry_at": 0}
    key = tx.execute(insert(crawls).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def get(tx: Transaction, crawl_id: int) -> Crawl | None:
    return _crawl(tx.execute(_by("id"), {"wanted": crawl_id}).first())


def frontier_of(tx: Transaction, crawl_id: int) -> str | None:
    """Where a crawl keeps its URLs; None where nobody knows."""
    found: str | None = tx.value(select(crawls.c.frontier).where(crawls.c.id == crawl_id))
    return found


def by_run(tx: Transaction, run_id: int) -> Crawl | None:
    """The crawl that a run has begun."""
    return _crawl(tx.execute(_by("run_id"), {"wanted": run_id}).first())


@cache
def _by(column: str) -> Select[Any]:
    return select(crawls).where(crawls.c[column] == bindparam("wanted"))


def active_by_name(tx: Transaction, project: str, name: str) -> Crawl | None:
    """The newest crawl of that name that is active or paused."""
    return next(iter(all_active_by_name(tx, project, name)), None)


def all_active_by_name(tx: Transaction, project: str, name: str) -> list[Crawl]:
    """Crawls of that name that are active or paused, newest first."""
    same = (crawls.c.project == project, crawls.c.name == name, crawls.c.state.in_((ACTIVE, PAUSED)))
    rows = tx.rows(select(crawls).where(*same).order_by(crawls.c.id.desc()))
    return [found for row in rows if (found := _crawl(row)) is not None]


def has_active(tx: Transaction) -> bool:
    return tx.value(select(crawls.c.id).where(crawls.c.state == ACTIVE).limit(1)) is not None


def mark_seeded(tx: Transaction, crawl_id: int) -> None:
    tx.execute(update(crawls).where(crawls.c.id == crawl_id).values(seeded=True))


def mark_hungry(tx: Transaction, crawl_id: int, at: Moment) -> None:
    tx.execute(update(crawls).where(crawls.c.id == crawl_id).values(hungry_at=at))


def change_state(
    tx: Transaction, crawl_id: int, before: Sequence[str], state: str, reason: str, ended_at: Moment | None
) -> bool:
    """Bring a crawl that is in one of the states ``before`` into another; False where it is in none of them."""
    change = update(crawls).where(crawls.c.id == crawl_id, crawls.c.state.in_(before))
    return tx.execute(change.values(state=state, reason=reason, ended_at=ended_at)).rowcount == 1


def count_skips(tx: Transaction, crawl_id: int, told: Sequence[Skip], holder: str = "", turn: int = 0) -> None:
    """Add to what is known of the addresses that were left out; in one order, so that nobody waits in a circle.

    A turn that has a number counts once.
    """
    if turn and not _is_new(tx, crawl_id, holder, turn):
        return
    for digest, skip in sorted(((_digest(each), each) for each in told), key=lambda pair: pair[0]):
        same = (skips.c.crawl_id == crawl_id, skips.c.digest == digest)
        more = update(skips).where(*same).values(count=skips.c.count + skip.count)
        if tx.execute(more).rowcount == 0:
            row = msgspec.structs.asdict(skip) | {"crawl_id": crawl_id, "digest": digest}
            insert_missing(tx, skips, row | {"count": 0, "pattern": skip.pattern[:LONGEST_PATTERN]})
            tx.execute(more)


def _is_new(tx: Transaction, crawl_id: int, holder: str, turn: int) -> bool:
    """Whether this turn was not counted before; remembers it, in a row of the same table that has no reason."""
    kept = Skip(LAST_TURN, pattern=holder)
    digest = _digest(kept)
    further = (skips.c.crawl_id == crawl_id, skips.c.digest == digest, skips.c.count < turn)
    move = update(skips).where(*further).values(count=turn)
    if tx.execute(move).rowcount:
        return True
    row = msgspec.structs.asdict(kept) | {"crawl_id": crawl_id, "digest": digest, "count": 0}
    insert_missing(tx, skips, row)
    return tx.execute(move).rowcount == 1


def _digest(skip: Skip) -> str:
    named = "\0".join((skip.reason, skip.host, skip.pattern[:LONGEST_PATTERN]))
    return hashlib.blake2b(named.encode(errors="replace"), digest_size=16).hexdigest()


def _crawl(row: Any) -> Crawl | None:
    if row is None:
        return None
    fields = row._mapping
    return Crawl(**{**fields, "spec": _spec(fields["spec"])})


workers, run_stats, samples = schema.workers, schema.run_stats, schema.samples

KIND = "crawl"
MOST_PARTITIONS = 500
"""Of so many runs of a crawl, the newest, anything is told."""

QUEUED_BEFORE = 100
"""How many runs before the one that began a crawl are looked at: one of its siblings may have been faster."""


def page(
    tx: Transaction,
    *,
    projects: Collection[str] | None,
    state: str | None = None,
    name: str | None = None,
    run_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Crawl]:
    """Crawls, newest first."""
    query = select(crawls).order_by(crawls.c.id.desc()).limit(limit)
    for wanted, column in ((state, crawls.c.state), (name, crawls.c.name), (run_id, crawls.c.run_id)):
        query = query if wanted is None else query.where(column == wanted)
    if projects is not None:
        query = query.where(crawls.c.project.in_(sorted(projects)))
    if before is not None:
        query = query.where(crawls.c.id < before)
    return [found for row in tx.rows(query) if (found := crawl_of(row)) is not None]


def active(tx: Transaction, after: int, limit: int) -> list[Crawl]:
    """Crawls that are going on, in the order of their numbers."""
    going_on = select(crawls).where(crawls.c.state == ACTIVE, crawls.c.id > after).order_by(crawls.c.id).limit(limit)
    return [found for row in tx.rows(going_on) if (found := crawl_of(row)) is not None]


def count_states(tx: Transaction) -> dict[str, int]:
    """How many crawls are in each state; a busy system counts only the newest of those that have ended."""
    newest = select(crawls.c.state).order_by(crawls.c.id.desc()).limit(1_000).subquery()
    ended = tx.rows(select(newest.c.state, func.count()).where(newest.c.state != ACTIVE).group_by(newest.c.state))
    going_on = tx.value(select(func.count()).where(crawls.c.state == ACTIVE))
    return {ACTIVE: int(going_on or 0)} | {row[0]: int(row[1]) for row in ended}


def project_of(tx: Transaction, crawl_id: int) -> str | None:
    found: str | None = tx.value(select(crawls.c.project).where(crawls.c.id == crawl_id))
    return found


def set_run(tx: Transaction, crawl_id: int, run_id: int) -> None:
    """Remember the first run of a crawl that was made before it."""
    tx.execute(update(crawls).where(crawls.c.id == crawl_id, crawls.c.run_id.is_(None)).values(run_id=run_id))


def lock(tx: Transaction, crawl_id: int) -> Crawl | None:
    """A crawl, which nobody else changes before this transaction has ended."""
    return crawl_of(tx.execute(select(crawls).where(crawls.c.id == crawl_id).with_for_update()).first())


def correlation(crawl_id: int) -> str:
    """What the runs of a crawl that were queued for it have in common."""
    return f"crawl-{crawl_id}"


class _PlacedSpec(msgspec.Struct):
    labels: tuple[str, ...] = ()


def labels(tx: Transaction, crawl: Crawl) -> tuple[str, ...]:
    """The labels that a worker must have for the crawl: those of its first run."""
    wanted = select(runs.c.spec).where(runs.c.id == crawl.run_id)
    spec = None if crawl.run_id is None else tx.value(wanted)
    return () if spec is None else msgspec.json.decode(spec, type=_PlacedSpec).labels


def spider_run(tx: Transaction, crawl: Crawl) -> NewRun | None:
    """A run like the first of a crawl that spiders do; None where runs of the kind crawl do it."""
    columns = (runs.c.project, runs.c.task, runs.c.task_id, runs.c.kind, runs.c.spec)
    row = tx.execute(select(*columns).where(runs.c.id == crawl.run_id, runs.c.kind != KIND)).first()
    if row is None:
        return None
    fields = dict(row._mapping) | {"spec": msgspec.json.decode(row.spec, type=RunSpec)}
    return NewRun(**fields, correlation_id=correlation(crawl.id))


def is_crawl(tx: Transaction, crawl: Crawl) -> bool:
    """Whether it is done by runs of the kind crawl; a spider's runs bring themselves."""
    return crawl.run_id is None or tx.value(select(runs.c.kind).where(runs.c.id == crawl.run_id)) == KIND


def partitions(tx: Transaction, crawl: Crawl) -> list[CrawlPartition]:
    """The runs that do a partition of the crawl, newest first, with the answers that each has had."""
    columns = (runs.c.id, runs.c.state, runs.c.worker, runs.c.attempt, runs.c.started_at, runs.c.finished_at)
    query = select(*columns, runs.c.outcome, runs.c.reason).order_by(runs.c.id.desc()).limit(MOST_PARTITIONS)
    rows = list(tx.rows(query.where(runs.c.correlation_id == correlation(crawl.id))))
    first = [] if crawl.run_id is None else [crawl.run_id]
    if more := {*first, *_spider_runs(tx, crawl)} - {row.id for row in rows}:
        rows = sorted((*rows, *tx.rows(query.where(runs.c.id.in_(more)))), key=lambda row: -row.id)
    pages = _pages(tx, [row.id for row in rows])
    fields = [dict(row._mapping) for row in rows]
    return [
        CrawlPartition(run_id=each.pop("id"), pages=pages.get(rows[place].id, 0), **each)
        for place, each in enumerate(fields)
    ]


def _spider_runs(tx: Transaction, crawl: Crawl) -> list[int]:
    """Runs of spiders that do a partition of a crawl, as they report; of those queued about when it began."""
    if crawl.run_id is None or not is_spider_crawl(crawl):
        return []
    query = select(runs.c.id).where(runs.c.project == crawl.project, runs.c.id > crawl.run_id - QUEUED_BEFORE)
    near = [row.id for row in tx.rows(query.order_by(runs.c.id).limit(MOST_PARTITIONS))]
    told = tx.rows(select(run_stats.c.run_id, run_stats.c.stats).where(run_stats.c.run_id.in_(near)))
    return [run_id for run_id, stats in told if msgspec.json.decode(stats).get("frontier/crawl") == crawl.id]


def _pages(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    if not run_ids:
        return {}
    query = select(run_stats.c.run_id, run_stats.c.stats).where(run_stats.c.run_id.in_(run_ids))
    found: dict[int, int] = {}
    for run_id, stats in tx.rows(query):
        count = msgspec.json.decode(stats).get("response_received_count", 0)
        found[run_id] = found.get(run_id, 0) + (int(count) if isinstance(count, int | float) else 0)
    return found


def live_partitions(tx: Transaction, crawl: Crawl) -> list[CrawlPartition]:
    return [partition for partition in partitions(tx, crawl) if partition.finished_at is None]


def timelines(tx: Transaction, run_ids: Sequence[int]) -> dict[tuple[int, int], list[TimelineSample]]:
    """How each attempt of these runs went, oldest sample first; the last is how far it is now."""
    if not run_ids:
        return {}
    found: dict[tuple[int, int], list[TimelineSample]] = {}
    kept = select(samples).where(samples.c.run_id.in_(run_ids)).order_by(samples.c.at)
    for row in tx.rows(kept):
        sample = TimelineSample(row.at, row._mapping["items"], row.requests, row.errors, row.memory)
        found.setdefault((row.run_id, row.attempt), []).append(sample)
    for row in tx.rows(select(run_stats).where(run_stats.c.run_id.in_(run_ids))):
        newest = sample_of(msgspec.json.decode(row.stats), row._mapping["items"], row.at)
        course = found.setdefault((row.run_id, row.attempt), [])
        if not course or newest.at > course[-1].at:
            course.append(newest)
    return found


def live_workers(tx: Transaction, since: Moment) -> int:
    """How many workers are there that take runs, and were heard of not longer ago."""
    here = select(func.count()).where(workers.c.state.in_(("online", "busy")), workers.c.seen_at >= since)
    return int(tx.value(here) or 0)


def skip_sums(tx: Transaction, crawl_id: int) -> list[SkipTotal]:
    total = func.sum(skips.c.count)
    of_crawl = (skips.c.crawl_id == crawl_id, skips.c.reason != LAST_TURN)
    query = select(skips.c.reason, total).where(*of_crawl).group_by(skips.c.reason)
    return [
        SkipTotal(reason=row[0], count=int(row[1])) for row in tx.rows(query.order_by(total.desc(), skips.c.reason))
    ]


def forget_skips(tx: Transaction, crawl_id: int, state: str) -> None:
    """Count no longer what was skipped, or has failed, and is in line again."""
    tx.execute(delete(skips).where(skips.c.crawl_id == crawl_id, skips.c.reason.in_(sorted(COUNTED_REASONS[state]))))


def skips_of(
    tx: Transaction, crawl_id: int, *, reason: str | None = None, traps: bool = False, limit: int = 100
) -> list[Skip]:
    """What was left out, the most first."""
    query = select(skips).where(skips.c.crawl_id == crawl_id, skips.c.reason != LAST_TURN)
    query = query.where(skips.c.is_trap) if traps else query
    query = query if reason is None else query.where(skips.c.reason == reason)
    rows = tx.rows(query.order_by(skips.c.count.desc(), skips.c.digest).limit(limit))
    return [Skip(**{name: row._mapping[name] for name in Skip.__struct_fields__}) for row in rows]


def unfinished(tx: Transaction, limit: int) -> list[int]:
    """The numbers of crawls that are going on or rest; those that are going on first, the newest first."""
    found: list[int] = []
    for state in (ACTIVE, PAUSED):
        query = select(crawls.c.id).where(crawls.c.state == state).order_by(crawls.c.id.desc())
        found += [row.id for row in tx.rows(query.limit(limit - len(found)))] if len(found) < limit else []
    return found


def reported_stats(tx: Transaction, run_ids: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """What runs tell of themselves under these names, added up."""
    found = dict.fromkeys(names, 0.0)
    query = select(run_stats.c.stats).where(run_stats.c.run_id.in_(run_ids))
    for row in tx.rows(query) if run_ids else ():
        told = msgspec.json.decode(row.stats)
        for name in names:
            value = told.get(name)
            found[name] += value if isinstance(value, int | float) else 0.0
    return found


def forget(tx: Transaction, crawl_id: int) -> bool:
    tx.execute(delete(skips).where(skips.c.crawl_id == crawl_id))
    return tx.execute(delete(crawls).where(crawls.c.id == crawl_id)).rowcount == 1


def crawl_of(row: Any) -> Crawl | None:
    return None if row is None else Crawl(**{**row._mapping, "spec": _spec(row.spec)})


class _PartitionSpec(msgspec.Struct, frozen=True):
    crawl: int = 0


class _PartitionRun(msgspec.Struct, frozen=True):
    spec: _PartitionSpec = _PartitionSpec()


_partition_run = msgspec.json.Decoder(_PartitionRun).decode


def crawl_of_attempt(tx: Transaction, place: tuple[int, int], worker_id: int, worker: str) -> int | None:
    """The crawl that a run is a partition of, where the worker holds this attempt of it or has surely executed it."""
    run = lease_store.executed_by(tx, [place], worker_id, worker).get(place)
    if run is None:
        return None
    named = _partition_run(run.spec).spec.crawl
    crawl = get(tx, named) if named else by_run(tx, place[0])
    return crawl.id if crawl is not None and crawl.project == run.project else None
