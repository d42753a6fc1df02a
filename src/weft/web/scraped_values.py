"""Scraped values in pages: always text, shortened, linked only where they are http(s) URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import msgspec

from weft.operations.items import ItemFieldDocument
from weft.web.visit import Visit

ADDRESS = re.compile(r"https?://[^\s\x00-\x20\x7f\"'<>\\^`{|}]{1,2000}", re.IGNORECASE)
NARROW = 30
SHORT = 100
"""Characters of a value that stand in a table."""
LONG = 2_000
"""Characters that it can be folded out to; the page of the item has the rest."""
EXPAND_BYTES = 24_000
"""Characters that all values of one page are folded out to."""
LARGEST_PRETTY = 50_000
"""Bytes of JSON that are written with a line for each value: deep in an item each line begins with many blanks."""
AROUND = 40
"""Characters that stay before the place where two long texts differ."""
DIRECTION_MARKS = {
    sign: f"\\u{sign:04x}" for sign in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
}
"""Signs that turn the direction of what follows; in JSON they would turn its quotes and commas as well."""
MOST_COLUMNS = 8
"""Columns of a table whose reader has chosen none."""
MOST_CHOSEN = 40
MOST_OFFERED = 200


@dataclass(frozen=True, slots=True)
class ValueCell:
    """A value in a table."""

    kind: str
    """text, empty, number, word (true, false or null), nested, or missing."""
    text: str = ""
    whole: str = ""
    """What it folds out to; empty where nothing is folded."""
    address: str = ""
    """Where it leads."""
    is_cut: bool = False
    """Whether there is more than can be folded out."""

    @property
    def room(self) -> str:
        """How much of a table it takes."""
        return "num" if self.kind == "number" else "wide" if len(self.text) > NARROW else ""


@dataclass(slots=True)
class ExpandBudget:
    """How much may still be folded out on a page."""

    left: int = EXPAND_BYTES

    def take(self, text: str) -> str:
        taken = text[: min(LONG, self.left)]
        self.left -= len(taken)
        return taken


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """A field of items, and how often it is filled."""

    name: str
    fill_rate: float | None
    """From 0 to 1; None where none of those looked at has it."""
    types: str = ""

    @property
    def percent(self) -> str:
        """Never more than it is: what is filled but for one thing is not called filled."""
        return "" if self.fill_rate is None else f"{int(self.fill_rate * 1000) / 10:g}"


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that was otherwise before."""

    field: str
    kind: str
    """added, removed or changed."""
    before: ValueCell
    after: ValueCell


_MISSING = object()


def value_cell(value: Any, room: ExpandBudget) -> ValueCell:
    """A value, with what it folds out to where it is long and there is room for it."""
    kind, text = kind_of(value), text_of(value)
    address = text if kind == "text" and ADDRESS.fullmatch(text) else ""
    if len(text) <= SHORT:
        return ValueCell(kind, text, address=address)
    whole = room.take(text)
    return ValueCell(kind, text[:SHORT] + "…", whole if len(whole) > SHORT else "", address, len(whole) < len(text))


def value_cells(data: Mapping[str, Any], columns: Iterable[FieldColumn], room: ExpandBudget) -> list[ValueCell]:
    return [value_cell(data[each.name], room) if each.name in data else ValueCell("missing") for each in columns]


def kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "text" if value else "empty"
    if value is None or isinstance(value, bool):
        return "word"
    return "number" if isinstance(value, int | float) else "nested"


