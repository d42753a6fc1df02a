"""What clients read out of a page: title, heading, links, lists, tables and forms; not its prose or its looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

TEXTS = ("title", "h1", "li", "th", "td")
"""Tags whose text counts. Links and form fields stand in it as they come."""

PID, RUNTIME, SIZE = re.compile(r"^\d+$"), re.compile(r"^\d+:\d\d:\d\d$"), re.compile(r"^\d+[BKMG]$")


class Outline(HTMLParser):
    """Collects the texts of the tags that count, cells row by row and rows by the body of the table they are in."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"title": [], "h1": [], "li": []}
        self.tables: list[list[list[str]]] = []
        self._open: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("thead", "tbody"):
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in TEXTS:
            place = self.tables[-1][-1] if tag in ("th", "td") else self.texts[tag]
            place.append("")
            self._open.append(place)
        else:
            self._add(field_of(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag in TEXTS:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        if self._open:
            self._open[-1][-1] += text


def field_of(tag: str, values: dict[str, str | None]) -> str:
    names = {"a": ("href",), "form": ("method", "action"), "input": ("type", "name", "value")}.get(tag, ())
    return f" [{tag} {' '.join(str(values.get(name)) for name in names)}] " if names else ""


def outline(page: str, plain: Callable[[str], str]) -> dict[str, Any]:
    """The texts by their tag, and the tables, with ``plain`` applied to each text."""
    parser = Outline()
    parser.feed(page)
    texts = {name: [tidy(text, plain) for text in found] for name, found in parser.texts.items() if found}
    tables = [[plain_row([tidy(cell, plain) for cell in row]) for row in rows] for rows in parser.tables]
    return texts | ({"table": [by_project(rows) for rows in tables]} if tables else {})


def tidy(text: str, plain: Callable[[str], str]) -> str:
    return plain(" ".join(text.split()))


def plain_row(row: list[str]) -> list[str]:
    """Process ids, runtimes and the sizes of logs are of each server's own."""
    of_log = bool(row) and row[0].endswith(".log")
    return [
        "<size>" if of_log and SIZE.match(cell) else "<runtime>" if RUNTIME.match(cell) else PID.sub("<pid>", cell)
        for cell in row
    ]


def by_project(rows: list[list[str]]) -> list[list[str]]:
    """Pending jobs come project by project, in the order of a directory; inside one the order counts."""
    return rows[:1] + sorted(rows[1:], key=lambda row: row[0]) if rows and rows[0] == ["Pending"] else rows
