"""The values of webhooks, of their deliveries, and of the circuit breaker of a receiver. Values only, no I/O.

A receiver that keeps failing is paused, then probed:

closed ──5 failures in a row──▶ open ──time passes──▶ half-open ──its one probe succeeds──▶ closed
                                 ▲                        │
                                 └──── it fails: longer ◀─┘

What is known of a receiver is kept in the row of its webhook, so every sender sees the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal
from urllib.parse import urlsplit

from weft.access.model import EVERYWHERE
from weft.clock import Moment, seconds
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
class WebhookDelivery:
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


FAILURES_TO_OPEN = 5
FIRST_OPEN_SECONDS = 1.0
LONGEST_OPEN_SECONDS = 600.0


CircuitState = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCircuit:
    """What is known of a receiver since it last worked."""

    failures: int = 0
    """In a row."""
    pause_seconds: float = 0.0
    """How long it was last opened for; 0 while it is closed."""
    open_until: Moment | None = None
    probe_until: Moment | None = None
    """How long the probe that is under way may take; another courier makes one where it did not come back."""

    @property
    def is_closed(self) -> bool:
        return self.open_until is None

    def state(self, now: Moment) -> CircuitState:
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half-open"

    def room(self, now: Moment, most: int) -> int:
        """How many deliveries may be tried at once now."""
        if self.is_closed:
            return most
        probing = self.probe_until is not None and now < self.probe_until
        return 0 if probing or self.state(now) == "open" else 1

    def probed(self, until: Moment) -> WebhookCircuit:
        return self if self.is_closed else replace(self, probe_until=until)

    def given_back(self) -> WebhookCircuit:
        """The probe brought no news; another may be made."""
        return replace(self, probe_until=None)

    def failed(self, now: Moment) -> WebhookCircuit:
        failures = self.failures + 1
        if failures < FAILURES_TO_OPEN:
            return WebhookCircuit(failures=failures)
        pause = min(self.pause_seconds * 2 or FIRST_OPEN_SECONDS, LONGEST_OPEN_SECONDS)
        return WebhookCircuit(failures=failures, pause_seconds=pause, open_until=now + seconds(pause))


CLOSED_CIRCUIT = WebhookCircuit()
