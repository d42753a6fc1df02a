"""docs/reference/crawls.md tells of everything that a crawl can be told, and of every reason."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tests.cases import for_each
from weft import crawl_spec
from weft.crawler.reasons import REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "crawls.md").read_text()
PARTS: dict[str, type[msgspec.Struct]] = {
    "The crawl": crawl_spec.CrawlSpec,
    "scope": crawl_spec.ScopeSpec,
    "budget": crawl_spec.BudgetSpec,
    "politeness": crawl_spec.PolitenessSpec,
    "fetching": crawl_spec.FetchingSpec,
    "traps": crawl_spec.TrapSpec,
    "keeping": crawl_spec.OutputSpec,
    "revisit": crawl_spec.RevisitSpec,
    "A rule of keeping.fields": crawl_spec.FieldSpec,
}


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> dict[str, list[str]]:
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in found}


def shown(default: object) -> str:
    if isinstance(default, msgspec.Struct):
        return "below"
    if isinstance(default, bool):
        return str(default).lower()
    return "empty" if default in ("", (), {}) else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


@for_each("heading", PARTS)
def test_the_reference_has_every_field_with_its_default(heading: str) -> None:
    fields = {each.name: each for each in msgspec.structs.fields(PARTS[heading])}
    told = rows(section(heading))
    assert told.keys() == fields.keys()
    for name, (default, meaning) in told.items():
        field = fields[name]
        known = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        exact = default.strip("`") == shown(known).strip("`") or float(default.strip("`")) == known
        assert exact, f"the default of {heading}.{name} is {known}"
        assert meaning.endswith("."), name


def test_the_reference_has_every_reason_and_what_it_means() -> None:
    told = rows(section("Why an address is left out"))
    assert {name: cells[0] for name, cells in told.items()} == {
        name: f"{words[0].upper()}{words[1:]}." for name, words in REASONS.items()
    }


def test_no_reason_is_told_with_a_gap_that_nobody_fills() -> None:
    gaps = {gap for words in REASONS.values() for gap in re.findall(r"{(\w+)}", words)}
    assert gaps == {"pattern"}
