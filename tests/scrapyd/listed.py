"""The differences that docs/reference/scrapyd.md lists: in each row of its table, calls with the fields in question."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scrapyd.md"
TITLE = "## What differs"
ENTRY = re.compile(r"`([a-zA-Z0-9-]+)` \(([a-z_, -]+)\)")


def listed_differences() -> dict[str, list[str]]:
    """The fields that may differ, by the name of the call. A call stands in one row only."""
    found: dict[str, list[str]] = {}
    for row in table_rows():
        for name, fields in ENTRY.findall(row):
            assert name not in found, f"{name} stands in two rows of {PAGE.name}"
            found[name] = sorted(fields.split(", "))
    return found


def rows_without_calls() -> list[str]:
    return [row for row in table_rows() if not ENTRY.search(row)]


def table_rows() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return rows[2:]
