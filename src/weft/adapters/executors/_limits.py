"""What one run may use, as its spec says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.adapters.executors._spec import Fields

MIB = 2**20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Each limit of a run; 0 where it says so is none."""

    memory_bytes: int = 1024 * MIB
    """Of all its processes together."""

    cpu_seconds: int = 0
    """Of all its processes together; 0 is none."""

    processes: int = 64
    files: int = 1024
    """Open at a time, in each process."""

    disk_bytes: int = 2048 * MIB
    """In the run's folder, and of one file."""

    item_bytes: int = 10_000_000
    """Of one item."""

    items: int = 0
    """0 is none."""

    stalled_seconds: int = 0
    """Without a request, a response or an item; 0 is none."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Limits:
        """The ``limits`` of a spec, with defaults for what they do not name; Invalid names what is not allowed."""
        fields = Fields("limits", spec, tuple(RANGES))
        defaults = cls()
        return cls(
            **{
                name: fields.whole(name, getattr(defaults, name), least=least, most=most)
                for name, (least, most) in RANGES.items()
            }
        )


RANGES = {
    "memory_bytes": (64 * MIB, 2**50),
    "cpu_seconds": (0, 2**31),
    "processes": (1, 100_000),
    "files": (64, 1_000_000),
    "disk_bytes": (MIB, 2**50),
    "item_bytes": (1, 16_000_000),
    "items": (0, 2**62),
    "stalled_seconds": (0, 2**31),
}
"""The least and the most that each limit may be."""
