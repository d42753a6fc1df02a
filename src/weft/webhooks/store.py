"""The SQL of webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, case, delete, func, insert, select, update

from weft.access.encryption import Encrypted
from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_many, insert_missing
from weft.db.database import Transaction
from weft.webhooks.model import DeliveryState, Webhook, WebhookCircuit, WebhookDelivery

webhooks, deliveries, cursors = schema.webhooks, schema.deliveries, schema.cursors
events = schema.events
_CIRCUIT = (webhooks.c.failures, webhooks.c.pause_seconds, webhooks.c.open_until, webhooks.c.probe_until)


def add(tx: Transaction, values: Mapping[str, Any]) -> int:
    key = tx.execute(insert(webhooks).values(_packed(values))).inserted_primary_key
    if key is None:
        raise AssertionError("an inserted row has an id")
    return int(key[0])


def change(tx: Transaction, webhook_id: int, values: Mapping[str, Any]) -> bool:
    return tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(_packed(values))).rowcount == 1


def remove(tx: Transaction, webhook_id: int) -> bool:
    """Remove a webhook and all its deliveries."""
    tx.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook_id))
    return tx.execute(delete(webhooks).where(webhooks.c.id == webhook_id)).rowcount == 1


def get(tx: Transaction, webhook_id: int, *, lock: bool = False) -> Webhook | None:
    query = select(webhooks).where(webhooks.c.id == webhook_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return None if row is None else _webhook(row)


def find(tx: Transaction, projects: Collection[str] | None = None) -> list[Webhook]:
    query = select(webhooks).order_by(webhooks.c.id)
    if projects is not None:
        query = query.where(webhooks.c.project.in_(projects))
    return [_webhook(row) for row in tx.rows(query)]


def any_active(tx: Transaction) -> bool:
    return tx.value(select(webhooks.c.id).where(webhooks.c.active).limit(1)) is not None


def sealed_secret(tx: Transaction, webhook_id: int) -> Encrypted:
    columns = (webhooks.c.key_id, webhooks.c.sealed_key, webhooks.c.sealed)
    [row] = tx.rows(select(*columns).where(webhooks.c.id == webhook_id))
    return Encrypted(row.key_id, bytes(row.sealed_key), bytes(row.sealed))


def waiting(tx: Transaction, ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """How many deliveries of each webhook wait, and how many of those have failed before."""
    failed = func.sum(case((deliveries.c.tries > 0, 1), else_=0))
    query = select(deliveries.c.webhook_id, func.count(), failed).group_by(deliveries.c.webhook_id)
    rows = tx.rows(query.where(deliveries.c.webhook_id.in_(ids), deliveries.c.next_at.is_not(None)))
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}


def cursor(tx: Transaction, reader: str) -> str | None:
    """The place up to which ``reader`` has taken every event."""
    found = tx.value(select(cursors.c.position).where(cursors.c.reader == reader))
    return None if found is None else str(found)


def begin_cursor(tx: Transaction, reader: str, place: str) -> None:
    """Let a reader that has no place yet begin at this one."""
    insert_missing(tx, cursors, {"reader": reader, "position": place})


def end_cursor(tx: Transaction, reader: str) -> None:
    tx.execute(delete(cursors).where(cursors.c.reader == reader))


def move_cursor(tx: Transaction, reader: str, old: str, new: str) -> bool:
    """Move a reader on; False where somebody else has done so."""
    same = (cursors.c.reader == reader) & (cursors.c.position == old)
    return tx.execute(update(cursors).where(same).values(position=new)).rowcount == 1


def add_deliveries(tx: Transaction, wanted: Sequence[tuple[int, int]], at: Moment) -> None:
    """Let each (webhook, event) be delivered from now on."""
    row = {"state": DeliveryState.WAITING.value, "tries": 0, "next_at": at, "created_at": at}
    insert_many(tx, deliveries, [{"webhook_id": hook, "event_id": event} | row for hook, event in wanted])


def due(tx: Transaction, webhook_id: int, at: Moment, limit: int) -> list[WebhookDelivery]:
    mine = (deliveries.c.webhook_id == webhook_id) & (deliveries.c.next_at <= at)
    return [
        _delivery(row)
        for row in tx.rows(select(deliveries).where(mine).order_by(deliveries.c.next_at, deliveries.c.id).limit(limit))
    ]


def set_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let waits that end after ``since`` end earlier by so much."""
    for column in (deliveries.c.next_at, webhooks.c.open_until, webhooks.c.probe_until):
        tx.execute(update(column.table).where(column > since).values({column: column - by}))


def with_due(tx: Transaction, at: Moment) -> list[Webhook]:
    """The active webhooks that have deliveries to be made and a receiver that may be tried."""
    tried = {webhook_id for webhook_id, circuit in circuits(tx).items() if circuit.room(at, 1)}
    return [each for each in find(tx) if each.active and each.id in tried and due(tx, each.id, at, 1)]


