"""What somebody means by a time in a filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.cases import for_each
from weft.web.pages.runs import moment_of
from weft.web.rendering import due


@for_each(
    ("text", "at"),
    [
        ("90m", "2026-06-01T10:30:00+00:00"),
        ("24 h", "2026-05-31T12:00:00+00:00"),
        ("7d", "2026-05-25T12:00:00+00:00"),
        ("2026-05-01", "2026-05-01T00:00:00+00:00"),
        ("2026-05-01 10:00", "2026-05-01T10:00:00+00:00"),
        ("2026-05-01T10:00+02:00", "2026-05-01T10:00:00+02:00"),
        ("999999d", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_time_is_a_span_or_a_moment(text: str, at: str | None) -> None:
    assert moment_of(text, datetime(2026, 6, 1, 12, tzinfo=UTC)) == at


def test_what_is_still_to_come_is_never_said_to_be_ago() -> None:
    now = datetime.now(UTC)
    assert due((now - timedelta(minutes=1)).isoformat()) == ""
    assert due((now + timedelta(hours=2, minutes=1)).isoformat()) == "in 2 h"
