"""Facts, written in the transaction that makes them true, and taken in the transaction that acts on them.

A reader has an inbox: rows that name its events. It never remembers a last id, because transactions commit out of
order and a late one would be skipped. Who follows all events keeps a position
(``cursor.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import msgspec
from sqlalchemy import TextClause, delete, select, text

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, reserve_ids, skip_locked
from weft.db.database import Transaction

encode = msgspec.json.encode

KINDS = {
    "run_queued": "a run waits for a worker; data: by (who started it over the API, such as `key:ci`)",
    "run_started": "a worker has leased a run",
    "run_retried": "an attempt ended badly and the run waits for its next one",
    "run_released": "a worker gave a run back unharmed: it drains, or a circuit breaker is open",
    "run_finished": "a run has ended; data: state, outcome, reason",
    "run_cancel_requested": "somebody asked for a running run to stop",
    "run_pause_requested": "somebody asked for a running run to pause",
    "run_paused": "a run waits until somebody lets it go on",
    "run_resumed": "a paused run may go on",
    "items_collected": "a run has yielded items, told once a second at most; data: attempt, items (so far)",
    "run_drifted": "a run that succeeded differs from those before it; data: attempt, marks",
    "dataset_created": "a dataset was made for the items of a spider; data: dataset",
    "dataset_changed": "the key fields or the schema of a dataset were changed; data: dataset",
    "crawl_started": "a crawl of a site has begun; data: crawl",
    "crawl_paused": "a crawl rests until somebody lets it go on; data: crawl, reason",
    "crawl_resumed": "a crawl goes on; data: crawl",
    "crawl_finished": "a crawl has ended; data: crawl, reason",
    "proxy_budget_warned": "a proxy plan has cost as much as is worth a word; data: plan, today",
    "proxy_budget_spent": "the budget of a proxy plan is used up; data: plan, today",
    "ticks_missed": "a schedule was due and its misfire policy said no; data: count, first, last",
    "tick_skipped": "a schedule was due and no run came of it; data: fire_at, why (overlap or duplicate)",
    "task_changed": "a task was created, changed, paused, resumed or deleted; data: change",
    "version_deployed": "a version of a project's code is there and current; data: version, before, digest, by",
    "version_used": "another version of a project's code is current; data: version, before",
    "version_deleted": "a version of a project's code was deleted; data: version",
    "breaker_opened": "a receiver of webhooks keeps failing and is left alone for a while; data: webhook, failures",
    "breaker_closed": "a receiver of webhooks works again, or was replaced; data: webhook, failures",
    "dead_letter_kept": "a message from a queue could not become a run; data: dead_letter_id, source, reason",
    "dead_letter_resubmitted": "a dead letter has become a run; data: dead_letter_id",
    "dead_letter_dropped": "a dead letter was dropped; data: dead_letter_id",
    "worker_joined": "a worker has joined; data: worker",
    "worker_left": "a worker has left after draining; data: worker",
    "worker_lost": "a worker was silent for too long; its runs start elsewhere; data: worker, runs",
}
"""Every kind of event and what it says."""

READERS: dict[str, set[str]] = {"scheduler": {"run_finished"}}
"""Who acts on which kinds. Only events of a task go into the scheduler's inbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: int
    at: Moment
    kind: str
    project: str
    run_id: int | None
    task_id: int | None
    data: Mapping[str, Any]


class Fact(msgspec.Struct, frozen=True):
    """An event that has no id yet."""

    kind: str
    project: str
    run_id: int | None = None
    task_id: int | None = None
    data: Mapping[str, Any] | None = None


def append(tx: Transaction, facts: Sequence[Fact], at: Moment) -> None:
    """Write ``facts`` and put those that a reader acts on into its inbox."""
    if not facts:
        return
    if tx.connection.dialect.name == "postgresql":
        _append_in_one_step(tx, facts, at)
        return
    ids = reserve_ids(tx, schema.event_ids, len(facts))
    insert_many(
        tx,
        schema.events,
        [
            {
                "id": event_id,
                "at": at,
                "kind": fact.kind,
                "project": fact.project,
                "run_id": fact.run_id,
                "task_id": fact.task_id,
                "data": encode(fact.data).decode() if fact.data else None,
            }
            for event_id, fact in zip(ids, facts, strict=True)
        ],
    )
    insert_many(
        tx,
        schema.inbox,
        [
            {"reader": reader, "event_id": event_id}
            for event_id, fact in zip(ids, facts, strict=True)
            if fact.task_id is not None
            for reader, kinds in READERS.items()
            if fact.kind in kinds
        ],
    )


def _append_in_one_step(tx: Transaction, facts: Sequence[Fact], at: Moment) -> None:
    """The same in one statement: with a server, each one more is a way there and back."""
    rows = [
        (fact.kind, fact.project, fact.run_id, fact.task_id, encode(fact.data).decode() if fact.data else None)
        for fact in facts
    ]
    tx.execute(_appending(), {"at": at, "given": encode(rows).decode()})


