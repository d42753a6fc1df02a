"""What a client saw, one line a fact, in a file of its own that no crash of weft can touch.

``try KEY`` stands before each submit, ``ack KEY RUN`` after its answer; ``down KEY`` where the database was away and
the same key is tried again, ``error KEY WHAT`` for anything else. A client that is killed leaves a ``try`` without an
answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


class History:
    """One client's file, open for its facts."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def attempt(self, key: str) -> None:
        self._write(f"try {key}")

    def acknowledged(self, key: str, run_id: int) -> None:
        """On disk before the next submit."""
        self._write(f"ack {key} {run_id}")
        os.fdatasync(self._file)

    def down(self, key: str) -> None:
        self._write(f"down {key}")

    def error(self, key: str, problem: Exception) -> None:
        text = str(problem).partition("\n")[0]
        self._write(f"error {key} {type(problem).__name__}: {text}")

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


@dataclass(slots=True)
class Story:
    """All that some clients saw."""

    tried: set[str] = field(default_factory=set)
    acked: dict[str, int] = field(default_factory=dict)
    down: int = 0
    """How many answers said that the database was away."""
    errors: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        key, _, detail = rest.partition(" ")
        match verb:
            case "try":
                self.tried.add(key)
            case "ack":
                self.acked[key] = int(detail)
            case "down":
                self.down += 1
            case "error":
                self.errors.append(detail)
            case _:
                raise ValueError(f"a history has the line {line!r}; it may begin with try, ack, down or error")


def read(paths: Iterable[Path]) -> Story:
    """The story that the whole lines tell; a last one that was cut short never happened."""
    story = Story()
    for path in paths:
        text = path.read_text() if path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            story.add(line)
    return story