def text_of(value: Any) -> str:
    """A text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def pretty(value: Any, most: int) -> tuple[str, bool]:
    """JSON that is nice to read, at most so many characters, and whether that is not all of it."""
    written = msgspec.json.encode(value)
    if len(written) <= LARGEST_PRETTY:
        written = msgspec.json.format(written, indent=2)
    text = written.decode().translate(DIRECTION_MARKS)
    return text[:most], len(text) > most


def columns_of(fields: Sequence[ItemFieldDocument], chosen: Sequence[str]) -> list[FieldColumn]:
    """The columns that were chosen; else the first of those that most items have."""
    known = {each.name: _column(each) for each in fields}
    if chosen:
        return [known.get(name) or FieldColumn(name, None) for name in chosen[:MOST_CHOSEN]]
    most = max((each.present for each in fields), default=0)
    usual = [each.name for each in fields if each.present * 2 >= most]
    return [known[name] for name in usual[:MOST_COLUMNS]]


def offered(fields: Sequence[ItemFieldDocument], chosen: Sequence[str]) -> list[FieldColumn]:
    """What can be chosen as columns: what was chosen before, and the fields that most items have."""
    usual = sorted(fields, key=lambda each: -each.present)[:MOST_OFFERED]
    names = {each.name for each in usual}
    others = [FieldColumn(name, None) for name in chosen[:MOST_CHOSEN] if name not in names]
    return [*(_column(each) for each in usual), *others]


def differences(before: Mapping[str, Any], after: Mapping[str, Any], room: ExpandBudget) -> list[FieldDifference]:
    """What is otherwise than before, field by field."""
    found = []
    for field in dict.fromkeys((*after, *before)):
        old, new = before.get(field, _MISSING), after.get(field, _MISSING)
        if old != new or kind_of(old) != kind_of(new):
            kind = "added" if old is _MISSING else "removed" if new is _MISSING else "changed"
            found.append(FieldDifference(field, kind, *_changed_part(old, new, room)))
    return found


def _changed_part(old: Any, new: Any, room: ExpandBudget) -> tuple[ValueCell, ValueCell]:
    """Two values; of long ones from shortly before the place where they differ."""
    if old is _MISSING or new is _MISSING:
        return (
            ValueCell("missing") if old is _MISSING else value_cell(old, room),
            ValueCell("missing") if new is _MISSING else value_cell(new, room),
        )
    begin = max(_is_equal(text_of(old), text_of(new)) - AROUND, 0)
    if begin < SHORT - AROUND:
        return value_cell(old, room), value_cell(new, room)
    one, other = (value_cell("…" + text_of(each)[begin:], room) for each in (old, new))
    return one, other


def _is_equal(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _column(field: ItemFieldDocument) -> FieldColumn:
    return FieldColumn(field.name, field.fill_rate, ", ".join(sorted(field.types)))


ITEM_VIEWS = ("table", "json")
FORMATS = ("jsonl", "json", "csv", "xml", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsQuery:
    """Which items, and how."""

    search: str = ""
    field: str = ""
    """Where the search is to be found; empty: anywhere."""
    exact: str = ""
    """Not empty: the field must be just that."""
    columns: tuple[str, ...] = ()
    view: str = ""
    attempt: str = ""
    only: str = ""
    """new, changed or gone."""
    after: str = ""

    @classmethod
    def of(cls, visit: Visit) -> ItemsQuery:
        names = ("search", "field", "exact", "view", "attempt", "only", "after")
        told = {name: visit.query.get(name, "") for name in names}
        told["view"] = told["view"] if told["view"] in ITEM_VIEWS else ""
        parts = visit.request.query_params.getlist("columns")
        columns = tuple(dict.fromkeys(name for part in parts for name in part.split(",") if name))
        return cls(columns=columns, **told)

    @property
    def conditions(self) -> dict[str, str]:
        """The same as the API understands it."""
        if not self.search:
            return {}
        if not self.field:
            return {"search": self.search}
        told = msgspec.json.encode({self.field: self.search}).decode()
        return {"where" if self.exact else "contains": told}

    def address(self, page: str, **changes: Any) -> str:
        """Where the same is shown, but for ``changes``."""
        told = asdict(self) | changes
        told["columns"] = ",".join(told["columns"])
        query = urlencode({name: value for name, value in told.items() if value})
        return f"{page}?{query}" if query else page

    def export(self, api: str, format: str, **more: str) -> str:
        """Where the same is had as a file: the fields that were chosen, or all."""
        told = {"format": format, **self.conditions, **more}
        if self.columns:
            told["fields"] = ",".join(self.columns)
        return f"{api}?{urlencode(told)}"


@cache
def export_formats() -> Sequence[str]:
    """The formats that can be had here."""
    return [each for each in FORMATS if each != "parquet" or find_spec("pyarrow") is not None]
