"""What somebody wants to see of scraped data, as the address of a page says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import msgspec

from weft.web.visit import Visit

VIEWS = ("table", "json")
FORMATS = ("jsonl", "json", "csv", "xml", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
    def of(cls, visit: Visit) -> Wanted:
        names = ("search", "field", "exact", "view", "attempt", "only", "after")
        told = {name: visit.query.get(name, "") for name in names}
        told["view"] = told["view"] if told["view"] in VIEWS else ""
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
def formats() -> Sequence[str]:
    """The formats that can be had here."""
    return [each for each in FORMATS if each != "parquet" or find_spec("pyarrow") is not None]
