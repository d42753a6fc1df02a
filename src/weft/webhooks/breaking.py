"""Opens and closes the circuit breakers of webhooks, in the transaction that found out, and tells of it as events."""

from __future__ import annotations

import logging
from dataclasses import replace

from weft import events
from weft.access.model import EVERYWHERE
from weft.clock import Moment
from weft.db.database import Transaction
from weft.events import Fact
from weft.webhooks import store
from weft.webhooks.circuit import CLOSED, Circuit
from weft.webhooks.model import Webhook

log = logging.getLogger(__name__)


def admit(tx: Transaction, webhook_id: int, now: Moment, most: int) -> tuple[Circuit, int]:
    """The circuit and how many deliveries may be tried now. Of a probe only one courier is told."""
    circuit = store.circuits(tx, [webhook_id]).get(webhook_id, CLOSED)
    if not circuit.is_closed:
        circuit = store.held_circuit(tx, webhook_id) or CLOSED
    return circuit, circuit.room(now, most)


def settle(tx: Transaction, webhook: Webhook, seen: Circuit, works: bool | None, now: Moment) -> None:
    """Take in whether the receiver worked; None: no news. A try from before an opening says nothing of the time after.

    A receiver that works and has not failed is not locked: that is the usual case.
    """
    if seen.is_closed and (works is None or (works and not store.has_failed(tx, webhook.id))):
        return
    known = store.held_circuit(tx, webhook.id)
    if known is None or known.open_until != seen.open_until:
        return
    if works is None:
        store.set_circuit(tx, webhook.id, known.given_back())
    elif works:
        _close(tx, webhook, known, now)
    else:
        _fail(tx, webhook, known, now)


def close(tx: Transaction, webhook: Webhook, now: Moment) -> None:
    """Try the receiver at once, whatever is known of it."""
    known = store.held_circuit(tx, webhook.id)
    if known is not None and known != CLOSED:
        _close(tx, webhook, known, now)


def hasten(tx: Transaction, webhook_id: int, now: Moment) -> None:
    """Let the receiver be probed at once, where it is left alone."""
    known = store.held_circuit(tx, webhook_id)
    if known is not None and known.state(now) == "open":
        store.set_circuit(tx, webhook_id, replace(known, open_until=now))


def _fail(tx: Transaction, webhook: Webhook, known: Circuit, now: Moment) -> None:
    failed = known.failed(now)
    store.set_circuit(tx, webhook.id, failed)
    if known.is_closed and not failed.is_closed:
        tx.after_commit(lambda: log.warning("a receiver of webhooks is left alone", extra={"webhook_id": webhook.id}))
        _tell(tx, "breaker_opened", webhook, failed.failures, now)


def _close(tx: Transaction, webhook: Webhook, known: Circuit, now: Moment) -> None:
    store.set_circuit(tx, webhook.id, CLOSED)
    if not known.is_closed:
        tx.after_commit(lambda: log.info("a receiver of webhooks works again", extra={"webhook_id": webhook.id}))
        _tell(tx, "breaker_closed", webhook, known.failures, now)


def _tell(tx: Transaction, kind: str, webhook: Webhook, failures: int, at: Moment) -> None:
    project = "" if webhook.project == EVERYWHERE else webhook.project
    events.append(tx, [Fact(kind, project, data={"webhook": webhook.id, "failures": failures})], at)
