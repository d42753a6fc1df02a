"""The front door to webhooks: create, change and remove them, list and replay deliveries.

The circuit of a receiver is opened or closed in the transaction that found out, with an event.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from weft import events
from weft.access.audit import AuditedChange, record_change, record_changes
from weft.access.encryption import Encryptor
from weft.access.model import EVERYWHERE
from weft.clock import Clock, Moment
from weft.cursor import WINDOW, Cursor
from weft.db.database import Database, Transaction
from weft.errors import NotFound
from weft.events import Fact
from weft.tasks.model import check_name
from weft.webhooks import store
from weft.webhooks.model import (
    CLOSED_CIRCUIT,
    CircuitState,
    DeliveryState,
    Webhook,
    WebhookCircuit,
    WebhookDelivery,
    checked_kinds,
    checked_url,
)

log = logging.getLogger(__name__)


def admit_deliveries(tx: Transaction, webhook_id: int, now: Moment, most: int) -> tuple[WebhookCircuit, int]:
    """The circuit and how many deliveries may be tried now. Of a probe only one courier is told."""
    circuit = store.circuits(tx, [webhook_id]).get(webhook_id, CLOSED_CIRCUIT)
    if not circuit.is_closed:
        circuit = store.locked_circuit(tx, webhook_id) or CLOSED_CIRCUIT
    return circuit, circuit.room(now, most)


def settle_circuit(tx: Transaction, webhook: Webhook, seen: WebhookCircuit, works: bool | None, now: Moment) -> None:
    """Take in whether the receiver worked; None: no news. A try from before an opening says nothing of the time after.

    A receiver that works and has not failed is not locked: that is the usual case.
    """
    if seen.is_closed and (works is None or (works and not store.has_failed(tx, webhook.id))):
        return
    known = store.locked_circuit(tx, webhook.id)
    if known is None or known.open_until != seen.open_until:
        return
    if works is None:
        store.set_circuit(tx, webhook.id, known.given_back())
    elif works:
        _close_known(tx, webhook, known, now)
    else:
        _count_failure(tx, webhook, known, now)


def close_circuit(tx: Transaction, webhook: Webhook, now: Moment) -> None:
    """Try the receiver at once, whatever is known of it."""
    known = store.locked_circuit(tx, webhook.id)
    if known is not None and known != CLOSED_CIRCUIT:
        _close_known(tx, webhook, known, now)


def probe_soon(tx: Transaction, webhook_id: int, now: Moment) -> None:
    """Let the receiver be probed at once, where it is left alone."""
    known = store.locked_circuit(tx, webhook_id)
    if known is not None and known.state(now) == "open":
        store.set_circuit(tx, webhook_id, replace(known, open_until=now))


def _count_failure(tx: Transaction, webhook: Webhook, known: WebhookCircuit, now: Moment) -> None:
    failed = known.failed(now)
    store.set_circuit(tx, webhook.id, failed)
    if known.is_closed and not failed.is_closed:
        tx.after_commit(lambda: log.warning("a receiver of webhooks is left alone", extra={"webhook_id": webhook.id}))
        _breaker_event(tx, "breaker_opened", webhook, failed.failures, now)


def _close_known(tx: Transaction, webhook: Webhook, known: WebhookCircuit, now: Moment) -> None:
    store.set_circuit(tx, webhook.id, CLOSED_CIRCUIT)
    if not known.is_closed:
        tx.after_commit(lambda: log.info("a receiver of webhooks works again", extra={"webhook_id": webhook.id}))
        _breaker_event(tx, "breaker_closed", webhook, known.failures, now)


def _breaker_event(tx: Transaction, kind: str, webhook: Webhook, failures: int, at: Moment) -> None:
    project = "" if webhook.project == EVERYWHERE else webhook.project
    events.append(tx, [Fact(kind, project, data={"webhook": webhook.id, "failures": failures})], at)


WEBHOOK_READER = "webhooks"
ENCRYPTION_CONTEXT = "webhook"

WebhookCheck = Callable[[Webhook], None]
"""May refuse, by raising, to change what is there."""


class Webhooks:
    """Every webhook there is."""

    def __init__(self, db: Database, encryptor: Encryptor, clock: Clock) -> None:
        self._db, self._encryptor, self._clock = db, encryptor, clock

    async def create(
        self, url: str, *, by: str, project: str = EVERYWHERE, kinds: Collection[str] = ()
    ) -> tuple[Webhook, str]:
        """Make a webhook; the secret that signs its messages is returned here and never again.

        It is sent what happens from now on.
        """
        if project != EVERYWHERE:
            check_name("project", project)
        values = {"project": project, "url": checked_url(url), "kinds": checked_kinds(list(kinds)), "active": True}
        secret = f"whsec_{secrets.token_urlsafe(32)}"
        sealed = self._encryptor.encrypt(secret.encode(), ENCRYPTION_CONTEXT)
        at = self._clock()

        def work(tx: Transaction) -> Webhook:
            if store.cursor(tx, WEBHOOK_READER) is None:
                store.begin_cursor(tx, WEBHOOK_READER, str(Cursor.at_end(events.newest_ids(tx, WINDOW), at)))
            webhook = _existing(tx, store.add(tx, values | sealed._asdict() | {"created_at": at, "created_by": by}))
            record_changes(tx, [AuditedChange(target=f"webhook {webhook.id}", after=_audited(webhook))])
            return webhook

        return await self._db.transact(work), secret

    async def find(self, projects: Collection[str] | None = None) -> list[Webhook]:
        """The webhooks of some projects; of all where none are named."""
        return await self._db.read(lambda tx: store.find(tx, projects))

    async def get(self, webhook_id: int) -> Webhook:
        return await self._db.read(lambda tx: _existing(tx, webhook_id))

    async def waiting(self, ids: Collection[int]) -> dict[int, tuple[int, int]]:
        """How many deliveries of each webhook wait, and how many of those have failed before."""
        return await self._db.read(lambda tx: store.waiting(tx, ids))

    async def circuits(self, ids: Collection[int] | None = None) -> dict[int, WebhookCircuit]:
        """The circuit breaker of each webhook; of all where none are named."""
        return await self._db.read(lambda tx: store.circuits(tx, ids))

    def state(self, circuit: WebhookCircuit) -> CircuitState:
        """Of a circuit breaker, now."""
        return circuit.state(self._clock())

    async def change(
        self,
        webhook_id: int,
        *,
        url: str | None = None,
        kinds: Collection[str] | None = None,
        active: bool | None = None,
        check: WebhookCheck | None = None,
    ) -> Webhook:
        """Change what is given. One that is not active is sent nothing of what happens meanwhile.

        A new address, or the word that it is active, closes its circuit breaker: it is tried at once.
        """
        values: dict[str, Any] = {}
        values |= {} if url is None else {"url": checked_url(url)}
        values |= {} if kinds is None else {"kinds": checked_kinds(list(kinds))}
        values |= {} if active is None else {"active": active}

        def work(tx: Transaction) -> Webhook:
            before = _locked(tx, webhook_id, check)
            if values:
                store.change(tx, webhook_id, values)
            if url is not None or active:
                close_circuit(tx, before, self._clock())
            changed = _existing(tx, webhook_id)
            record_change(tx, before=_audited(before), after=_audited(changed))
            return changed

        return await self._db.transact(work)

    async def remove(self, webhook_id: int, *, check: WebhookCheck | None = None) -> None:
        """Remove a webhook and the log of its deliveries."""

        def work(tx: Transaction) -> None:
            before = _locked(tx, webhook_id, check)
            store.remove(tx, webhook_id)
            if not store.find(tx):
                store.end_cursor(tx, WEBHOOK_READER)
            record_change(tx, before=_audited(before))

        await self._db.transact(work)

    async def deliveries(
        self, webhook_id: int, *, state: DeliveryState | None = None, before: int | None = None, limit: int = 50
    ) -> list[WebhookDelivery]:
        """What was and will be sent, newest first."""
        return await self._db.read(lambda tx: store.log(tx, webhook_id, state, before, limit))

    async def replay(self, webhook_id: int, delivery_id: int) -> WebhookDelivery:
        """Send something again, under the same delivery id, however it went before.

        A receiver that is down is probed at once.
        """

        def work(tx: Transaction) -> WebhookDelivery:
            if store.delivery(tx, webhook_id, delivery_id) is None:
                raise NotFound("delivery", delivery_id)
            probe_soon(tx, webhook_id, self._clock())
            store.replay(tx, delivery_id, self._clock())
            replayed = store.delivery(tx, webhook_id, delivery_id)
            if replayed is None:
                raise AssertionError("it was there a moment ago")
            record_change(tx)
            return replayed

        return await self._db.transact(work)


def _locked(tx: Transaction, webhook_id: int, check: WebhookCheck | None) -> Webhook:
    """The webhook, if ``check`` lets it be changed; nobody else changes it until the transaction ends."""
    found = _existing(tx, webhook_id, lock=True)
    if check is not None:
        check(found)
    return found


def _existing(tx: Transaction, webhook_id: int, *, lock: bool = False) -> Webhook:
    found = store.get(tx, webhook_id, lock=lock)
    if found is None:
        raise NotFound("webhook", webhook_id)
    return found


def _audited(webhook: Webhook) -> dict[str, Any]:
    """What the audit log is told of a webhook."""
    return {"project": webhook.project, "url": webhook.url, "kinds": webhook.kinds, "active": webhook.active}
