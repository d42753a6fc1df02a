"""What every page knows, whatever it shows: where links lead, who looks, and how they want to see it."""

from __future__ import annotations

from typing import Any

from weft.web import words
from weft.web.assets import addresses, build
from weft.web.look import look_of
from weft.web.menu import menu_of, noun_of
from weft.web.visit import Visit


def around(visit: Visit) -> dict[str, Any]:
    seen = look_of(visit.request)
    path = visit.request.scope["path"]
    query = visit.request.scope["query_string"].decode("latin-1")
    return {
        "root": visit.prefix,
        "address": f"{path}?{query}" if query else path,
        "here": noun_of(path),
        "static": addresses(),
        "build": build(),
        "menu": menu_of(visit.session),
        "session": visit.session,
        "theme": seen.theme,
        "language": seen.language,
        "languages": words.LANGUAGES,
        "_": words.speaker(seen.language),
    }
