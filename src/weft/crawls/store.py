"""The SQL of crawls: what each is, in which state, and what was left out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, insert, select, update

from weft.clock import Moment
from weft.crawl_spec import CrawlSpec
from weft.crawls.model import ACTIVE, PAUSED, TURN, Crawl, Skip
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction

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
    """Enter a crawl; ``row`` has project, name, run_id, spec, created_at and created_by."""
    spec = msgspec.json.encode(row["spec"]).decode()
    values = row | {"spec": spec, "state": ACTIVE, "reason": "", "seeded": False, "ended_at": None, "hungry_at": 0}
    key = tx.execute(insert(crawls).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def get(tx: Transaction, crawl_id: int) -> Crawl | None:
    return _crawl(tx.execute(_by("id"), {"wanted": crawl_id}).first())


def of_run(tx: Transaction, run_id: int) -> Crawl | None:
    """The crawl that a run has begun."""
    return _crawl(tx.execute(_by("run_id"), {"wanted": run_id}).first())


@cache
def _by(column: str) -> Select[Any]:
    return select(crawls).where(crawls.c[column] == bindparam("wanted"))


def going_on(tx: Transaction, project: str, name: str) -> Crawl | None:
    """The newest crawl of that name that is active or paused."""
    return next(iter(all_going_on(tx, project, name)), None)


def all_going_on(tx: Transaction, project: str, name: str) -> list[Crawl]:
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
    kept = Skip(TURN, pattern=holder)
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
