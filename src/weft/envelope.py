"""The one shape of everything that leaves weft as a message: hints, events, webhooks.

{"service": "weft", "action": "runs_ready", "payload": {…}, "timestamp": "…Z", "correlation_id": "…"}
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.clock import Moment, as_datetime
from weft.errors import Invalid

ALLOWED = "it must be a JSON object with service, action, payload, timestamp and, if wanted, correlation_id"


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who says what, when, and on whose behalf."""

    service: Annotated[str, msgspec.Meta(min_length=1)]
    action: Annotated[str, msgspec.Meta(min_length=1)]
    payload: dict[str, Any]
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    correlation_id: str = ""

    @classmethod
    def of(cls, action: str, payload: dict[str, Any], *, at: Moment, correlation_id: str = "") -> Envelope:
        """What weft itself says."""
        return cls(
            service="weft", action=action, payload=payload, timestamp=as_datetime(at), correlation_id=correlation_id
        )

    def encode(self) -> bytes:
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Raises ``Invalid`` for anything that is not exactly an envelope."""
        try:
            return _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Invalid("the message", data[:60].decode(errors="replace"), f"{ALLOWED} ({error})") from error


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
