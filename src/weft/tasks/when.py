"""What people write for the time of a schedule, on one line."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from weft.clock import SECOND, Moment
from weft.errors import Invalid
from weft.tasks import cron, zones

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""The units of an interval, in milliseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"\d{4}-\d", re.ASCII)
_SPAN = re.compile("".join(rf"(?:(\d{{1,9}}(?:\.\d{{1,3}})?){unit})?" for unit in UNITS), re.ASCII)


def read(text: object, zone: str = "UTC") -> dict[str, Any]:
    """The one field of a schedule that ``text`` gives: cron, every_seconds or once_at."""
    if isinstance(text, date):  # what YAML and TOML make of an unquoted date
        text = text.isoformat()
    if not isinstance(text, str):
        raise Invalid("the time of the schedule", text, "it must be a text such as '@every 5m'")
    words = text.strip()
    if words.startswith("@"):
        return _named(words)
    if _DATE.match(words):
        return {"once_at": moment_of(words, zone)}
    cron.parse(words)
    return {"cron": words}


def moment_of(text: str, zone: str = "UTC") -> Moment:
    """The moment of an ISO 8601 date; without an offset it is read on a clock in ``zone``."""
    try:
        shown = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(
            "the date", text, "it must be in ISO 8601, such as 2026-12-01 08:00 or 2026-12-01T08:00Z"
        ) from error
    if not zones.FIRST_YEAR <= shown.year <= zones.LAST_YEAR:
        raise Invalid("the date", text, f"it must be from {zones.FIRST_YEAR} to {zones.LAST_YEAR}")
    if shown.tzinfo is not None:
        return (shown - _EPOCH) // timedelta(microseconds=1)
    zones.zone_named(zone)
    wall = (shown.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    return zones.second_of(zone, wall) * SECOND + shown.microsecond


def _named(text: str) -> dict[str, Any]:
    name, _, span = text.partition(" ")
    if name.lower() == "@every":
        return {"every_seconds": span_seconds(span.strip())}
    expression = MACROS.get(text.lower())
    if expression is None:
        raise Invalid("the time of the schedule", text, f"it must be one of @every 5m, {', '.join(MACROS)}")
    return {"cron": expression}


def span_seconds(text: str) -> float:
    """The seconds of a span such as 90s, 5m or 1h30m."""
    found = _SPAN.fullmatch(text)
    if not text or found is None:
        raise Invalid(
            "the interval", text, "it must be a span such as 90s, 5m, 1h30m, 2d or 250ms, the largest unit first"
        )
    return sum(float(number or 0) * unit for number, unit in zip(found.groups(), UNITS.values(), strict=True)) / 1000
