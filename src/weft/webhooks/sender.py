"""Sends webhooks: turns events into deliveries and sends each to its receiver, at least once.

A cursor in the stream of events, kept in the database and moved in the transaction that writes the deliveries, makes
sure that none is skipped. A try is claimed before it is made and written down after, so a sender that dies in between
makes it happen twice, under the same delivery id. One process leads to save work; nothing is wrong when two believe
that they do.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from weft import events
from weft.access.encryption import Encryptor
from weft.address_guard import Guard
from weft.clock import SECOND, Clock, Moment, seconds
from weft.cursor import Cursor
from weft.db.database import Database, Transaction
from weft.envelope import Envelope
from weft.errors import WeftError
from weft.event_stream import event_document
from weft.events import Event
from weft.redaction import redacted_tree
from weft.runs import list_store
from weft.tasks.leader import Leader
from weft.webhooks import store, webhooks
from weft.webhooks.model import (
    MOST_TRIES,
    DeliveryState,
    Webhook,
    WebhookCircuit,
    WebhookDelivery,
    pause_seconds,
    signature,
)
from weft.webhooks.webhooks import ENCRYPTION_CONTEXT, WEBHOOK_READER

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

MOST_TAKEN = 500
MOST_AT_ONCE = 8
"""How many deliveries one receiver gets at the same time."""

ANSWER_SECONDS = 10.0
CLAIM_SECONDS = 60.0
LARGEST_ANSWER = 1024
KEPT_SECONDS = 30 * 24 * 3600.0
"""How long a delivery that has ended stays in the log."""
DOWN_SECONDS = 3 * 24 * 3600.0
"""How long a delivery waits for a receiver that is down."""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """All that one delivery sends."""

    delivery: WebhookDelivery
    event: Event | None
    correlation_id: str
    claimed_until: Moment
    circuit: WebhookCircuit
    """As it was when the try was claimed."""


class WebhookSender:
    def __init__(self, db: Database, encryptor: Encryptor, leader: Leader, clock: Clock, guard: Guard) -> None:
        self._db, self._encryptor, self._leader, self._clock, self._guard = db, encryptor, leader, clock, guard
        self._position: Cursor | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}

    async def tick(self) -> int:
        """Write deliveries for what has happened, and start sending those that are due; return how many were written.

        Sending goes on by itself, each receiver apart, so that a slow one keeps nobody waiting.
        """
        if not await self._db.read(store.any_active) or not await self._leader.leads():
            return 0
        written = await self._write_deliveries()
        self._sending = {key: sending for key, sending in self._sending.items() if not sending.done()}
        now = self._clock()
        for webhook in await self._db.read(lambda tx: store.with_due(tx, now)):
            if webhook.id not in self._sending:
                self._sending[webhook.id] = asyncio.create_task(self._send_due(webhook))
        return written

    async def rest(self) -> None:
        """Return when everything that was due has been tried."""
        await asyncio.gather(*self._sending.values())

    async def close(self) -> None:
        """Stop at once; what is under way is sent again by the next courier."""
        for sending in self._sending.values():
            sending.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        await self._leader.resign()

    async def forget_old(self) -> int:
        """Forget deliveries that ended long ago; give up those that a receiver which is down has kept waiting."""
        now = self._clock()
        why = f"the receiver was down, and it has waited for {DOWN_SECONDS / 86400:g} days"
        await self._db.transact(lambda tx: store.abandon(tx, now - seconds(DOWN_SECONDS), now, why))
        return await self._db.transact(lambda tx: store.forget(tx, now - seconds(KEPT_SECONDS), 10_000))

    async def _write_deliveries(self) -> int:
        count = 0
        while True:
            taken, wanted = await self._write_some()
            count += wanted
            if taken < MOST_TAKEN:
                return count

    async def _write_some(self) -> tuple[int, int]:
        """Take the next events; return how many, and how many deliveries that made."""
        place = await self._db.read(lambda tx: store.cursor(tx, WEBHOOK_READER))
        if place is None:
            return 0, 0
        now, position = self._clock(), self._at(place)
        high, missing = position.high, position.missing
        found = await self._db.read(lambda tx: events.beyond(tx, high, missing, MOST_TAKEN))
        fresh = [event for event in found if position.take(event.id, event.at, now)]
        position.give_up(now)

        def work(tx: Transaction) -> int:
            if not store.move_cursor(tx, WEBHOOK_READER, place, str(position)):
                return 0
            webhooks = store.find(tx)
            wanted = [(webhook.id, event.id) for event in fresh for webhook in webhooks if webhook.wants(event)]
            store.add_deliveries(tx, wanted, now)
            return len(wanted)

        written = await self._db.transact(work) if str(position) != place else 0
        self._position = position
        return len(found), written

    def _at(self, place: str) -> Cursor:
        """That place, with the memory of how long ids have been missing where it is our own."""
        known = self._position
        return known.copy() if known is not None and str(known) == place else Cursor.parse(place, self._clock())

    async def _send_due(self, webhook: Webhook) -> None:
        """Try all that is due at one receiver; what goes wrong is put off until the next tick."""
        import aiohttp

        try:
            secret = await self._secret(webhook)
            timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            jar, connector = aiohttp.DummyCookieJar(), aiohttp.TCPConnector(socket_factory=self._guard.socket)
            async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar, connector=connector) as session:
                while messages := await self._claim(webhook):
                    await asyncio.gather(*(self._deliver(session, webhook, secret, each) for each in messages))
        except WeftError as problem:
            log.warning("webhook put off", extra={"webhook_id": webhook.id, "why": str(problem)})
        except Exception:
            log.exception("webhook failed", extra={"webhook_id": webhook.id})

    async def _secret(self, webhook: Webhook) -> str:
        sealed = await self._db.read(lambda tx: store.sealed_secret(tx, webhook.id))
        return self._encryptor.decrypt(*sealed, ENCRYPTION_CONTEXT).decode()

    async def _claim(self, webhook: Webhook) -> list[WebhookMessage]:
        """The next that are due: one where the receiver is probed, none where it is left alone.

        None, too, where the webhook was changed meanwhile, which the next tick looks at anew.
        """
        now = self._clock()
        until = now + seconds(CLAIM_SECONDS)

        def work(tx: Transaction) -> list[WebhookMessage]:
            if store.get(tx, webhook.id) != webhook:
                return []
            circuit, room = webhooks.admit_deliveries(tx, webhook.id, now, MOST_AT_ONCE)
            due = (
                [each for each in store.due(tx, webhook.id, now, room) if store.claim(tx, each, until)] if room else []
            )
            if due and not circuit.is_closed:
                store.set_circuit(tx, webhook.id, circuit.probed(until))
            about = events.get(tx, [each.event_id for each in due]) if due else {}
            return [_message(tx, each, about.get(each.event_id), until, circuit) for each in due]

        return await self._db.transact(work)

    async def _deliver(
        self, session: aiohttp.ClientSession, webhook: Webhook, secret: str, message: WebhookMessage
    ) -> None:
        tries = message.delivery.tries + 1
        status: int | None = None
        problem: str | None = "the event was forgotten before it could be sent"
        if message.event is None:
            tries = MOST_TRIES
        else:
            status, problem = await _post(session, webhook.url, self._request(secret, message, message.event))
        values = {"status": status, "problem": problem} | self._outcome(tries, problem)
        works = None if message.event is None else problem is None

        def work(tx: Transaction) -> None:
            webhooks.settle_circuit(tx, webhook, message.circuit, works, self._clock())
            store.mark(tx, message.delivery.id, message.claimed_until, values)

        await self._db.transact(work)
        extra = {"webhook_id": webhook.id, "delivery_id": message.delivery.id, "status": status, "why": problem}
        log.debug("delivered" if problem is None else "delivery failed", extra=extra)

    def _outcome(self, tries: int, problem: str | None) -> dict[str, Any]:
        now = self._clock()
        if problem is not None and tries < MOST_TRIES:
            return {"next_at": now + seconds(pause_seconds(tries, random.random()))}
        state = DeliveryState.DELIVERED if problem is None else DeliveryState.GIVEN_UP
        return {"state": state.value, "next_at": None, "finished_at": now}

    def _request(self, secret: str, message: WebhookMessage, event: Event) -> tuple[bytes, dict[str, str]]:
        payload = redacted_tree(msgspec.to_builtins(event_document(event)))
        body = Envelope.of(event.kind, payload, at=event.at, correlation_id=message.correlation_id).encode()
        timestamp = self._clock() // SECOND
        return body, {
            "Content-Type": "application/json",
            "User-Agent": "weft",
            "Weft-Delivery": str(message.delivery.id),
            "Weft-Event": event.kind,
            "Weft-Timestamp": str(timestamp),
            "Weft-Signature": signature(secret, timestamp, body),
        }


def _message(
    tx: Transaction, delivery: WebhookDelivery, event: Event | None, until: Moment, circuit: WebhookCircuit
) -> WebhookMessage:
    run = list_store.get(tx, event.run_id) if event is not None and event.run_id is not None else None
    return WebhookMessage(delivery, event, run.correlation_id if run is not None else "", until, circuit)


async def _post(
    session: aiohttp.ClientSession, url: str, request: tuple[bytes, dict[str, str]]
) -> tuple[int | None, str | None]:
    """The receiver's status, and the problem where it is none of success."""
    import aiohttp

    body, headers = request
    try:
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            await response.content.read(LARGEST_ANSWER)
            sound = 200 <= response.status < 300
            return response.status, None if sound else f"the receiver answered {response.status}"
    except TimeoutError:
        return None, f"the receiver did not answer within {ANSWER_SECONDS:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        return None, f"the receiver cannot be reached: {problem}"[:500]
