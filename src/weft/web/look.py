"""How somebody wants to see pages: colours and language, kept in a cookie of their browser."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.requests import HTTPConnection

from weft.api.onward import local
from weft.web import words
from weft.web.rendering import Onward
from weft.web.visit import Visit

COOKIE = "weft_look"
THEMES = ("light", "auto", "dark")
SECONDS = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Look:
    theme: str = "auto"
    language: str = ""
    """Empty: what the browser asks for."""


def look_of(connection: HTTPConnection) -> Look:
    theme, _, language = connection.cookies.get(COOKIE, "").partition(".")
    return Look(
        theme if theme in THEMES else "auto",
        words.chosen(language, connection.headers.get("accept-language", "")),
    )


async def choose(visit: Visit) -> Onward:
    """Remember what was chosen, and go back."""
    look = look_of(visit.request)
    if (theme := visit.form.get("theme", "")) in THEMES:
        look = replace(look, theme=theme)
    if (language := visit.form.get("language", "")) in words.LANGUAGES:
        look = replace(look, language=language)
    path = visit.prefix or "/"
    cookie = f"{COOKIE}={look.theme}.{look.language}; Path={path}; Max-Age={SECONDS}; HttpOnly; SameSite=Lax"
    return Onward(local(visit.form.get("next", "/")), {"Set-Cookie": cookie})


PAGES = {"/look": {"POST": choose}}
