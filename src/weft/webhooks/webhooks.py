"""The front door to webhooks: make, change, remove, see what was delivered and deliver it again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from typing import Any

from weft import events
from weft.access.model import EVERYWHERE
from weft.access.sealing import Sealer
from weft.access.witness import Told, tell, tell_all
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.errors import NotFound
from weft.position import WINDOW, Position
from weft.tasks.model import check_name
from weft.webhooks import breaking, store
from weft.webhooks.circuit import Circuit, State
from weft.webhooks.model import Delivery, DeliveryState, Webhook, checked_kinds, checked_url

READER = "webhooks"
ABOUT = "webhook"

Check = Callable[[Webhook], None]
"""May refuse, by raising, to change what is there."""


class Webhooks:
    """Every webhook there is."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock) -> None:
        self._db, self._sealer, self._clock = db, sealer, clock

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
        sealed = self._sealer.seal(secret.encode(), ABOUT)
        at = self._clock()

        def work(tx: Transaction) -> Webhook:
            if store.cursor(tx, READER) is None:
                store.begin_cursor(tx, READER, str(Position.at_end(events.newest_ids(tx, WINDOW), at)))
            webhook = _existing(tx, store.add(tx, values | sealed._asdict() | {"created_at": at, "created_by": by}))
            tell_all(tx, [Told(target=f"webhook {webhook.id}", after=_told(webhook))])
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

    async def circuits(self, ids: Collection[int] | None = None) -> dict[int, Circuit]:
        """The circuit breaker of each webhook; of all where none are named."""
        return await self._db.read(lambda tx: store.circuits(tx, ids))

    def state(self, circuit: Circuit) -> State:
        """Of a circuit breaker, now."""
        return circuit.state(self._clock())

    async def change(
        self,
        webhook_id: int,
        *,
        url: str | None = None,
        kinds: Collection[str] | None = None,
        active: bool | None = None,
        check: Check | None = None,
    ) -> Webhook:
        """Change what is given. One that is not active is sent nothing of what happens meanwhile.

        A new address, or the word that it is active, closes its circuit breaker: it is tried at once.
        """
        values: dict[str, Any] = {}
        values |= {} if url is None else {"url": checked_url(url)}
        values |= {} if kinds is None else {"kinds": checked_kinds(list(kinds))}
        values |= {} if active is None else {"active": active}

        def work(tx: Transaction) -> Webhook:
            before = _held(tx, webhook_id, check)
            if values:
                store.change(tx, webhook_id, values)
            if url is not None or active:
                breaking.close(tx, before, self._clock())
            changed = _existing(tx, webhook_id)
            tell(tx, before=_told(before), after=_told(changed))
            return changed

        return await self._db.transact(work)

    async def remove(self, webhook_id: int, *, check: Check | None = None) -> None:
        """Remove a webhook and the log of its deliveries."""

        def work(tx: Transaction) -> None:
            before = _held(tx, webhook_id, check)
            store.remove(tx, webhook_id)
            if not store.find(tx):
                store.end_cursor(tx, READER)
            tell(tx, before=_told(before))

        await self._db.transact(work)

    async def deliveries(
        self, webhook_id: int, *, state: DeliveryState | None = None, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        """What was and will be sent, newest first."""
        return await self._db.read(lambda tx: store.log(tx, webhook_id, state, before, limit))

    async def replay(self, webhook_id: int, delivery_id: int) -> Delivery:
        """Send something again, under the same delivery id, however it went before.

        A receiver that is down is probed at once.
        """

        def work(tx: Transaction) -> Delivery:
            if store.delivery(tx, webhook_id, delivery_id) is None:
                raise NotFound("delivery", delivery_id)
            breaking.hasten(tx, webhook_id, self._clock())
            store.replay(tx, delivery_id, self._clock())
            replayed = store.delivery(tx, webhook_id, delivery_id)
            if replayed is None:
                raise AssertionError("it was there a moment ago")
            tell(tx)
            return replayed

        return await self._db.transact(work)


def _held(tx: Transaction, webhook_id: int, check: Check | None) -> Webhook:
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


def _told(webhook: Webhook) -> dict[str, Any]:
    """What the audit log is told of a webhook."""
    return {"project": webhook.project, "url": webhook.url, "kinds": webhook.kinds, "active": webhook.active}
