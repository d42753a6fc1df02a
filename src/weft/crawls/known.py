"""Addresses that this process has met before, in a bounded space."""

from __future__ import annotations

from array import array

PLACES = 1 << 21
"""16 MB in all."""


class Met:
    """A table of hashes where each has one place, and the newer one takes it.

    What it says it knows it has met; what it has lost costs a question to the frontier and nothing else.
    """

    __slots__ = ("mask", "places")

    def __init__(self, places: int = PLACES) -> None:
        self.places = array("q", bytes(8 * places))
        self.mask = places - 1

    def meets(self, key: int) -> bool:
        """Whether this address is met for the first time, as far as is remembered."""
        place = key & self.mask
        if self.places[place] == key:
            return False
        self.places[place] = key
        return True
