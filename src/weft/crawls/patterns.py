"""What addresses of a host have in common: the same path with other numbers, dates, ids or values of parameters."""

from __future__ import annotations

import math
import re

_VARYING = re.compile(
    r"(?P<date>(?<!\d)\d{4}-\d{1,2}(?:-\d{1,2})?(?!\d))"
    r"|(?P<id>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{20,}|[0-9A-Za-z]{16,})"
    r"|(?P<number>\d+)"
)
_HAS_TWO_DIGITS = re.compile(r"\d.*\d")
_HAS_NUMBER = re.compile(r"[0-9]")
_YEARS = re.compile(r"/(\d{4})[/-]\d{1,2}(?=[/-]|$)|[?&]year=(\d{4})(?=&|$)|[=/-](\d{4})-\d{2}(?:-\d{2})?(?=&|/|$)")
LONGEST = 500
FEW = 64
"""Addresses of one pattern that are counted one by one."""


def pattern_of(path: str) -> str:
    """The pattern of what follows the host; the same string where nothing in it varies."""
    place, mark, query = path.partition("?")
    if _HAS_NUMBER.search(place):
        place = _VARYING.sub(_gap, place)
    if not mark:
        return place[:LONGEST]
    names = sorted({each.partition("=")[0] for each in query.split("&")})
    return f"{place}?{'&'.join(f'{_VARYING.sub(_gap, name)}={{value}}' for name in names)}"[:LONGEST]


def may_have_years(pattern: str) -> bool:
    """Whether addresses of a pattern are worth a look for dates."""
    return "{date}" in pattern or "{number}/{number}" in pattern or "year=" in pattern


def years_of(path: str) -> list[int]:
    """The years of dates in it."""
    return [int(next(filter(None, found.groups()))) for found in _YEARS.finditer(path)]


def _gap(found: re.Match[str]) -> str:
    if found.lastgroup == "id" and not _HAS_TWO_DIGITS.search(found[0]):
        return found[0]  # a long word
    return f"{{{found.lastgroup}}}"


class Census:
    """How many different addresses have one pattern. It never counts the same one twice for long, and stays small.

    The first few are counted; from there on each address sets a bit of a bitmap, and the number of set bits tells how
    many there were.
    """

    __slots__ = ("_bits", "_few", "_limit_bits", "_mask", "_set", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        size = min(1 << 17, max(1 << 10, 1 << (4 * limit - 1).bit_length()))
        self._mask = size - 1
        self._limit_bits = size * (1 - math.exp(-limit / size))
        self._few: set[int] | None = set()
        self._bits: bytearray | None = None
        self._set = 0

    @property
    def is_full(self) -> bool:
        few = self._few
        return len(few) >= self.limit if few is not None else self._set >= self._limit_bits

    def add(self, key: int) -> None:
        if self._few is not None:
            self._few.add(key)
            if len(self._few) >= FEW:
                self._spread()
            return
        self._mark(key)

    def _spread(self) -> None:
        assert self._few is not None
        few, self._few, self._bits = self._few, None, bytearray(self._mask + 1 >> 3)
        for key in few:
            self._mark(key)

    def _mark(self, key: int) -> None:
        assert self._bits is not None
        place = key & self._mask
        byte, bit = place >> 3, 1 << (place & 7)
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
            self._set += 1
