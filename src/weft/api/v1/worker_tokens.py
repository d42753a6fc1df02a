"""Join tokens: each lets one remote worker in, once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.documents import KeyMade, key_document
from weft.access.model import Role
from weft.api.call import Call
from weft.api.callers import refuse_passed_on
from weft.api.operation import Operations
from weft.api.v1.keys import owner_of
from weft.clock import now, seconds
from weft.workers.protocol import Label

operations = Operations("worker_tokens")

KEY: dict[str, Any] = {
    "id": 8,
    "kind": "join",
    "prefix": "5f0c1b2a9d3e",
    "name": "home",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
    "expires_at": "2026-06-02T12:00:00.000Z",
    "last_used_at": None,
    "revoked_at": None,
    "grants": {},
    "labels": ["home"],
}


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A join token to make."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "join"
    """What it is called where keys are listed."""
    hours: Annotated[float, msgspec.Meta(ge=0.01, le=24 * 365)] = 24.0
    """How long it may be used."""
    labels: list[Label] | None = None
    """Those that the worker may claim; null for any."""


@operations.post(
    "/worker-tokens",
    needs=Role.ADMIN,
    body=NewToken,
    answer=KeyMade,
    status=201,
    example={"key": KEY, "token": "weft_5f0c1b2a9d3e_…"},
    example_body={"name": "home", "hours": 24, "labels": ["home"]},
)
async def create(call: Call) -> KeyMade:
    """Make a join token for one remote worker; it is told in the answer and never again."""
    refuse_passed_on(call.request)
    call.check_everywhere(f"key {call.body.name}")
    asked: NewToken = call.body
    key, token = await call.app.keys.create(
        asked.name,
        {},
        by=await owner_of(call),
        kind="join",
        expires_at=now() + seconds(asked.hours * 3600),
        labels=asked.labels,
    )
    return KeyMade(key=key_document(key), token=token)
