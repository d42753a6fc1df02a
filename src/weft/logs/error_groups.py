"""Groups the errors of a log: those that say the same of different pages are one."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from weft.logs.records import LEVELS, LogRecord

MOST_GROUPS = 1000
LONGEST_MASKED = 500
LONGEST_EXAMPLE = 20_000

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s<>\"')\]]+", re.IGNORECASE)
_QUOTED = re.compile(r"'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"")
_NUMBER = re.compile(r"0x[0-9a-f]+|(?<![a-z])\d[\d.,:]*", re.IGNORECASE)


class ErrorGroup(msgspec.Struct, frozen=True):
    """Errors that are alike."""

    logger: str
    message: str
    """What they share; numbers, quoted words and addresses are left out."""
    level: str
    """The gravest."""
    count: int
    first_at: int | None
    """Microseconds since 1970."""
    last_at: int | None
    example: str
    """The first of them with its traceback, at most 20,000 characters."""
    first_line: int | None = None
    """Where in the log the first and the last of them are; None where lines were not counted."""
    last_line: int | None = None


class ErrorGroups:
    """Collects errors. Of more kinds than it keeps, it counts the rest."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], ErrorGroup] = {}
        self.others = 0

    def add(self, records: Iterable[LogRecord], line: int | None = None) -> None:
        """Take the errors among records, which are all of one line where that is told."""
        for record in records:
            if record.weight >= LEVELS["ERROR"]:
                self._add(record, line)

    @property
    def all(self) -> list[ErrorGroup]:
        """The most frequent first."""
        return sorted(self._groups.values(), key=lambda each: (-each.count, each.first_at or 0, each.message))

    def _add(self, record: LogRecord, line: int | None) -> None:
        message = masked(record)
        key = (record.logger[:LONGEST_MASKED], message)
        known = self._groups.get(key)
        if known is not None:
            level = max(known.level, record.level, key=lambda each: LEVELS[each])
            last = {"last_at": record.at or known.last_at, "last_line": line}
            self._groups[key] = msgspec.structs.replace(known, count=known.count + 1, level=level, **last)
        elif len(self._groups) < MOST_GROUPS:
            self._groups[key] = ErrorGroup(
                *(record.logger[:LONGEST_MASKED], message, record.level, 1, record.at, record.at),
                example=record.text[:LONGEST_EXAMPLE],
                first_line=line,
                last_line=line,
            )
        else:
            self.others += 1


def masked(record: LogRecord) -> str:
    """What errors that are alike have in common: the first line, and what the exception says at its end."""
    lines = [record.message.split("\n", 1)[0]]
    if record.exception:
        lines.append(record.exception.rstrip().rsplit("\n", 1)[-1])
    text = " | ".join(line[: 4 * LONGEST_MASKED] for line in lines)
    return _NUMBER.sub("#", _QUOTED.sub("'…'", _URL.sub("<url>", text)))[:LONGEST_MASKED]
