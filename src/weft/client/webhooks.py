"""Webhooks of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from weft.access.model import EVERYWHERE
from weft.client.connection import Connection
from weft.client.values import at
from weft.operations.paging import Page, encode_cursor
from weft.operations.webhooks import CreatedWebhookDocument, WebhookDeliveryDocument, WebhookDocument
from weft.webhooks.model import DeliveryState, Webhook, WebhookDelivery

MOMENTS = ("created_at", "finished_at", "next_at")


class RemoteWebhooks:
    """What ``webhooks.Webhooks`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self, url: str, *, by: str = "", project: str = EVERYWHERE, kinds: Collection[str] = ()
    ) -> tuple[Webhook, str]:
        """Make a webhook; who makes it, the gateway knows. The secret is returned here and never again."""
        body = {"url": url, "project": project, "kinds": list(kinds)}
        made: CreatedWebhookDocument = await self._connection.call(
            "POST", ("webhooks",), CreatedWebhookDocument, body=body
        )
        return _webhook(made.webhook), made.secret

    async def find(self, projects: Collection[str] | None = None) -> list[Webhook]:
        """The webhooks of one project, or of all that the caller administers."""
        [project] = projects if projects is not None else [None]
        page = await self._connection.get(Page[WebhookDocument], "webhooks", project=project)
        return [_webhook(each) for each in page.items]

    async def get(self, webhook_id: int) -> Webhook:
        return _webhook(await self._connection.get(WebhookDocument, "webhooks", webhook_id))

    async def change(
        self,
        webhook_id: int,
        *,
        url: str | None = None,
        kinds: Collection[str] | None = None,
        active: bool | None = None,
    ) -> Webhook:
        wished = {"url": url, "kinds": None if kinds is None else list(kinds), "active": active}
        body = {name: value for name, value in wished.items() if value is not None}
        return _webhook(await self._connection.call("PATCH", ("webhooks", webhook_id), WebhookDocument, body=body))

    async def remove(self, webhook_id: int) -> None:
        await self._connection.call("DELETE", ("webhooks", webhook_id), None)

    async def deliveries(
        self, webhook_id: int, *, state: DeliveryState | None = None, before: int | None = None, limit: int = 50
    ) -> list[WebhookDelivery]:
        asked: dict[str, Any] = {
            "state": state,
            "after": None if before is None else encode_cursor(before),
            "limit": limit,
        }
        path = ("webhooks", webhook_id, "deliveries")
        page = await self._connection.get(Page[WebhookDeliveryDocument], *path, **asked)
        return [_delivery(webhook_id, each) for each in page.items]

    async def replay(self, webhook_id: int, delivery_id: int) -> WebhookDelivery:
        path = ("webhooks", webhook_id, "deliveries", delivery_id, "replay")
        return _delivery(webhook_id, await self._connection.call("POST", path, WebhookDeliveryDocument))


def _webhook(document: WebhookDocument) -> Webhook:
    fields = {name: getattr(document, name) for name in Webhook.__dataclass_fields__}
    return Webhook(**_moments(fields) | {"kinds": tuple(document.kinds)})


def _delivery(webhook_id: int, document: WebhookDeliveryDocument) -> WebhookDelivery:
    names = [name for name in WebhookDelivery.__dataclass_fields__ if name != "webhook_id"]
    return WebhookDelivery(webhook_id=webhook_id, **_moments({name: getattr(document, name) for name in names}))


def _moments(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: at(value) if name in MOMENTS else value for name, value in fields.items()}
