"""The SQL of dead letters and of replies that senders wait for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Select, and_, delete, func, insert, select, update

from weft import events
from weft.access.model import NAME
from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many
from weft.db.database import Transaction
from weft.events import Fact
from weft.intake.model import LARGEST_LETTER, DeadLetter, DeadLetterDetail, DeadLetterFilter, DeadLetterState, RunEnd

dead_letters = schema.dead_letters

LONGEST_NAME, LONGEST_REASON, LARGEST_HEADERS = 200, 4_000, 16_000
_SHORT = tuple(column for column in dead_letters.c if column.name not in ("body", "original", "headers"))
_LISTED = (
    *_SHORT,
    func.length(dead_letters.c.body).label("body_bytes"),
    dead_letters.c.original.is_not(None).label("edited"),
)


def add_dead_letter(
    tx: Transaction,
    *,
    source: str,
    message_id: str,
    project: str | None,
    body: bytes,
    headers: Mapping[str, Any],
    reason: str,
    at: Moment,
) -> int:
    """Keep a message that could not become a run; return the number of its dead letter.

    A message that comes again while its dead letter is still dead makes no second one.
    """
    source, message_id = _printable(source, LONGEST_NAME), _printable(message_id, LONGEST_NAME)
    kept = body[:LARGEST_LETTER]
    if (known := _dead_letter_of(tx, source, message_id, kept)) is not None:
        return known
    if len(body) > len(kept):
        reason = f"{reason} (of its {len(body)} bytes only the first {len(kept)} are kept)"
    place = project if project is not None and NAME.fullmatch(project) else None
    values: dict[str, Any] = {"source": source, "message_id": message_id, "project": place, "body": kept}
    values |= {"headers": _headers(headers), "reason": _printable(reason, LONGEST_REASON)}
    values |= {"state": DeadLetterState.DEAD.value, "revision": 1, "received_at": at, "changed_at": at}
    key = tx.execute(insert(dead_letters).values(values)).inserted_primary_key
    if key is None:
        raise AssertionError("an inserted row has an id")
    told = {"dead_letter_id": int(key[0]), "source": source, "reason": values["reason"]}
    events.append(tx, [Fact("dead_letter_kept", place or "", data=told)], at)
    return int(key[0])


def find_dead_letters(tx: Transaction, wanted: DeadLetterFilter) -> list[DeadLetter]:
    """The newest first, without what is written in them."""
    query = select(*_LISTED).order_by(dead_letters.c.id.desc()).limit(wanted.limit)
    if wanted.projects is not None:
        query = query.where(dead_letters.c.project.in_(wanted.projects))
    if wanted.state is not None:
        query = query.where(dead_letters.c.state == wanted.state.value)
    if wanted.source is not None:
        query = query.where(dead_letters.c.source == wanted.source)
    if wanted.before is not None:
        query = query.where(dead_letters.c.id < wanted.before)
    return [_dead_letter(dict(row._mapping)) for row in tx.rows(query)]


def dead_letter(tx: Transaction, dead_letter_id: int) -> DeadLetter | None:
    row = tx.execute(select(*_LISTED).where(dead_letters.c.id == dead_letter_id)).first()
    return None if row is None else _dead_letter(dict(row._mapping))


def dead_letter_detail(tx: Transaction, dead_letter_id: int, *, lock: bool = False) -> DeadLetterDetail | None:
    query: Select[Any] = select(*_LISTED, dead_letters.c.body, dead_letters.c.original, dead_letters.c.headers)
    query = query.where(dead_letters.c.id == dead_letter_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    if row is None:
        return None
    short = {name: value for name, value in row._mapping.items() if name not in ("body", "original", "headers")}
    original = None if row.original is None else bytes(row.original)
    headers = msgspec.json.decode(row.headers, type=dict[str, str])
    return DeadLetterDetail(dead_letter=_dead_letter(short), headers=headers, body=bytes(row.body), original=original)


def change_dead_letter(tx: Transaction, dead_letter: DeadLetter, values: Mapping[str, Any], at: Moment) -> bool:
    """Write ``values`` if the dead letter is as it was read; False where somebody was first."""
    same = and_(dead_letters.c.id == dead_letter.id, dead_letters.c.revision == dead_letter.revision)
    values = {**values, "revision": dead_letter.revision + 1, "changed_at": at}
    return tx.execute(update(dead_letters).where(same).values(values)).rowcount == 1


def forget_dead_letters(tx: Transaction, before: Moment) -> int:
    """Delete the dead letters that have waited for nobody since before then."""
    settled = dead_letters.c.state.in_((DeadLetterState.RESUBMITTED.value, DeadLetterState.DROPPED.value))
    return tx.execute(delete(dead_letters).where(settled, dead_letters.c.changed_at < before)).rowcount


def _dead_letter_of(tx: Transaction, source: str, message_id: str, body: bytes) -> int | None:
    """The dead letter of this message. Bodies are large and most messages have come once, so one is compared, in the
    database, only where that may find something."""
    came = func.coalesce(dead_letters.c.original, dead_letters.c.body)
    same = and_(dead_letters.c.source == source, dead_letters.c.message_id == message_id)
    dead = same & (dead_letters.c.state == DeadLetterState.DEAD.value) & (func.length(came) == len(body))
    query = select(dead_letters.c.id).where(dead).order_by(dead_letters.c.id).limit(1)
    if tx.value(query) is None:
        return None
    found = tx.value(query.where(came == body))
    return None if found is None else int(found)


def _dead_letter(row: dict[str, Any]) -> DeadLetter:
    return DeadLetter(**(row | {"state": DeadLetterState(row["state"]), "edited": bool(row["edited"])}))


def _headers(headers: Mapping[str, Any]) -> str:
    """As many of the headers as there is room for, as texts."""
    kept: dict[str, str] = {}
    size = 2
    for name, value in headers.items():
        pair = (_printable(str(name), LONGEST_NAME), _printable(str(value), LONGEST_REASON))
        size += len(msgspec.json.encode(pair))
        if size > LARGEST_HEADERS:
            break
        kept[pair[0]] = pair[1]
    return msgspec.json.encode(kept).decode()


def _printable(text: str, longest: int) -> str:
    """What every database can keep: no NUL, and nothing that is no character."""
    return text.encode(errors="replace").decode().replace("\0", "�")[:longest]


replies, runs, run_stats = schema.replies, schema.runs, schema.run_stats


class AwaitedReply(NamedTuple):
    """Somebody who waits for the end of a run."""

    run_id: int
    source: str
    reply_to: str
    task_id: str
    correlation_id: str


def add_awaited(tx: Transaction, waiting: Sequence[AwaitedReply]) -> None:
    """Let these be told; for each run it is the last one who asks."""
    newest = {each.run_id: each for each in waiting}
    if newest:
        tx.execute(delete(replies).where(replies.c.run_id.in_(newest)))
    insert_many(tx, replies, [each._asdict() for each in newest.values()])


def remove_awaited(tx: Transaction, told: Sequence[AwaitedReply]) -> None:
    """These were told. One who has asked again meanwhile, elsewhere, is still waiting."""
    for each in told:
        same = and_(replies.c.run_id == each.run_id, replies.c.reply_to == each.reply_to)
        tx.execute(delete(replies).where(same))


def is_awaited(tx: Transaction, source: str) -> bool:
    return tx.value(select(replies.c.run_id).where(replies.c.source == source).limit(1)) is not None


def ended_runs(tx: Transaction, source: str, after: int, limit: int) -> list[tuple[AwaitedReply, RunEnd]]:
    """Who waits for a run that has ended, in the order of the runs."""
    query = _run_ends().where(replies.c.source == source, replies.c.run_id > after, runs.c.finished_at.is_not(None))
    return [_awaited_end(row) for row in tx.rows(query.order_by(replies.c.run_id).limit(limit))]


def ended_runs_of(tx: Transaction, source: str, run_ids: Collection[int]) -> list[tuple[AwaitedReply, RunEnd]]:
    """The same of these runs."""
    query = _run_ends().where(
        replies.c.source == source, replies.c.run_id.in_(run_ids), runs.c.finished_at.is_not(None)
    )
    return [_awaited_end(row) for row in tx.rows(query)] if run_ids else []


def run_ends(tx: Transaction, run_ids: Collection[int]) -> dict[int, RunEnd]:
    """How each of these that has ended did; none of the others ends before the transaction does."""
    if not run_ids:
        return {}
    tx.rows(select(runs.c.id).where(runs.c.id.in_(run_ids)).order_by(runs.c.id).with_for_update())
    query = (
        select(runs.c.id, *_END_COLUMNS).outerjoin_from(runs, run_stats, _SAME_ATTEMPT).where(runs.c.id.in_(run_ids))
    )
    return {row.id: _run_end(row) for row in tx.rows(query.where(runs.c.finished_at.is_not(None)))}


_SAME_ATTEMPT = and_(run_stats.c.run_id == runs.c.id, run_stats.c.attempt == runs.c.attempt)
_END_COLUMNS = (runs.c.state, runs.c.outcome, runs.c.reason, run_stats.c["items"].label("item_count"))


def _run_ends() -> Select[Any]:
    joined = replies.join(runs, runs.c.id == replies.c.run_id).outerjoin(run_stats, _SAME_ATTEMPT)
    return select(*replies.c, *_END_COLUMNS).select_from(joined)


def _awaited_end(row: Any) -> tuple[AwaitedReply, RunEnd]:
    return AwaitedReply(*(getattr(row, name) for name in AwaitedReply._fields)), _run_end(row)


def _run_end(row: Any) -> RunEnd:
    return RunEnd(str(row.state), row.outcome or "", row.reason or "", int(row.item_count or 0))
