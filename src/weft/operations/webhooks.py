"""Manage webhooks, list their deliveries and replay them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.clock import iso
from weft.operations.operation import ETAG_HEADER, IF_MATCH_HEADER, Call, Operations, check_etag, set_etag
from weft.operations.paging import Limit, Page, PageCursor, decode_number
from weft.webhooks.model import CLOSED_CIRCUIT, CircuitState, DeliveryState, Webhook, WebhookCircuit, WebhookDelivery

operations = Operations("webhooks")


class WebhookInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address and what it is told."""

    url: str
    project: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = EVERYWHERE
    """``*`` for all projects and for what belongs to none."""
    kinds: list[str] = []
    """Kinds of events; empty for all."""


class WebhookUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a webhook is to be different."""

    url: str | None = None
    kinds: list[str] | None = None
    active: bool | None = None


class CircuitBreakerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The circuit breaker of a receiver: while it is open nothing is sent there, and no try is spent."""

    state: CircuitState
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
    breaker: CircuitBreakerDocument


class CreatedWebhookDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook and the secret that signs what it is sent. Keep it: it is not shown again."""

    webhook: WebhookDocument
    secret: str


class WebhookDeliveryDocument(msgspec.Struct, frozen=True, kw_only=True):
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


class WebhookQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which webhooks to list."""

    project: str | None = None


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries to list."""

    state: DeliveryState | None = None
    after: PageCursor | None = None
    limit: Limit = 50


WEBHOOK_EXAMPLE: dict[str, Any] = {
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
WEBHOOK_INPUT_EXAMPLE = {name: WEBHOOK_EXAMPLE[name] for name in ("url", "project", "kinds")}
DELIVERY_EXAMPLE: dict[str, Any] = {
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
    query=WebhookQuery,
    answer=Page[WebhookDocument],
    example={"items": [WEBHOOK_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[WebhookDocument]:
    """List the webhooks of the projects that the caller administers."""
    found = await call.app.webhooks.find(call.visible(call.query.project))
    return Page(items=await _documents(call, found))


@operations.post(
    "/webhooks",
    needs=Role.ADMIN,
    body=WebhookInput,
    answer=CreatedWebhookDocument,
    status=201,
    example={"webhook": WEBHOOK_EXAMPLE, "secret": "whsec_…"},
    example_body=WEBHOOK_INPUT_EXAMPLE,
)
async def create(call: Call) -> CreatedWebhookDocument:
    """Make a webhook: from now on its address is told what happens. The answer has the secret, once."""
    new: WebhookInput = call.body
    call.check(new.project)
    webhook, secret = await call.app.webhooks.create(new.url, project=new.project, kinds=new.kinds, by=call.caller.name)
    call.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    [document] = await _documents(call, [webhook])
    return CreatedWebhookDocument(webhook=document, secret=secret)


@operations.get(
    "/webhooks/{webhook_id}",
    needs=Role.ADMIN,
    answer=WebhookDocument,
    answer_headers=ETAG_HEADER,
    example=WEBHOOK_EXAMPLE,
)
async def show(call: Call) -> WebhookDocument:
    """Show one webhook, how many of its deliveries wait, and its circuit breaker."""
    return await _shown(call, await _checked(call))


@operations.patch(
    "/webhooks/{webhook_id}",
    needs=Role.ADMIN,
    body=WebhookUpdate,
    answer=WebhookDocument,
    headers=IF_MATCH_HEADER,
    answer_headers=ETAG_HEADER,
    example=WEBHOOK_EXAMPLE | {"active": False},
    example_body={"active": False},
)
async def change(call: Call) -> WebhookDocument:
    """Change a webhook; one that is not active is told nothing of what happens meanwhile."""
    webhook = await _checked(call)
    wish: WebhookUpdate = call.body
    check = check_etag(call, "webhook", webhook.id)
    changed = await call.app.webhooks.change(
        webhook.id, url=wish.url, kinds=wish.kinds, active=wish.active, check=check
    )
    return await _shown(call, changed)


@operations.delete("/webhooks/{webhook_id}", needs=Role.ADMIN, headers=IF_MATCH_HEADER)
async def delete(call: Call) -> None:
    """Remove a webhook and the log of its deliveries."""
    webhook = await _checked(call)
    await call.app.webhooks.remove(webhook.id, check=check_etag(call, "webhook", webhook.id))


@operations.get(
    "/webhooks/{webhook_id}/deliveries",
    needs=Role.ADMIN,
    query=DeliveryQuery,
    answer=Page[WebhookDeliveryDocument],
    example={"items": [DELIVERY_EXAMPLE], "next": None},
)
async def deliveries(call: Call) -> Page[WebhookDeliveryDocument]:
    """List what a webhook was sent and how that went, newest first."""
    webhook = await _checked(call)
    asked: DeliveryQuery = call.query
    found = await call.app.webhooks.deliveries(
        webhook.id, state=asked.state, before=decode_number(asked.after), limit=asked.limit + 1
    )
    return Page.of([_delivery_document(each) for each in found], asked.limit, lambda each: each.id)


@operations.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
    needs=Role.ADMIN,
    answer=WebhookDeliveryDocument,
    status=202,
    example=DELIVERY_EXAMPLE | {"state": "waiting", "finished_at": None},
)
async def replay(call: Call) -> WebhookDeliveryDocument:
    """Send something again, under the same delivery id, however it went before."""
    webhook = await _checked(call)
    return _delivery_document(await call.app.webhooks.replay(webhook.id, call.number("delivery_id", "delivery")))


async def _checked(call: Call) -> Webhook:
    webhook_id = call.number("webhook_id", "webhook")
    webhook = await call.app.webhooks.get(webhook_id)
    call.check(webhook.project, f"webhook {webhook_id}")
    return webhook


async def _shown(call: Call, webhook: Webhook) -> WebhookDocument:
    set_etag(call, webhook)
    [document] = await _documents(call, [webhook])
    return document


async def _documents(call: Call, webhooks: list[Webhook]) -> list[WebhookDocument]:
    ids = [each.id for each in webhooks]
    waiting, circuits = await call.app.webhooks.waiting(ids), await call.app.webhooks.circuits(ids)
    return [
        _document(each, _breaker(call, circuits.get(each.id, CLOSED_CIRCUIT)), *waiting.get(each.id, (0, 0)))
        for each in webhooks
    ]


def _document(webhook: Webhook, breaker: CircuitBreakerDocument, waiting: int, failing: int) -> WebhookDocument:
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


def _breaker(call: Call, circuit: WebhookCircuit) -> CircuitBreakerDocument:
    state = call.app.webhooks.state(circuit)
    return CircuitBreakerDocument(state=state, failures=circuit.failures, open_until=iso(circuit.open_until))


def _delivery_document(delivery: WebhookDelivery) -> WebhookDeliveryDocument:
    return WebhookDeliveryDocument(
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