@cache
def _appending() -> TextClause:
    readers = ", ".join(f"('{reader}', '{kind}')" for reader, kinds in READERS.items() for kind in sorted(kinds))
    return text(
        """WITH given AS (
            SELECT value FROM json_array_elements(CAST(:given AS json))
        ), written AS (
            INSERT INTO events (id, at, kind, project, run_id, task_id, data)
            SELECT nextval('event_ids'), :at, value->>0, value->>1,
                CAST(value->>2 AS bigint), CAST(value->>3 AS bigint), value->>4
            FROM given
            RETURNING id, kind, task_id
        )
        INSERT INTO inbox (reader, event_id)
        SELECT reader, id FROM written JOIN (VALUES READERS) AS readers (reader, kind) USING (kind)
        WHERE task_id IS NOT NULL""".replace("READERS", readers)
    )


def waits(tx: Transaction, reader: str) -> bool:
    """Whether anything lies in the inbox of ``reader``."""
    return tx.value(select(schema.inbox.c.event_id).where(schema.inbox.c.reader == reader).limit(1)) is not None


def take(tx: Transaction, reader: str, limit: int = 100) -> list[Event]:
    """Remove the oldest events from the inbox of ``reader`` and return them, to be acted on in this transaction."""
    inbox, events = schema.inbox, schema.events
    held = tx.rows(
        skip_locked(select(inbox.c.event_id).where(inbox.c.reader == reader).order_by(inbox.c.event_id).limit(limit))
    )
    ids = [row[0] for row in held]
    if not ids:
        return []
    tx.execute(delete(inbox).where(inbox.c.reader == reader, inbox.c.event_id.in_(ids)))
    return [_event(row) for row in tx.rows(select(events).where(events.c.id.in_(ids)).order_by(events.c.id))]


def newest(tx: Transaction, limit: int = 100) -> list[Event]:
    """The newest events first."""
    return [_event(row) for row in tx.rows(select(schema.events).order_by(schema.events.c.id.desc()).limit(limit))]


class Filter(Protocol):
    """Which events are wanted; None is all."""

    @property
    def projects(self) -> Collection[str] | None: ...

    @property
    def kinds(self) -> Collection[str] | None: ...

    @property
    def run_id(self) -> int | None: ...


def find(tx: Transaction, wanted: Filter, *, above: int, below: int, limit: int) -> list[Event]:
    """The newest first of those that are wanted, with ids between two."""
    events = schema.events
    query = select(events).where(events.c.id > above, events.c.id < below)
    if wanted.projects is not None:
        query = query.where(events.c.project.in_(wanted.projects))
    if wanted.kinds is not None:
        query = query.where(events.c.kind.in_(wanted.kinds))
    if wanted.run_id is not None:
        query = query.where(events.c.run_id == wanted.run_id)
    return [_event(row) for row in tx.rows(query.order_by(events.c.id.desc()).limit(limit))]


def beyond(tx: Transaction, high: int, missing: Sequence[tuple[int, int]], limit: int) -> list[Event]:
    """Events above ``high`` or in one of the ranges of ids that were ``missing``, in the order of their ids."""
    events = schema.events
    single = [first for first, last in missing if first == last]
    queries = [select(events).where(events.c.id.between(*each)) for each in missing if each[0] < each[1]]
    queries += [select(events).where(events.c.id.in_(single[n : n + 500])) for n in range(0, len(single), 500)]
    queries.append(select(events).where(events.c.id > high))
    rows = [row for query in queries for row in tx.rows(query.order_by(events.c.id).limit(limit))]
    return [_event(row) for row in sorted(rows, key=lambda row: row.id)]


def last_id(tx: Transaction) -> int:
    """The highest id that is visible; 0 where there is none."""
    return tx.value(select(schema.events.c.id).order_by(schema.events.c.id.desc()).limit(1)) or 0


def newest_ids(tx: Transaction, limit: int) -> list[tuple[int, Moment]]:
    """Id and moment of the newest events, ascending."""
    events = schema.events
    rows = tx.rows(select(events.c.id, events.c.at).order_by(events.c.id.desc()).limit(limit))
    return [(row.id, row.at) for row in reversed(rows)]


def get(tx: Transaction, ids: Collection[int]) -> dict[int, Event]:
    """The events of these ids that there are."""
    events = schema.events
    return {row.id: _event(row) for row in tx.rows(select(events).where(events.c.id.in_(ids)))}


def _event(row: Any) -> Event:
    return Event(
        id=row.id,
        at=row.at,
        kind=row.kind,
        project=row.project,
        run_id=row.run_id,
        task_id=row.task_id,
        data=msgspec.json.decode(row.data) if row.data else {},
    )
