"""What the bytes of a log say: records with fields, and lines that were simply printed.

A spider's agent writes a record as RS, an object in JSON and a line end; everything else is text. Nothing that a run
prints can forge a record's head in text, steer a terminal or grow without bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

MARK = b"\x1e"
"""Begins a record."""
LONGEST_LINE = 32 << 10
"""Characters of a line that are shown; of the rest, how many there are."""
LONGEST_RECORD = 1 << 20
"""Bytes of a line that are looked at; what follows in it is counted."""
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}

_PRINTED = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \[([^\]\s]{1,200})\] ([A-Z]{4,8}): ([^\r]*)", re.DOTALL | re.ASCII
)
_STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?)?|\r)\Z")
"""Half of an escape sequence, or of a line's end."""
_LONGEST_ESCAPE = 256
_END_OF_TIME = 253_402_300_800_000_000
_INDENT = "    "


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a run has said; a printed line has a message and nothing else."""

    message: str = ""
    at: int | None = None
    """Microseconds since 1970."""
    level: str = ""
    logger: str = ""
    url: str | None = None
    status: int | None = None
    spider: str | None = None
    run_id: int | str | None = None
    exception: str | None = None
    extra: dict[str, Any] = {}
    """What the log call has given as ``extra``."""

    @property
    def weight(self) -> int:
        """How grave it is; 0 where nobody said."""
        return LEVELS.get(self.level, 0)

    @property
    def text(self) -> str:
        """As Scrapy writes it, with further lines below and indented, so that none of them looks like a record."""
        body = self.message if self.exception is None else f"{self.message}\n{self.exception}"
        if not self.level:
            return without_control_codes(body)
        head = f"{_moment(self.at)} [{_without_control_codes(self.logger) or 'root'}] {self.level}: "
        first, *others = (_without_control_codes(line) for line in _folded(body.rstrip("\r\n")))
        return "\n".join([head + first, *(_INDENT + line for line in others)])


_DECODER = msgspec.json.Decoder(LogRecord)


class LogParser:
    """Makes records of the bytes of a log, which may come in pieces that are cut anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        found: list[LogRecord] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._held or self._skipped or len(line) > LONGEST_RECORD:
                self._hold(line)
                found += self._take()
            else:
                found += records_in(line, 0)
        self._hold(rest)
        return found

    def end(self) -> list[LogRecord]:
        """What was said last, without a line end."""
        return self._take() if self._held or self._skipped else []

    def _hold(self, data: bytes) -> None:
        room = max(0, LONGEST_RECORD - len(self._held))
        self._held += data[:room]
        self._skipped += max(0, len(data) - room)

    def _take(self) -> list[LogRecord]:
        line, skipped = bytes(self._held), self._skipped
        self._held.clear()
        self._skipped = 0
        return list(records_in(line, skipped))


def records_of(data: bytes) -> list[LogRecord]:
    """The records of a whole log."""
    parser = LogParser()
    return parser.feed(data) + parser.end()


def safe_cut(data: bytes) -> int:
    """How many bytes of ``data`` can be shown as text without what follows: not half a record, nor half a character."""
    line = data.rfind(b"\n") + 1
    mark = data.find(MARK, line)
    if mark >= 0:
        return mark
    unfinished = _UNFINISHED.search(data, max(line, len(data) - _LONGEST_ESCAPE))
    return unfinished.start() if unfinished else line + whole_characters(data[line:])


def as_text(data: bytes, *, goes_on: bool = False) -> str:
    """Bytes up to a safe cut, as text for people. A line that goes on later is left open; ``goes_on``: one was."""
    *lines, rest = data.split(b"\n")
    if goes_on and data.startswith(MARK):
        return "\n" + as_text(data)
    whole = [record.text + "\n" for line in lines for record in records_in(line, 0)]
    return "".join([*whole, *_open_text(rest)])


