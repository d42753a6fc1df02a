"""What this weft is, what it stands on, and whose work is in its pages."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from weft.web.assets import BUILT
from weft.web.pages.settings import ABOUT, tabs_of
from weft.web.rendering import Page
from weft.web.visit import Visit


async def about(visit: Visit) -> Page:
    found = (await visit.ask("GET", "/v1/about")).document
    shown = {"about": found, "licences": licences()} | tabs_of(visit, ABOUT)
    return Page("settings/about.html", shown, found | {"licences": licences()})


@cache
def licences() -> list[dict[str, Any]]:
    """The packages that pages are built from, each with its licence, or else its notice; the build writes them down."""
    file = BUILT / "licences.json"
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    notices = "\n\n".join(each.read_text(encoding="utf-8") for each in sorted(BUILT.glob("*.LEGAL.txt")))
    return [each | {"text": each["text"] or notices} for each in found]


PAGES = {"/settings/about": {"GET": about}}
