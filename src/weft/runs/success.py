"""Success conditions of a spider's run: what it counted, what must hold, and what is marked although it succeeded.

Values only, no I/O. A condition is set on a task, on a spider or on a project. The narrower one wins, condition by
condition: a task that says something about ``errors`` replaces what its project says about them, and leaves its
``items`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

LARGEST_COUNT = 10**15
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Reason = Annotated[str, Meta(min_length=1, max_length=200)]

FINISHED = "finished"
"""The reason with which Scrapy closes a spider that had nothing left to do."""
MOST_FIELDS = 50
LONGEST_FIELD = 200
USUAL_OF, FEWEST = 20, 3
"""Usual is the median of so many runs of the task that succeeded; of fewer than the second nothing is usual."""
LARGEST = 2**53
"""No count is larger; a spider may put anything into its statistics."""


class MostAllowed(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many there may be."""

    max: Count | None = None


class CountRange(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many there must and may be."""

    min: Count | None = None
    max: Count | None = None

    def __post_init__(self) -> None:
        _check_range(self)


class UsualRange(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many there must and may be, also as a share of what is usual."""

    min: Count | None = None
    max: Count | None = None
    min_percent_of_usual: Percent | None = None
    """Of the median of the last 20 runs of the task that succeeded; nothing is asked before there are 3."""

    def __post_init__(self) -> None:
        _check_range(self)


class FieldCondition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many of the items may lack a field."""

    missing_max_percent: Percent | None = None
    """An item lacks it where it is left out, null, or an empty text, list or object."""


class SuccessConditions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What must hold at the end of a run, or it has failed. An empty condition turns off one that is set above."""

    finish_reason: Reason | tuple[Reason, ...] | None = None
    """The reasons with which the spider may close; an empty list allows all."""
    errors: MostAllowed | None = None
    """Logged errors, those of callbacks among them."""
    warnings: MostAllowed | None = None
    items: UsualRange | None = None
    pages: UsualRange | None = None
    """Responses that were received."""
    requests: CountRange | None = None
    fields: dict[str, FieldCondition] = {}

    def __post_init__(self) -> None:
        if len(self.fields) > MOST_FIELDS:
            raise ValueError(f"fields names {len(self.fields)} fields; it may name {MOST_FIELDS} at most")
        for name in self.fields:
            if not 0 < len(name) <= LONGEST_FIELD:
                raise ValueError(f"fields names {name[:50]!r}; a name has from 1 to {LONGEST_FIELD} characters")


class SpiderSettings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What holds for one spider of a project, whatever task it is run by."""

    success_if: SuccessConditions | None = None


def _check_range(given: CountRange | UsualRange) -> None:
    """Whoever decodes it knows where it stands: msgspec makes a ``ValidationError`` of this, with the place."""
    if given.min is not None and given.max is not None and given.min > given.max:
        raise ValueError(f"min may not be above max (got min = {given.min}, max = {given.max})")


class MissingNumber(StrEnum):
    """The number that a condition could not be decided without."""

    COUNT = "count"
    """What it asks for never arrived: the attempt ended without telling it."""
    ITEMS = "items"
    """There was no item, so no share of the items lacks a field."""
    USUAL = "usual"
    """Too few runs of the task have succeeded to say what is usual."""


class RunCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition of a run, and once an attempt has ended what became of it."""

    name: str
    """``finish_reason``, ``errors``, ``warnings``, ``items``, ``pages``, ``requests`` or ``fields``."""
    bound: str
    """``one_of``, ``max``, ``min``, ``min_percent_of_usual`` or ``missing_max_percent``."""
    limit: float | tuple[str, ...]
    of: str
    """Who has set it: ``task``, ``spider`` or ``project``."""
    field: str | None = None
    """Of the items, where it is about one."""
    found: float | str | None = None
    """What was counted; null before the end, and where nothing was."""
    usual: float | None = None
    held: bool | None = None
    """Null before the end, and where a number to decide by is missing."""
    undecided: MissingNumber | None = None
    """The number that is missing at the end; null before the end, and where it was decided."""


class RunMark(StrEnum):
    """What stands out about a run that succeeded."""

    ERRORS = "errors"
    """Errors were logged."""
    FINISH_REASON = "finish_reason"
    """Its spider was closed for another reason than that it had finished."""
    NO_REQUESTS = "no_requests"
    NO_ITEMS = "no_items"
    UNDECIDED = "undecided"
    """A number is missing without which a condition could not be decided; the reason says which."""


MARKED = "marked"
"""What stands in the column of troubles of a run that succeeded with marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """What an attempt has counted, with those that it went on from; None: nobody knows."""

    items: int | None = None
    pages: int | None = None
    requests: int | None = None
    errors: int | None = None
    warnings: int | None = None
    finish_reason: str | None = None
    missing: Mapping[str, int] = field(default_factory=dict)
    """How many items lack each field that a condition names."""


COUNTS = ("items", "pages", "requests", "errors", "warnings")


def conditions_of(levels: Iterable[tuple[str, SuccessConditions | None]]) -> tuple[RunCondition, ...]:
    """The conditions of a run; of ``levels``, who has set what, the narrower come later."""
    merged: dict[tuple[str, str | None], list[RunCondition]] = {}
    for of, given in levels:
        if given is not None:
            merged |= _given(of, given)
    return tuple(each for conditions in merged.values() for each in conditions)


def _given(of: str, given: SuccessConditions) -> dict[tuple[str, str | None], list[RunCondition]]:
    found: dict[tuple[str, str | None], list[RunCondition]] = {}
    if given.finish_reason is not None:
        allowed = (given.finish_reason,) if isinstance(given.finish_reason, str) else given.finish_reason
        one_of = RunCondition(name="finish_reason", bound="one_of", limit=allowed, of=of)
        found["finish_reason", None] = [one_of] if allowed else []
    for name in ("errors", "warnings", "items", "pages", "requests"):
        if (bounds := getattr(given, name)) is not None:
            found[name, None] = _bounds(bounds, name=name, of=of)
    for name, bounds in given.fields.items():
        found["fields", name] = _bounds(bounds, name="fields", of=of, field=name)
    return found


def _bounds(bounds: msgspec.Struct, **fields: Any) -> list[RunCondition]:
    limits = ((name, getattr(bounds, name)) for name in bounds.__struct_fields__)
    return [RunCondition(bound=name, limit=limit, **fields) for name, limit in limits if limit is not None]


def watched_fields(conditions: Iterable[RunCondition]) -> tuple[str, ...]:
    """The fields of items that conditions ask for."""
    return tuple(each.field for each in conditions if each.field is not None)


def decided(conditions: Iterable[RunCondition], figures: RunStats, usual: Mapping[str, float]) -> list[RunCondition]:
    """What became of each condition; ``usual`` has what is usual of ``items`` and ``pages``, where that is known."""
    return [_decided(each, figures, usual.get(each.name)) for each in conditions]


def _decided(condition: RunCondition, figures: RunStats, usual: float | None) -> RunCondition:
    limit: Any = condition.limit
    found: Any = (
        _missing_percent(condition, figures) if condition.name == "fields" else getattr(figures, condition.name)
    )
    if condition.bound != "min_percent_of_usual":
        usual = None
    if lacks := _missing_number(condition, figures, usual):
        return replace(condition, found=found, usual=usual, held=None, undecided=lacks)
    match condition.bound:
        case "one_of":
            held = found in limit
        case "min":
            held = found >= limit
        case "min_percent_of_usual":
            held = found * 100 >= limit * (usual or 0)
        case _:
            held = found <= limit
    return replace(condition, found=found, usual=usual, held=held, undecided=None)


def _missing_number(condition: RunCondition, figures: RunStats, usual: float | None) -> MissingNumber | None:
    if condition.name == "fields" and figures.items == 0:
        return MissingNumber.ITEMS
    if getattr(figures, "items" if condition.name == "fields" else condition.name) is None:
        return MissingNumber.COUNT
    return MissingNumber.USUAL if condition.bound == "min_percent_of_usual" and usual is None else None


def _missing_percent(condition: RunCondition, figures: RunStats) -> float | None:
    if not figures.items or condition.field is None:
        return None
    return 100 * figures.missing.get(condition.field, 0) / figures.items


def unmet(conditions: Iterable[RunCondition]) -> str:
    """Why a run has failed, in one sentence; empty where every condition held."""
    return "; ".join(sentence(each) for each in conditions if each.held is False)


WHAT = {
    "errors": ("error was logged", "errors were logged"),
    "warnings": ("warning was logged", "warnings were logged"),
    "items": ("item was stored", "items were stored"),
    "pages": ("page was fetched", "pages were fetched"),
    "requests": ("request was made", "requests were made"),
}


def sentence(condition: RunCondition) -> str:
    """What was found, and what is asked for."""
    found, limit = condition.found, condition.limit
    if condition.name == "finish_reason" and not isinstance(limit, float | int):
        return f"the spider was closed with {found}, allowed is {' or '.join(limit)}"
    if condition.name == "fields":
        return f"{condition.field} is missing in {number(found)} % of the items, at most {number(limit)} % are allowed"
    said = f"{number(found)} {WHAT[condition.name][found != 1]}"
    if condition.bound == "max":
        return f"{said}, at most {number(limit)} {_are(limit)} allowed"
    if condition.bound == "min":
        return f"{said}, at least {number(limit)} {_are(limit)} required"
    return f"{said}, at least {number(limit)} % of the usual {number(condition.usual)} are required"


def _are(limit: object) -> str:
    return "is" if limit == 1 else "are"


def number(value: object) -> str:
    """A count with its thousands apart, a share with one digit after the point."""
    if not isinstance(value, int | float):
        return "?" if value is None else str(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def condition_line(condition: RunCondition) -> str:
    """One condition of a run as a line."""
    name, limit = condition.name, cast(Any, condition.limit)
    if condition.bound == "one_of":
        return f"finish_reason = {', '.join(limit)}"
    if condition.bound == "missing_max_percent":
        return f"missing {condition.field} <= {limit:g} %"
    if condition.bound == "min_percent_of_usual":
        return f"{name} >= {limit:g} % of usual"
    return f"{name} {'<=' if condition.bound == 'max' else '>='} {int(limit)}"


COUNTED_THINGS = {
    "finish_reason": "the reason with which the spider closed",
    "errors": "the number of logged errors",
    "warnings": "the number of logged warnings",
    "items": "the number of items",
    "pages": "the number of pages",
    "requests": "the number of requests",
    "fields": "the number of items",
}


def missing_number_text(condition: RunCondition) -> str:
    """Which number a condition was not decided without, and why it is missing."""
    if condition.undecided is MissingNumber.ITEMS:
        return "there are no items, so no share of them is known"
    if condition.undecided is MissingNumber.USUAL:
        return (
            f"the usual number of {condition.name} is missing, "
            f"as fewer than {FEWEST} earlier runs of the task succeeded and counted them"
        )
    return f"{COUNTED_THINGS[condition.name]} is missing, as it never arrived"


def undecided_text(conditions: Iterable[RunCondition]) -> str:
    """Which conditions could not be decided, and what was missing; empty where all were."""
    lacking = [each for each in conditions if each.undecided is not None]
    return "; ".join(f"{condition_line(each)} was not decided: {missing_number_text(each)}" for each in lacking)


def marks_of(figures: RunStats) -> list[RunMark]:
    """What does not look like success, of a run whose conditions held."""
    marks = [RunMark.ERRORS] if figures.errors else []
    marks += [RunMark.FINISH_REASON] if figures.finish_reason not in (None, FINISHED) else []
    if figures.requests == 0:
        return [*marks, RunMark.NO_REQUESTS]
    return [*marks, RunMark.NO_ITEMS] if figures.items == 0 else marks


def counted(stats: Mapping[str, Any]) -> dict[str, int | None]:
    """What Scrapy's statistics say; None where they do not."""
    known = 0 if stats else None
    pages = _count(stats, "response_received_count", known)
    raised = stats.get("spider_exceptions/count")
    if raised is None:
        raised = sum(_whole(value) or 0 for name, value in stats.items() if name.startswith("spider_exceptions/"))
    errors = _count(stats, "log_count/ERROR", known)
    if errors is not None:
        errors = max(errors + (_count(stats, "log_count/CRITICAL", 0) or 0), _whole(raised) or 0)
    return {
        "items": _count(stats, "item_scraped_count", known),
        "pages": pages,
        # Scrapy's own middleware counts them, and a project may have turned it off.
        "requests": _count(stats, "downloader/request_count", None if pages else known),
        "errors": errors,
        "warnings": _count(stats, "log_count/WARNING", known),
    }


def _count(stats: Mapping[str, Any], name: str, missing: int | None) -> int | None:
    return _whole(stats[name]) if name in stats else missing


def _whole(value: object) -> int | None:
    """A count, if it is one."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return int(value) if is_one else None  # type: ignore[call-overload]


def run_stats_of(
    told: Mapping[str, Any] | None, parts: Sequence[tuple[int, Mapping[str, Any], Mapping[str, int]]]
) -> RunStats:
    """What a run has counted: ``told`` by its worker at the end, and of each attempt that counts, the last one last,
    the items that are stored, its statistics, and how many items lack a field."""
    told = told or {}
    counts: dict[str, int | None] = dict.fromkeys(COUNTS)
    for place, (items, stats, _) in enumerate(parts, 1):
        each = counted(stats) | {"items": items}
        for name, value in each.items():
            if value is None and place == len(parts):
                value = _whole(told.get(name))
            if value is not None:
                counts[name] = (counts[name] or 0) + value
    if not parts:
        counts = {name: _whole(told.get(name)) for name in COUNTS}
    missing: dict[str, int] = {}
    for _, _, lacking in parts:
        for name, count in lacking.items():
            missing[name] = missing.get(name, 0) + count
    reason = told.get("finish_reason") or (parts[-1][1].get("finish_reason") if parts else None)
    return RunStats(**counts, finish_reason=None if reason is None else str(reason)[:200], missing=missing)


def median(numbers: Sequence[float]) -> float | None:
    """What is usual, after these; None where they are too few."""
    if len(numbers) < FEWEST:
        return None
    middle = sorted(numbers)[(len(numbers) - 1) // 2 : len(numbers) // 2 + 1]
    return sum(middle) / len(middle)


def is_missing(item: Mapping[str, Any], name: str) -> bool:
    """Whether an item lacks a field."""
    return item.get(name) in (None, "", [], {})
