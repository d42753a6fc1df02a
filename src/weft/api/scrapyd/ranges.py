"""``Range: bytes=…``: which bytes of a file are wanted."""

from __future__ import annotations

import re
from typing import NamedTuple

_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII)


class Range(NamedTuple):
    """The bytes from ``first`` to ``last``, both counted; without ``first`` the ``last`` so many."""

    first: int | None
    last: int | None

    def within(self, size: int) -> tuple[int, int] | None:
        """The first byte and the one after the last in a file of ``size`` bytes; None where there is none."""
        if self.first is None:
            first, end = max(0, size - (self.last or 0)), size
        else:
            first, end = self.first, size if self.last is None else min(self.last + 1, size)
        return (first, end) if first < end else None


def range_of(header: str | None) -> Range | None:
    """The range that a header asks for; None where the whole is the answer: it is absent, malformed, or of several."""
    found = _ONE_RANGE.fullmatch(header) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(each) if each else None for each in found.groups())
    if first is not None and last is not None and first > last:
        return None
    return Range(first, last)
