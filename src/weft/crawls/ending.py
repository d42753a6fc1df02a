"""How a process that crawls ends, and the note that it leaves for its worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

END = "end.json"
FINISHED, STOPPED, LOST, FAILED = "finished", "stopped", "lost", "failed"
"""Reasons besides those by which a crawl itself stops (``paused``)."""


@dataclass(frozen=True, slots=True)
class End:
    """Why it ended; the message says what went wrong, where something did."""

    reason: str
    message: str = ""

    @property
    def code(self) -> int:
        return 1 if self.reason == FAILED else 0


def leave(folder: Path, end: End) -> None:
    """Write the note, so that it is there whole or not at all."""
    draft = folder / f"{END}.new"
    draft.write_bytes(msgspec.json.encode({"reason": end.reason, "message": end.message}))
    draft.replace(folder / END)
