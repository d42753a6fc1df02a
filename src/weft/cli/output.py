"""Print results as aligned text or JSON, never control sequences of the terminal, and ask before a change."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.options import options_of
from weft.clock import SECOND, Moment, now
from weft.errors import NOT_SHOWN, Invalid
from weft.redaction import redacted_tree

if TYPE_CHECKING:
    from weft.tasks.changes import TaskChange

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
    "unhealthy": 31,
    "problem": 31,
    "delete": 31,
    "cancelled": 90,
    "offline": 90,
    "paused": 90,
}
CONTROL_CHARACTERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What a program prints to colour text or to move the cursor."""

UNFINISHED_SEQUENCE = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?)?|\r)\Z")
HELD_CHARACTERS = 256
SPANS = (("d", 86_400), ("h", 3600), ("min", 60))


def answer(context: Any, document: Any, text: Callable[[], str]) -> None:
    """Print the document with --json, else the text. A document may be a function, which is called for JSON only."""
    if options_of(context).json:
        print(as_json(document() if callable(document) else document))
    else:
        print(text())


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
    return "\n".join(_table_line(row, widths, edge) for row in (headings, *cells))


def none_of(nouns: str, filters: Iterable[object], otherwise: str) -> str:
    """What an empty list says: with filters there may be others, else what makes the first one."""
    return f"no {nouns} match these filters" if any(each is not None for each in filters) else otherwise


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


class TerminalLogText:
    """Turns the bytes of a log, piece by piece, into lines that cannot steer a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        text = self._held + self._decoder.decode(data, last)
        cut = len(text) if last else _finished(text)
        text, self._held = text[:cut], text[cut:]
        plain = CONTROL_CHARACTERS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        return "".join(each if each.isprintable() or each in "\n\t" else escaped(each) for each in plain)


def _finished(text: str) -> int:
    """How much of the text can be shown without what comes next: not half of an escape sequence or of a line's end."""
    unfinished = UNFINISHED_SEQUENCE.search(text, max(0, len(text) - HELD_CHARACTERS))
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


def _table_line(cells: Sequence[str], widths: Sequence[int], edge: int | None) -> str:
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


def due(at: Moment | None) -> str:
    """When something is to come; where its time has come, nobody is told that it was."""
    return "due now" if at is not None and at <= now() else ago(at)


def duration_text(start: Moment | None, end: Moment | None) -> str:
    """How long something took, or has taken so far."""
    return "-" if start is None else span(max(0.0, ((now() if end is None else end) - start) / SECOND))


CHANGE_WORDS = {"create": "created", "change": "changed", "delete": "deleted", "settings": "settings"}


def changes_text(changes: Sequence[TaskChange]) -> str:
    return "\n".join(_change_text(change) for change in changes)


def summary(changes: Sequence[TaskChange], *, done: bool) -> str:
    """How much was changed, or would be."""
    counts = {what: sum(change.what == what for change in changes) for what in CHANGE_WORDS}
    parts = [f"{count} {CHANGE_WORDS[what]}" for what, count in counts.items() if count]
    return f"{', '.join(parts)}{'' if done else ' (nothing was changed yet)'}" if parts else "nothing to change"


def confirm(context: Any, question: str, *, yes: bool) -> None:
    """Go on only if a person says so; where none can be asked, only with ``--yes``."""
    if yes:
        return
    if options_of(context).json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("--yes", NOT_SHOWN, f"it must be given where nobody can be asked: {question}")
    typer.confirm(question, abort=True, err=True)


def _change_text(change: TaskChange) -> str:
    name = f"{change.project}/{change.name}" if change.name else f"project {change.project}"
    lines = [f"{painted(change.what)} {name}"]
    for field, (old, new) in change.fields.items():
        lines.append(f"  {field}: {_value(new)}" if change.what == "create" else f"  {field}: {_both(old, new)}")
    return "\n".join(lines)


def _both(old: Any, new: Any) -> str:
    return f"{_value(old)} → {_value(new)}"


def _value(value: Any) -> str:
    value = redacted_tree(value)
    if isinstance(value, dict):
        value = {name: _moment(each) if name in ("once_at", "start_at") else each for name, each in value.items()}
    return "-" if value is None else escaped(json.dumps(value, ensure_ascii=False))


def _moment(value: Any) -> Any:
    from weft.clock import as_datetime

    return as_datetime(value).isoformat() if isinstance(value, int) else value


def show_changes(context: Any, text: str) -> None:
    """Show a person the difference before the question; a program finds it in the document."""
    if text and not options_of(context).json:
        print(text)
