"""What tests of intake share: an order in one line, as a body and as a message."""

from __future__ import annotations

import json
from typing import Any

from weft.ports import Message

SOURCE = "amqp://mq.example:5672/#scraper_tasks"


def body(task_id: str = "t-1", **changed: Any) -> bytes:
    """An order of the spider that ``a_version`` has."""
    return json.dumps({"task_id": task_id, "project": "shop", "spider": "prices"} | changed).encode()


def enveloped(action: str = "execute_spider", correlation_id: str = "e-1", **changed: Any) -> bytes:
    envelope = {"service": "shop-backend", "action": action, "payload": json.loads(body(**changed))}
    return json.dumps(envelope | {"timestamp": "2026-06-01T12:00:00Z", "correlation_id": correlation_id}).encode()


def message(text: bytes | None = None, *, id: str = "m-1", **fields: Any) -> Message:
    return Message(id=id, body=body() if text is None else text, **fields)
