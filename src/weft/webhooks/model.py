"""What a webhook and a delivery are. Values only, no I/O."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from weft.access.model import EVERYWHERE
from weft.clock import Moment
from weft.errors import Invalid
from weft.events import KINDS, Event

LONGEST_URL = 2_000
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 3600.0
MOST_TRIES = 32
"""With the pauses between them, about a day."""

BREAKER_KINDS = ("breaker_opened", "breaker_closed")

TOLERANCE_SECONDS = 300
"""How old a message may be that a receiver still believes."""


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where events of a project go."""

    id: int
    project: str
    """``*`` for all of them, and for what belongs to none."""
    url: str
    kinds: tuple[str, ...]
    """Empty for all."""
    active: bool
    created_at: Moment
    created_by: str

    def wants(self, event: Event) -> bool:
        """Whether to send it; of its own circuit breaker a webhook is told nothing."""
        if event.kind in BREAKER_KINDS and event.data.get("webhook") == self.id:
            return False
        return (
            self.active and self.project in (EVERYWHERE, event.project) and (not self.kinds or event.kind in self.kinds)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event on its way to a webhook."""

    id: int
    webhook_id: int
    event_id: int
    state: DeliveryState
    tries: int
    next_at: Moment | None
    """When it is tried again."""
    status: int | None
    """What the receiver answered last."""
    problem: str | None
    created_at: Moment
    finished_at: Moment | None
    kind: str | None = None
    """Of the event, where a log is read and the event is still there."""
    run_id: int | None = None


_TIMESTAMP = re.compile(r"\d{1,15}", re.ASCII)


def checked_url(url: str) -> str:
    """An address that may be sent to.

    Which hosts may be reached is not decided here yet: an admin of a project can name an address in the network of the
    control processes. The guarded client for all that weft fetches will decide it for webhooks too.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or len(url) > LONGEST_URL or any(ord(character) <= 32 for character in url):
        raise Invalid("url", url, f"it must be an address http://… or https://… of at most {LONGEST_URL} characters")
    if parts.username is not None or parts.password is not None:
        raise Invalid(
            "url", "•" * 4, "it must have no password in it: everybody who may see the webhook would see that"
        )
    return url


def checked_kinds(kinds: list[str]) -> tuple[str, ...]:
    for kind in kinds:
        if kind not in KINDS:
            raise Invalid("kinds", kind, f"it must be one of {', '.join(sorted(KINDS))}")
    return tuple(dict.fromkeys(kinds))


def pause_seconds(tries: int, share: float) -> float:
    """How long to wait after so many tries; ``share``, from 0 to 1, spreads those that failed together."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 20), LONGEST_PAUSE_SECONDS)
    return longest * (0.75 + share / 2)


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """What ``Weft-Signature`` says: that whoever knows the secret sent this body at this moment."""
    mac = hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256)
    return f"v1={mac.hexdigest()}"


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes, now_seconds: float) -> bool:
    """Whether a message was sent by a weft that knows the secret, and not long ago: for receivers in Python."""
    timestamp = headers.get("Weft-Timestamp", "")
    if not _TIMESTAMP.fullmatch(timestamp) or abs(now_seconds - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    expected = signature(secret, int(timestamp), body)
    return hmac.compare_digest(expected.encode(), headers.get("Weft-Signature", "").encode())
