"""What a transaction of the collector has counted so far: attempts and their items, and the things these are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.clock import Moment
from weft.items.lines import Read, fingerprint
from weft.items.model import Harvest


@dataclass(slots=True, kw_only=True)
class Tally:
    """One attempt: how many of its items are stored, and which come to them now."""

    run_id: int
    attempt: int
    project: str
    task_id: int | None
    dataset_id: int
    next_seq: int
    items: int
    new_things: int
    changed_things: int
    refused: int
    invalid: int
    stats: str
    told_at: Moment
    fresh: list[tuple[int, Read]] = field(default_factory=list)

    def take(self, harvest: Harvest, lines: Sequence[Read | None]) -> int:
        """Count what was not there before; return the number that is waited for next. After a gap nothing is taken."""
        known = self.next_seq - harvest.first
        if known < 0:
            return self.next_seq
        for seq, read in enumerate(lines[known:], self.next_seq):
            if read is None:
                self.refused += 1
            else:
                self.fresh.append((seq, read))
        self.next_seq = max(self.next_seq, harvest.first + len(lines))
        return self.next_seq

    def row(self, at: Moment) -> dict[str, Any]:
        names = ("run_id", "attempt", "next_seq", "items", "new_things", "changed_things", "refused", "invalid")
        return {name: getattr(self, name) for name in (*names, "stats", "told_at")} | {"at": at}


@dataclass(slots=True)
class Seen:
    """One thing, as this transaction leaves it."""

    id: int
    key: str
    digest: str
    looks: int
    seen: int
    first_seen_at: Moment = 0
    last_seen_at: Moment = 0
    last_run_id: int = 0
    is_new: bool = False
    looks_otherwise: bool = False

    def row(self) -> dict[str, Any]:
        """What has changed; that it was seen is little to write, and happens most."""
        seen = {
            "id": self.id,
            "seen": self.seen,
            "last_seen_at": self.last_seen_at,
            "last_run_id": self.last_run_id,
        }
        return seen | {"digest": self.digest, "looks": self.looks} if self.looks_otherwise else seen


def key_of(read: Read, fields: Sequence[str]) -> str:
    """What thing an item is of: told by its key fields; where it has none of them, by all of it."""
    data = read[3]
    if not fields or not any(name in data for name in fields):
        return read[2]
    return fingerprint([data.get(name) for name in fields])
