"""When schedules ought to tick, found by trying every minute: slow, plain, and nothing of weft's own arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

SECOND = 1_000_000
MINUTE = 60 * SECOND


def interval(first: int, period_seconds: int, after: int, until: int) -> Iterator[int]:
    """Moments later than ``after`` and not later than ``until``, in microseconds."""
    at = first
    while at <= until:
        if at > after:
            yield at
        at += period_seconds * SECOND


def cron(fields: str, zone: str, after: int, until: int) -> Iterator[int]:
    """The same for minute and hour of a cron line whose other three fields are stars."""
    minutes, hours = (allowed(field, most) for field, most in zip(fields.split()[:2], (60, 24), strict=True))
    for at in range(after // MINUTE * MINUTE + MINUTE, until + 1, MINUTE):
        wall = datetime.fromtimestamp(at // SECOND, ZoneInfo(zone))
        if wall.minute in minutes and wall.hour in hours:
            yield at


def allowed(field: str, most: int) -> set[int]:
    """The numbers below ``most`` that a field of a cron line names: ``*``, ``*/7``, ``3``, ``0,30``, ``9-17``."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = ("0", "-", str(most - 1)) if span == "*" else span.partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    return found