def circuits(tx: Transaction, ids: Collection[int] | None = None) -> dict[int, WebhookCircuit]:
    """The circuit breaker of each webhook; of all where none are named."""
    query = select(webhooks.c.id, *_CIRCUIT)
    rows = tx.rows(query if ids is None else query.where(webhooks.c.id.in_(ids)))
    return {row.id: _circuit(row) for row in rows}


def locked_circuit(tx: Transaction, webhook_id: int) -> WebhookCircuit | None:
    """The circuit breaker of one; nobody else changes it until the transaction ends."""
    row = tx.execute(select(*_CIRCUIT).where(webhooks.c.id == webhook_id).with_for_update()).first()
    return None if row is None else _circuit(row)


def set_circuit(tx: Transaction, webhook_id: int, circuit: WebhookCircuit) -> None:
    values = {column.name: getattr(circuit, column.name) for column in _CIRCUIT}
    tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(values))


def has_failed(tx: Transaction, webhook_id: int) -> bool:
    """Whether the receiver has failed since it last worked; without waiting for anybody."""
    return bool(tx.value(select(webhooks.c.failures).where(webhooks.c.id == webhook_id)))


def abandon(tx: Transaction, due_before: Moment, at: Moment, problem: str) -> int:
    """Give up what was due that long ago and could not be tried, because its receiver is down."""
    down = select(webhooks.c.id).where(webhooks.c.active, webhooks.c.open_until.is_not(None))
    late = deliveries.c.webhook_id.in_(down) & (deliveries.c.next_at < due_before)
    ended = {"state": DeliveryState.GIVEN_UP.value, "next_at": None, "finished_at": at, "problem": problem}
    return tx.execute(update(deliveries).where(late).values(ended)).rowcount


def claim(tx: Transaction, delivery: WebhookDelivery, until: Moment) -> bool:
    """Count a try and keep others from making the same one before ``until``; False where somebody was first."""
    same = (
        (deliveries.c.id == delivery.id)
        & (deliveries.c.next_at == delivery.next_at)
        & (deliveries.c.tries == delivery.tries)
    )
    return tx.execute(update(deliveries).where(same).values(next_at=until, tries=delivery.tries + 1)).rowcount == 1


def mark(tx: Transaction, delivery_id: int, claimed_until: Moment, values: Mapping[str, Any]) -> bool:
    """Write down how a claimed try went; False where the claim had run out and another has it."""
    same = (deliveries.c.id == delivery_id) & (deliveries.c.next_at == claimed_until)
    return tx.execute(update(deliveries).where(same).values(values)).rowcount == 1


def replay(tx: Transaction, delivery_id: int, at: Moment) -> None:
    """Deliver it once more, from the first try on."""
    again = {"state": DeliveryState.WAITING.value, "tries": 0, "next_at": at, "finished_at": None}
    tx.execute(update(deliveries).where(deliveries.c.id == delivery_id).values(again))


def delivery(tx: Transaction, webhook_id: int, delivery_id: int) -> WebhookDelivery | None:
    same = (deliveries.c.id == delivery_id) & (deliveries.c.webhook_id == webhook_id)
    row = tx.execute(_with_event().where(same)).first()
    return None if row is None else _delivery(row)


def log(tx: Transaction, webhook_id: int, state: str | None, before: int | None, limit: int) -> list[WebhookDelivery]:
    """The deliveries of a webhook, newest first."""
    query = _with_event().where(deliveries.c.webhook_id == webhook_id)
    if state is not None:
        query = query.where(deliveries.c.state == state)
    if before is not None:
        query = query.where(deliveries.c.id < before)
    return [_delivery(row) for row in tx.rows(query.order_by(deliveries.c.id.desc()).limit(limit))]


def _with_event() -> Select[Any]:
    """Deliveries with what of their events people ask for; old events may be gone."""
    joined = deliveries.outerjoin(events, events.c.id == deliveries.c.event_id)
    return select(deliveries, events.c.kind, events.c.run_id).select_from(joined)


def forget(tx: Transaction, before: Moment, limit: int) -> int:
    """Delete deliveries that have ended long ago."""
    old = select(deliveries.c.id).where(deliveries.c.finished_at < before).limit(limit)
    ids = [row[0] for row in tx.rows(old)]
    return tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids))).rowcount if ids else 0


def _packed(values: Mapping[str, Any]) -> dict[str, Any]:
    packed = dict(values)
    if "kinds" in packed:
        packed["kinds"] = msgspec.json.encode(packed["kinds"]).decode()
    return packed


def _circuit(row: Any) -> WebhookCircuit:
    return WebhookCircuit(
        failures=row.failures or 0,
        pause_seconds=row.pause_seconds or 0.0,
        open_until=row.open_until,
        probe_until=row.probe_until,
    )


def _webhook(row: Any) -> Webhook:
    fields = {name: getattr(row, name) for name in Webhook.__dataclass_fields__}
    return Webhook(**fields | {"kinds": tuple(msgspec.json.decode(row.kinds))})


def _delivery(row: Any) -> WebhookDelivery:
    fields: dict[str, Any] = {name: getattr(row, name, None) for name in WebhookDelivery.__dataclass_fields__}
    return WebhookDelivery(**fields | {"state": DeliveryState(row.state)})
