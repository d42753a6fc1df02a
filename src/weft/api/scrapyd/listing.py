"""A folder as Scrapyd lists it; ScrapydWeb reads the rows with a regular expression."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from urllib.parse import quote

from weft.clock import SECOND, Moment

STYLE = """
body { font-family: system-ui, sans-serif; margin: 1rem; }
table { border-collapse: collapse; }
th, td { padding: .2rem .8rem; text-align: left; }
.even { background-color: #eee; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<table>
<thead>
<tr>
    <th>Filename</th>
    <th>Size</th>
    <th>Last modified</th>
    <th>Content type</th>
    <th>Content encoding</th>
</tr>
</thead>
<tbody>
{rows}</tbody>
</table>
</body>
</html>
"""

_ROW = """<tr class="{parity}">
    <td><a href="{href}">{name}</a></td>
    <td>{size}</td>
    <td>{modified}</td>
    <td>[{kind}]</td>
    <td></td>
</tr>
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder, whose name ends with a slash, or a file."""

    name: str
    modified_at: Moment
    size: int | None = None
    """None where nobody has counted."""
    media_type: str = "text/plain"

    @property
    def kind(self) -> str:
        return "Directory" if self.name.endswith("/") else self.media_type


def listing(path: str, entries: Sequence[Entry]) -> str:
    """The page of the folder ``path``: folders first, then files, each by name."""
    in_order = sorted(entries, key=lambda each: (not each.name.endswith("/"), each.name))
    rows = "".join(_row(each, parity) for each, parity in zip(in_order, cycle(("odd", "even")), strict=False))
    return _PAGE.format(title=escape(f"Directory listing for {path}"), style=STYLE, rows=rows)


def _row(each: Entry, parity: str) -> str:
    return _ROW.format(
        parity=parity,
        href=escape(quote(each.name, safe="/")),
        name=escape(each.name),
        size="" if each.size is None else short_size(each.size),
        modified=time.strftime("%Y-%m-%d %H:%M", time.localtime(each.modified_at // SECOND)),
        kind=escape(each.kind),
    )


def short_size(size: int) -> str:
    """A number of bytes in few characters, as Scrapyd rounds it."""
    for unit, bound in (("B", 1 << 10), ("K", 1 << 20), ("M", 1 << 30)):
        if size < bound:
            return f"{size // (bound >> 10)}{unit}"
    return f"{size >> 30}G"
