"""What this process has found out and not yet told: items, addresses, skips. Bounded by whoever fills it."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.clock import Moment
from weft.crawl_ports import Found
from weft.crawls.known import Met
from weft.crawls.model import Skip
from weft.fetching.urls import LONGEST, host_of

MOST_BYTES = 16 << 20
MOST_FOUND = 50_000
MOST_SETTLED = 5_000
"""Where so much waits to be told, nothing more is fetched."""
LARGEST_ITEM = 8 << 20
MOST_KINDS = 2_000
"""Skips that differ in reason, host or pattern, in one question."""

LONGEST_PATTERN = 500

_encode = msgspec.json.Encoder().encode


class Ledger:
    """Filled by those who fetch, emptied by the one who talks."""

    def __init__(self) -> None:
        self.met = Met()
        self.items: list[bytes] = []
        self.item_bytes = 0
        self.next_item = 1
        """The number of the next item that is written."""
        self.found: list[Found] = []
        self.found_bytes = 0
        self.feed: list[str] = []
        self.settled = 0
        """Outcomes that wait to be told."""
        self._skips: dict[tuple[str, str, str], list[Any]] = {}

    @property
    def full(self) -> bool:
        """Whether nothing more may be fetched before this is told."""
        return (
            self.item_bytes > MOST_BYTES
            or len(self.found) > MOST_FOUND
            or self.found_bytes > MOST_BYTES
            or self.settled > MOST_SETTLED
            or len(self.feed) > MOST_FOUND
        )

    def write(self, item: dict[str, Any], at: Moment) -> bool:
        """Keep an item; False where it is too large for one."""
        line = b'{"at":%d,"item":%b}\n' % (at, _encode(item))
        if len(line) > LARGEST_ITEM:
            return False
        self.items.append(line)
        self.item_bytes += len(line)
        return True

    def skip(self, reason: str, url: str, pattern: str = "", *, is_trap: bool = False, count: int = 1) -> None:
        """Count an address that is left out."""
        host = host_of(url)
        kind = (reason, host, pattern)
        known = self._skips.get(kind)
        if known is not None:
            known[0] += count
            return
        if len(self._skips) >= MOST_KINDS:
            kind = (reason, "", "")
            if kind in self._skips:
                self._skips[kind][0] += count
                return
        self._skips[kind] = [count, url, is_trap]

    def find(self, key: int, url: str, depth: int, found_on: int, data: str = "", priority: int = 0) -> None:
        """An address that belongs to the crawl and may be new to it."""
        self.found_bytes += len(url)
        self.found.append(Found(key, url, host_of(url), depth, priority, found_on, 0, data))

    def take_skips(self) -> list[Skip]:
        taken = [
            Skip(reason, host, pattern[:LONGEST_PATTERN], example[:LONGEST], count, is_trap)
            for (reason, host, pattern), (count, example, is_trap) in self._skips.items()
        ]
        self._skips.clear()
        return taken
