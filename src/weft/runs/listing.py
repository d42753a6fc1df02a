"""What to look for in a list of runs, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.errors import Invalid

COLUMNS = frozenset({"project", "task", "kind", "state", "trigger", "correlation_id", "outcome", "worker"})
IN_SPEC = {"spider": '"spider":', "version": '"code":{"version":'}
"""What stands in the spec of a run before the value that is asked for."""
FILTERS = COLUMNS | IN_SPEC.keys() | {"tag", "since", "until"}
"""``since`` and ``until`` are moments of being queued."""

COMMON = frozenset({"project", "task", "state"})
FEW = 10
"""Projects whose runs are found as soon as those of one."""

Row = Sequence[Any]
"""The fields of a ``Run`` in their order, as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which runs to list, newest first: those that are as ``where`` says, of all projects or of some."""

    where: Mapping[str, Any]
    projects: frozenset[str] | None = None
    before: int | None = None
    """The place where the page before has ended; runs after it, if the oldest come first."""
    limit: int = 50
    oldest_first: bool = False

    def __post_init__(self) -> None:
        for name in self.where.keys() - FILTERS:
            raise Invalid("filter", name, f"it must be one of {', '.join(sorted(FILTERS))}")

    @property
    def is_short(self) -> bool:
        """Whether the page is likely to be found at once. What else is asked for is looked for among thousands of runs,
        of every project by itself."""
        return self.where.keys() <= COMMON and len(self.projects or ()) <= FEW

    def order(self, run_id: int) -> int:
        """What rises along the list."""
        return run_id if self.oldest_first else -run_id


class Found(NamedTuple):
    """A page of a list."""

    ids: Sequence[int]
    known: Mapping[int, bytes]
    """What the caller knew already, of some of them."""
    rows: Mapping[int, Row]
    """The others."""
    next: int | None
    """The place where the next page goes on, also after a short or an empty page; None at the end of the list."""
