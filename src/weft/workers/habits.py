"""How a worker behaves, whatever it works on."""

from __future__ import annotations

from dataclasses import dataclass

from weft.crawl_ports import Limiter
from weft.crawls.model import NO_POLICY, Policy
from weft.workers.echo import Echo


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a worker behaves."""

    poll_seconds: float = 1.0
    """How long it waits for a ring before it looks for itself, and after what went wrong."""
    listen_seconds: float = 0.0
    """How long it waits for a ring where somebody else looks meanwhile; 0: as long as ``poll_seconds``."""
    drain_seconds: float = 30.0
    """How long runs may go on after it was asked to stop."""
    ship_seconds: float = 0.5
    max_runs: int = 0
    """After so many runs it drains and ends, to be replaced; 0 means never."""
    echo: Echo | None = None
    policy: Policy = NO_POLICY
    """What its machine allows those who crawl."""
    limiter: Limiter | None = None
    """Where spiders that ask for permits have their places in line."""
