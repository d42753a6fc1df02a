"""What to look for in a list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import Invalid

FILTERS = frozenset({"project", "task", "task_id", "kind", "state", "trigger", "correlation_id", "outcome"})

Row = Sequence[Any]
"""The fields of a ``Run`` in their order, as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which runs to list, newest first: those whose fields equal ``where``, of all projects or of some."""

    where: Mapping[str, Any]
    projects: frozenset[str] | None = None
    before: int | None = None
    """The id where the page before has ended; runs after it, if the oldest come first."""
    limit: int = 50
    oldest_first: bool = False

    def __post_init__(self) -> None:
        for name in self.where.keys() - FILTERS:
            raise Invalid("filter", name, f"it must be one of {', '.join(sorted(FILTERS))}")
