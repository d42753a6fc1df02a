"""The SQL of replies: who is to be told how a run ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, delete, select

from weft.db import schema
from weft.db.bulk import insert_many
from weft.db.database import Transaction
from weft.intake.model import End

replies, runs, run_stats = schema.replies, schema.runs, schema.run_stats


class Waiting(NamedTuple):
    """Somebody who waits for the end of a run."""

    run_id: int
    source: str
    reply_to: str
    task_id: str
    correlation_id: str


def add(tx: Transaction, waiting: Sequence[Waiting]) -> None:
    """Let these be told; for each run it is the last one who asks."""
    newest = {each.run_id: each for each in waiting}
    if newest:
        tx.execute(delete(replies).where(replies.c.run_id.in_(newest)))
    insert_many(tx, replies, [each._asdict() for each in newest.values()])


def remove(tx: Transaction, told: Sequence[Waiting]) -> None:
    """These were told. One who has asked again meanwhile, elsewhere, is still waiting."""
    for each in told:
        same = and_(replies.c.run_id == each.run_id, replies.c.reply_to == each.reply_to)
        tx.execute(delete(replies).where(same))


def is_awaited(tx: Transaction, source: str) -> bool:
    return tx.value(select(replies.c.run_id).where(replies.c.source == source).limit(1)) is not None


def ended(tx: Transaction, source: str, after: int, limit: int) -> list[tuple[Waiting, End]]:
    """Who waits for a run that has ended, in the order of the runs."""
    query = _ends().where(replies.c.source == source, replies.c.run_id > after, runs.c.finished_at.is_not(None))
    return [_pair(row) for row in tx.rows(query.order_by(replies.c.run_id).limit(limit))]


def ended_of(tx: Transaction, source: str, run_ids: Collection[int]) -> list[tuple[Waiting, End]]:
    """The same of these runs."""
    query = _ends().where(replies.c.source == source, replies.c.run_id.in_(run_ids), runs.c.finished_at.is_not(None))
    return [_pair(row) for row in tx.rows(query)] if run_ids else []


def ends(tx: Transaction, run_ids: Collection[int]) -> dict[int, End]:
    """How each of these that has ended did; none of the others ends before the transaction does."""
    if not run_ids:
        return {}
    tx.rows(select(runs.c.id).where(runs.c.id.in_(run_ids)).order_by(runs.c.id).with_for_update())
    query = select(runs.c.id, *_END).outerjoin_from(runs, run_stats, _SAME).where(runs.c.id.in_(run_ids))
    return {row.id: _end(row) for row in tx.rows(query.where(runs.c.finished_at.is_not(None)))}


_SAME = and_(run_stats.c.run_id == runs.c.id, run_stats.c.attempt == runs.c.attempt)
_END = (runs.c.state, runs.c.outcome, runs.c.reason, run_stats.c["items"].label("item_count"))


def _ends() -> Select[Any]:
    joined = replies.join(runs, runs.c.id == replies.c.run_id).outerjoin(run_stats, _SAME)
    return select(*replies.c, *_END).select_from(joined)


def _pair(row: Any) -> tuple[Waiting, End]:
    return Waiting(*(getattr(row, name) for name in Waiting._fields)), _end(row)


def _end(row: Any) -> End:
    return End(str(row.state), row.outcome or "", row.reason or "", int(row.item_count or 0))
