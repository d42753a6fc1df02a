"""What can be asked of a log: which attempt, which records or lines of it, and how they are told."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weft.errors import Invalid
from weft.runs.log_records import LONGEST_LINE
from weft.runs.log_search import MOST_TAIL, LogQuery

LineNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Width = Annotated[
    int, msgspec.Meta(ge=1, le=2 * LONGEST_LINE, description="Characters of each message and traceback that are told.")
]


Attempt = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1, description="The newest unless told.")]


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Which records."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    """Records of this level and of graver ones; a printed line has none."""
    logger: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Records of this logger and of those below it."""
    text: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records that hold this, in capitals or not."""
    regex: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Records in which this regular expression is found."""

    def query(self, tail: int | None = None) -> LogQuery:
        return LogQuery(level=self.level or "", logger=self.logger, text=self.text, regex=self.regex, tail=tail)


class Streamed(Search, frozen=True, kw_only=True):
    """How the log is told, and from where on."""

    format: Literal["text", "jsonl", "lines"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own; lines: with the numbers of lines, and
    only those that are asked for by level, logger, text and regex."""
    after: Annotated[str, msgspec.Meta(max_length=30)] = ""
    """What Last-Event-ID says, for those who cannot send it with their first request."""
    width: Width = 4000


class Wanted(Search, frozen=True, kw_only=True):
    """Which records of which attempt, and how they are told."""

    attempt: Attempt | None = None
    tail: Annotated[int, msgspec.Meta(ge=1, le=MOST_TAIL)] | None = None
    """No more than the last so many."""
    format: Literal["text", "jsonl", "raw"] = "text"
    """text: as people read it; jsonl: each record as JSON in a line of its own; raw: the bytes as they are."""


class Lines(Search, frozen=True, kw_only=True):
    """Which lines of which attempt: the last ones unless told."""

    attempt: Attempt | None = None
    before: LineNumber | None = None
    """The last ones before this line."""
    after: LineNumber | None = None
    """The first ones after this line; 0 for the first of all."""
    around: LineNumber | None = None
    """This line in the midst of others."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    """How many lines at most."""
    width: Width = 4000

    def check(self) -> None:
        told = [name for name in ("before", "after", "around") if getattr(self, name) is not None]
        if len(told) > 1:
            raise Invalid(told[0], getattr(self, told[0]), f"it can not be told together with {told[1]}")


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors."""

    attempt: Attempt | None = None
    most_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Only those in so many bytes at the end of the log, or a little more; all unless told."""
