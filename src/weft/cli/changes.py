"""What a command is about to change, and whether it may."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.options import options_of
from weft.cli.output import escaped, painted
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.tasks.changes import Change

WORDS = {"create": "created", "change": "changed", "delete": "deleted", "settings": "settings"}


def changes_text(changes: Sequence[Change]) -> str:
    return "\n".join(_change_text(change) for change in changes)


def summary(changes: Sequence[Change], *, done: bool) -> str:
    """How much was changed, or would be."""
    counts = {what: sum(change.what == what for change in changes) for what in WORDS}
    parts = [f"{count} {WORDS[what]}" for what, count in counts.items() if count]
    return f"{', '.join(parts)}{'' if done else ' (nothing was changed yet)'}" if parts else "nothing to change"


def confirm(context: Any, question: str, *, yes: bool) -> None:
    """Go on only if a person says so; where none can be asked, only with ``--yes``."""
    if yes:
        return
    if options_of(context).json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("--yes", "not given", f"it must be given where nobody can be asked: {question}")
    typer.confirm(question, abort=True, err=True)


def _change_text(change: Change) -> str:
    name = f"{change.project}/{change.name}" if change.name else f"project {change.project}"
    lines = [f"{painted(change.what)} {name}"]
    for field, (old, new) in change.fields.items():
        lines.append(f"  {field}: {_value(new)}" if change.what == "create" else f"  {field}: {_both(old, new)}")
    return "\n".join(lines)


def _both(old: Any, new: Any) -> str:
    return f"{_value(old)} → {_value(new)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        value = {name: _moment(each) if name in ("once_at", "start_at") else each for name, each in value.items()}
    return "-" if value is None else escaped(json.dumps(value, ensure_ascii=False))


def _moment(value: Any) -> Any:
    from weft.clock import as_datetime

    return as_datetime(value).isoformat() if isinstance(value, int) else value


def tell(context: Any, text: str) -> None:
    """Show a person the difference before the question; a program finds it in the document."""
    if text and not options_of(context).json:
        print(text)
