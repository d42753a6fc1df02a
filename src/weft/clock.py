"""What time it is, as a dependency.

A moment is a whole number of microseconds since 1970 in UTC: it sorts, subtracts and is stored the same everywhere.
Moments order what people see; leases never depend on them (``workers/reaper.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Moment = int
Clock = Callable[[], Moment]

SECOND: Moment = 1_000_000
MILLISECOND: Moment = 1_000
"""How exactly people are told moments."""


def now() -> Moment:
    return time.time_ns() // 1000


def seconds(count: float) -> Moment:
    """A span of ``count`` seconds in the unit of moments."""
    return round(count * SECOND)


def moment(when: datetime) -> Moment:
    return round(when.timestamp() * SECOND)


def as_datetime(at: Moment) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)


def iso(at: Moment | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if at is None:
        return None
    whole, rest = divmod(at, SECOND)
    return f"{_second(whole)}.{rest // MILLISECOND:03d}Z"


@lru_cache(10_000)
def _second(whole: int) -> str:
    """A list names the same few seconds again and again."""
    return datetime.fromtimestamp(whole, UTC).isoformat()[:19]
