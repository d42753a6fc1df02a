"""Webhooks: addresses that are told what happens."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.api.call import Call
from weft.api.etags import ETAG, IF_MATCH, tag, unchanged
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.clock import iso
from weft.webhooks.circuit import CLOSED, Circuit, State
from weft.webhooks.model import Delivery, DeliveryState, Webhook

operations = Operations("webhooks")


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address and what it is told."""

    url: str
    project: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = EVERYWHERE
    """``*`` for all projects and for what belongs to none."""
    kinds: list[str] = []
    """Kinds of events; empty for all."""


class ChangedWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a webhook is to be different."""

    url: str | None = None
    kinds: list[str] | None = None
    active: bool | None = None


class BreakerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The circuit breaker of a receiver: while it is open nothing is sent there, and no try is spent."""

    state: State
    failures: int
    """In a row."""
    open_until: str | None
    """When it is probed with one delivery, if it is not closed."""


class WebhookDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook; its secret is shown only when it is made."""

    id: int
    project: str
    url: str
    kinds: list[str]
    active: bool
    created_at: str | None
    created_by: str
    waiting: int
    """How many deliveries are still to be made."""
    failing: int
    """How many of those have failed before."""
    breaker: BreakerDocument


class CreatedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook and the secret that signs what it is sent. Keep it: it is not shown again."""

    webhook: WebhookDocument
    secret: str


class DeliveryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was sent, or will be."""

    id: int
    event_id: int
    kind: str | None
    """Of the event; null where the event is gone."""
    run_id: int | None
    state: DeliveryState
    tries: int
    next_at: str | None
    status: int | None
    problem: str | None
    created_at: str | None
    finished_at: str | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which webhooks to list."""

    project: str | None = None


class DeliveryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries to list."""

    state: DeliveryState | None = None
    after: After | None = None
    limit: Limit = 50


EXAMPLE: dict[str, Any] = {
    "id": 3,
    "project": "shop",
    "url": "https://example.com/weft",
    "kinds": ["run_finished"],
    "active": True,
    "created_at": "2026-06-01T12:00:00.000Z",
    "created_by": "admin",
    "waiting": 0,
    "failing": 0,
    "breaker": {"state": "closed", "failures": 0, "open_until": None},
}
EXAMPLE_BODY = {name: EXAMPLE[name] for name in ("url", "project", "kinds")}
EXAMPLE_DELIVERY: dict[str, Any] = {
    "id": 17,
    "event_id": 1042,
    "kind": "run_finished",
    "run_id": 7,
    "state": "delivered",
    "tries": 1,
    "next_at": None,
    "status": 204,
    "problem": None,
    "created_at": "2026-06-01T12:00:00.000Z",
    "finished_at": "2026-06-01T12:00:00.120Z",
}


@operations.get(
    "/webhooks",
    needs=Role.ADMIN,
    query=Filter,
    answer=Page[WebhookDocument],
    example={"items": [EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[WebhookDocument]:
    """List the webhooks of the projects that the caller administers."""
    found = await call.app.webhooks.find(call.visible(call.query.project))
    return Page(items=await _documents(call, found))


@operations.post(
    "/webhooks",
    needs=Role.ADMIN,
    body=NewWebhook,
    answer=CreatedWebhook,
    status=201,
    example={"webhook": EXAMPLE, "secret": "whsec_…"},
    example_body=EXAMPLE_BODY,
)
async def create(call: Call) -> CreatedWebhook:
    """Make a webhook: from now on its address is told what happens. The answer has the secret, once."""
    new: NewWebhook = call.body
    call.check(new.project)
    webhook, secret = await call.app.webhooks.create(new.url, project=new.project, kinds=new.kinds, by=call.caller.name)
    call.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    [document] = await _documents(call, [webhook])
    return CreatedWebhook(webhook=document, secret=secret)


@operations.get(
    "/webhooks/{webhook_id}", needs=Role.ADMIN, answer=WebhookDocument, answer_headers=ETAG, example=EXAMPLE
)
async def show(call: Call) -> WebhookDocument:
    """Show one webhook, how many of its deliveries wait, and its circuit breaker."""
    return await _shown(call, await _checked(call))


@operations.patch(
    "/webhooks/{webhook_id}",
    needs=Role.ADMIN,
    body=ChangedWebhook,
    answer=WebhookDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=EXAMPLE | {"active": False},
    example_body={"active": False},
)
async def change(call: Call) -> WebhookDocument:
    """Change a webhook; one that is not active is told nothing of what happens meanwhile."""
    webhook = await _checked(call)
    wish: ChangedWebhook = call.body
    check = unchanged(call, "webhook", webhook.id)
    changed = await call.app.webhooks.change(
        webhook.id, url=wish.url, kinds=wish.kinds, active=wish.active, check=check
    )
    return await _shown(call, changed)


@operations.delete("/webhooks/{webhook_id}", needs=Role.ADMIN, headers=IF_MATCH)
async def delete(call: Call) -> None:
    """Remove a webhook and the log of its deliveries."""
    webhook = await _checked(call)
    await call.app.webhooks.remove(webhook.id, check=unchanged(call, "webhook", webhook.id))


@operations.get(
    "/webhooks/{webhook_id}/deliveries",
    needs=Role.ADMIN,
    query=DeliveryFilter,
    answer=Page[DeliveryDocument],
    example={"items": [EXAMPLE_DELIVERY], "next": None},
)
async def deliveries(call: Call) -> Page[DeliveryDocument]:
    """List what a webhook was sent and how that went, newest first."""
    webhook = await _checked(call)
    asked: DeliveryFilter = call.query
    found = await call.app.webhooks.deliveries(
        webhook.id, state=asked.state, before=page(asked.after), limit=asked.limit + 1
    )
    return Page.of([_delivery_document(each) for each in found], asked.limit, lambda each: each.id)


@operations.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
    needs=Role.ADMIN,
    answer=DeliveryDocument,
    status=202,
    example=EXAMPLE_DELIVERY | {"state": "waiting", "finished_at": None},
)
async def replay(call: Call) -> DeliveryDocument:
    """Send something again, under the same delivery id, however it went before."""
    webhook = await _checked(call)
    return _delivery_document(await call.app.webhooks.replay(webhook.id, call.number("delivery_id", "delivery")))


async def _checked(call: Call) -> Webhook:
    webhook_id = call.number("webhook_id", "webhook")
    webhook = await call.app.webhooks.get(webhook_id)
    call.check(webhook.project, f"webhook {webhook_id}")
    return webhook


async def _shown(call: Call, webhook: Webhook) -> WebhookDocument:
    tag(call, webhook)
    [document] = await _documents(call, [webhook])
    return document


async def _documents(call: Call, webhooks: list[Webhook]) -> list[WebhookDocument]:
    ids = [each.id for each in webhooks]
    waiting, circuits = await call.app.webhooks.waiting(ids), await call.app.webhooks.circuits(ids)
    return [
        _document(each, _breaker(call, circuits.get(each.id, CLOSED)), *waiting.get(each.id, (0, 0)))
        for each in webhooks
    ]


def _document(webhook: Webhook, breaker: BreakerDocument, waiting: int, failing: int) -> WebhookDocument:
    return WebhookDocument(
        id=webhook.id,
        project=webhook.project,
        url=webhook.url,
        kinds=list(webhook.kinds),
        active=webhook.active,
        created_at=iso(webhook.created_at),
        created_by=webhook.created_by,
        waiting=waiting,
        failing=failing,
        breaker=breaker,
    )


def _breaker(call: Call, circuit: Circuit) -> BreakerDocument:
    state = call.app.webhooks.state(circuit)
    return BreakerDocument(state=state, failures=circuit.failures, open_until=iso(circuit.open_until))


def _delivery_document(delivery: Delivery) -> DeliveryDocument:
    return DeliveryDocument(
        id=delivery.id,
        event_id=delivery.event_id,
        kind=delivery.kind,
        run_id=delivery.run_id,
        state=delivery.state,
        tries=delivery.tries,
        next_at=iso(delivery.next_at),
        status=delivery.status,
        problem=delivery.problem,
        created_at=iso(delivery.created_at),
        finished_at=iso(delivery.finished_at),
    )
