"""What a check has found, and how findings are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer

from weft.cli.output import answer, table


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; ``advice`` where it is a problem."""

    check: str
    ok: bool
    found: str
    advice: str = ""


def show(context: Any, findings: Sequence[Finding], words: tuple[str, str]) -> None:
    """Print findings with these words for well and not well; exit 1 where something is not."""
    rows = [
        (words[0] if each.ok else words[1], each.check, "; ".join(filter(None, (each.found, each.advice))))
        for each in findings
    ]
    answer(context, [asdict(each) for each in findings], lambda: table(("", "CHECK", "FOUND"), rows))
    if not all(each.ok for each in findings):
        raise typer.Exit(1)
