"""The circuit breaker of a webhook: one whose receiver keeps failing is left alone, then probed.

closed ──5 failures in a row──▶ open ──time passes──▶ half-open ──its one probe succeeds──▶ closed
                                 ▲                        │
                                 └──── it fails: longer ◀─┘

Values only. What is known of a receiver is kept in the row of its webhook, so every courier sees the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from weft.clock import Moment, seconds

FAILURES_TO_OPEN = 5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 600.0


State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
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

    def state(self, now: Moment) -> State:
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half-open"

    def room(self, now: Moment, most: int) -> int:
        """How many deliveries may be tried at once now."""
        if self.is_closed:
            return most
        probing = self.probe_until is not None and now < self.probe_until
        return 0 if probing or self.state(now) == "open" else 1

    def probed(self, until: Moment) -> Circuit:
        return self if self.is_closed else replace(self, probe_until=until)

    def given_back(self) -> Circuit:
        """The probe brought no news; another may be made."""
        return replace(self, probe_until=None)

    def failed(self, now: Moment) -> Circuit:
        failures = self.failures + 1
        if failures < FAILURES_TO_OPEN:
            return Circuit(failures=failures)
        pause = min(self.pause_seconds * 2 or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        return Circuit(failures=failures, pause_seconds=pause, open_until=now + seconds(pause))


CLOSED = Circuit()