def whole_characters(data: bytes) -> int:
    """How many bytes there are before a UTF-8 character that is cut off at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if length > back else len(data)
    return len(data)


class LogTextRenderer:
    """Shows a log that comes in pieces as text; a printed line is shown as far as it is known, a record when whole."""

    def __init__(self) -> None:
        self._held = b""
        self._goes_on = False

    def feed(self, data: bytes, *, last: bool = False) -> str:
        data = self._held + data
        cut = len(data) if last or len(data) > LONGEST_RECORD else safe_cut(data)
        self._held = data[cut:]
        text = as_text(data[:cut], goes_on=self._goes_on)
        self._goes_on = not text.endswith("\n") if text else self._goes_on
        return text


def _open_text(rest: bytes) -> Iterator[str]:
    if MARK in rest:
        yield "\n".join(record.text for record in records_in(rest, 0))
    elif rest:
        yield without_control_codes(rest.decode("utf-8", "replace"))


def records_in(line: bytes, skipped: int = 0) -> Iterator[LogRecord]:
    """What one line says: a record may follow text that had no line end, and no record holds the mark."""
    if line.startswith(MARK) and line.find(MARK, 1) < 0:
        yield _record(line[1:], skipped)
        return
    before, *marked = line.split(MARK)
    if before or not marked:
        yield _printed(before.decode("utf-8", "replace"), skipped if not marked else 0)
    for number, part in enumerate(marked, 1):
        yield _record(part, skipped if number == len(marked) else 0)


def _record(part: bytes, skipped: int) -> LogRecord:
    try:
        record = _DECODER.decode(part)
        if record.level in LEVELS and (record.at is None or 0 <= record.at < _END_OF_TIME):
            return _clipped(record)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # Not as our agent writes it; it may be a record all the same.
    return _odd_record(part, skipped)


def _odd_record(part: bytes, skipped: int) -> LogRecord:
    try:
        said = msgspec.json.decode(part, type=dict[str, Any])
        return _clipped(msgspec.convert(_record_fields(said), LogRecord, strict=False))
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError):
        return _printed(part.decode("utf-8", "replace"), skipped)


def _record_fields(said: dict[str, Any]) -> dict[str, Any]:
    level = str(said.get("level") or "INFO").upper()
    texts = {name: str(said[name]) for name in ("message", "logger", "url", "spider", "exception") if said.get(name)}
    numbers = {name: said[name] for name in ("at", "status", "run_id") if said.get(name) is not None}
    if not _is_moment(numbers.get("at", 0)):
        del numbers["at"]
    extra = {"extra": said["extra"]} if isinstance(said.get("extra"), dict) else {}
    return texts | numbers | extra | {"level": level if level in LEVELS else "INFO"}


def _is_moment(at: object) -> bool:
    return not isinstance(at, int | float) or 0 <= at < _END_OF_TIME


def _clipped(record: LogRecord) -> LogRecord:
    if len(record.message) <= LONGEST_LINE and len(record.exception or "") <= LONGEST_LINE:
        return record
    exception = None if record.exception is None else _clip(record.exception, 0)
    return msgspec.structs.replace(record, message=_clip(record.message, 0), exception=exception)


def _printed(line: str, skipped: int) -> LogRecord:
    line = _clip(line.removesuffix("\r"), skipped)
    found = _PRINTED.fullmatch(line)
    if found is None or found[3] not in LEVELS or (at := _microseconds(found[1])) is None:
        return LogRecord(message=line)
    return LogRecord(at=at, logger=found[2], level=found[3], message=found[4])


def _clip(text: str, skipped: int) -> str:
    more = max(0, len(text) - LONGEST_LINE) + skipped
    return f"{text[:LONGEST_LINE]} […{more} more]" if more else text


def without_control_codes(text: str) -> str:
    """Text of any number of lines without what steers a terminal."""
    return "\n".join(_without_control_codes(line) for line in _folded(text))


def _without_control_codes(line: str) -> str:
    """The line without what steers a terminal; other control characters are written out."""
    if line.isprintable():
        return line
    plain = _STEERING.sub("", line)
    return "".join(each if each.isprintable() or each == "\t" else _written_out(each) for each in plain)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _folded(text: str) -> list[str]:
    """Its lines; a return alone ends one too."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _moment(at: int | None) -> str:
    return _second((at or 0) // 1_000_000)


@lru_cache(maxsize=256)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _microseconds(text: str) -> int | None:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        return None
