"""How answers look: aligned text for people, one JSON document for programs, and nothing that steers a terminal."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.cli.options import options_of
from weft.clock import SECOND, Moment, now

COLOURS = {
    "succeeded": 32,
    "online": 32,
    "ok": 32,
    "create": 32,
    "running": 36,
    "busy": 36,
    "change": 33,
    "settings": 33,
    "draining": 33,
    "timeout": 31,
    "failed": 31,
    "lost": 31,
    "problem": 31,
    "delete": 31,
    "cancelled": 90,
    "offline": 90,
    "paused": 90,
}
STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What a program prints to colour text or to move the cursor."""

UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?)?|\r)\Z")
HELD_CHARACTERS = 256
SPANS = (("d", 86_400), ("h", 3600), ("min", 60))


def answer(context: Any, document: Any, text: Callable[[], str]) -> None:
    """Print what was asked for, in the form that was asked for."""
    print(as_json(document) if options_of(context).json else text())


def as_json(document: Any) -> str:
    """ASCII only, so that no character of a name or a log can reach a terminal unescaped."""
    return json.dumps(document, indent=2, default=_plain)


def _plain(document: object) -> object:
    import msgspec

    return msgspec.to_builtins(document)


def note(text: str) -> None:
    """Tell the person something that is not the answer."""
    print(text, file=sys.stderr, flush=True)


def note_all(lines: Iterable[str]) -> None:
    for line in lines:
        note(line)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> str:
    """Aligned columns; on a terminal the last one ends at its edge."""
    cells = [[shown(cell) for cell in row] for row in rows]
    if not cells:
        return empty
    widths = [max(map(width, column)) for column in zip(headings, *cells, strict=True)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(_line(row, widths, edge) for row in (headings, *cells))


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one a line; what is empty is left out."""
    rows = [(name, shown(value)) for name, value in pairs if value not in (None, "", (), [], {})]
    longest = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{longest}}  {painted(value)}" for name, value in rows)


def shown(value: object) -> str:
    """One value on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return escaped(json.dumps(value, ensure_ascii=False))
    if isinstance(value, tuple):
        return ", ".join(shown(each) for each in value) or "-"
    return escaped(str(value))


def escaped(text: str) -> str:
    """The text with every character that does not print written out: ``\\n``, ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class LogText:
    """Turns the bytes of a log, piece by piece, into lines that cannot steer a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        text = self._held + self._decoder.decode(data, last)
        cut = len(text) if last else _finished(text)
        text, self._held = text[:cut], text[cut:]
        plain = STEERING.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        return "".join(each if each.isprintable() or each in "\n\t" else escaped(each) for each in plain)


def _finished(text: str) -> int:
    """How much of the text can be shown without what comes next: not half of an escape sequence or of a line's end."""
    unfinished = UNFINISHED.search(text, max(0, len(text) - HELD_CHARACTERS))
    return unfinished.start() if unfinished else len(text)


def painted(text: str) -> str:
    """The text in the colour of what it says, where colours are seen and wanted."""
    code = COLOURS.get(text.strip())
    return f"\x1b[{code}m{text}\x1b[0m" if code and colours_wanted() else text


def colours_wanted() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def clipped(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    while text and width(text) > room - 1:
        text = text[:-1]
    return text + "…"


def _line(cells: Sequence[str], widths: Sequence[int], edge: int | None) -> str:
    room = max(10, edge - sum(widths[:-1]) - 2 * (len(widths) - 1)) if edge else None
    last = clipped(cells[-1], room) if room else cells[-1]
    padded = [cell + " " * (wide - width(cell)) for cell, wide in zip(cells[:-1], widths[:-1], strict=True)]
    return "  ".join(painted(cell) for cell in (*padded, last)).rstrip()


def span(seconds: float) -> str:
    """A length of time in its largest unit: 0.25 s, 12 s, 5 min, 3 h, 2 d."""
    for unit, size in SPANS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def ago(at: Moment | None, since: Moment | None = None) -> str:
    """How far a moment is from now, or from ``since``."""
    if at is None:
        return "-"
    seconds = ((now() if since is None else since) - at) / SECOND
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def took(start: Moment | None, end: Moment | None) -> str:
    """How long something took, or has taken so far."""
    return "-" if start is None else span(max(0.0, ((now() if end is None else end) - start) / SECOND))
