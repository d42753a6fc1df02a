"""What every page has: the menu, the session, the theme and the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import HTTPConnection

from weft.operations.sessions import local_path
from weft.web import translations
from weft.web.assets import addresses, build
from weft.web.rendering import Redirect
from weft.web.translations import N_
from weft.web.visit import Visit, may, may_somewhere

COOKIE = "weft_look"
THEMES = ("light", "auto", "dark")
COOKIE_SECONDS = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Appearance:
    theme: str = "auto"
    language: str = ""
    """Empty: what the browser asks for."""


def appearance_of(connection: HTTPConnection) -> Appearance:
    theme, _, language = connection.cookies.get(COOKIE, "").partition(".")
    return Appearance(
        theme if theme in THEMES else "auto",
        translations.negotiated_language(language, connection.headers.get("accept-language", "")),
    )


async def choose_appearance(visit: Visit) -> Redirect:
    """Remember what was chosen, and go back."""
    look = appearance_of(visit.request)
    if (theme := visit.form.get("theme", "")) in THEMES:
        look = replace(look, theme=theme)
    if (language := visit.form.get("language", "")) in translations.LANGUAGES:
        look = replace(look, language=language)
    path = visit.prefix or "/"
    cookie = f"{COOKIE}={look.theme}.{look.language}; Path={path}; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax"
    return Redirect(local_path(visit.form.get("next", "/")), {"Set-Cookie": cookie})


PAGES = {"/look": {"POST": choose_appearance}}


SessionValues = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One line of the menu; its noun is the name of its icon as well."""

    noun: str
    name: str
    page: str


MENU = (
    (
        MenuEntry("overview", N_("Overview"), "/"),
        MenuEntry("runs", N_("Runs"), "/runs"),
        MenuEntry("tasks", N_("Tasks"), "/tasks"),
        MenuEntry("crawls", N_("Crawls"), "/crawls"),
        MenuEntry("projects", N_("Projects"), "/projects"),
        MenuEntry("datasets", N_("Datasets"), "/datasets"),
    ),
    (
        MenuEntry("workers", N_("Workers"), "/workers"),
        MenuEntry("dead-letters", N_("Dead letters"), "/dead-letters"),
        MenuEntry("webhooks", N_("Webhooks"), "/webhooks"),
        MenuEntry("settings", N_("Settings"), "/settings"),
        MenuEntry("docs", N_("API"), "/docs"),
    ),
)


SHOWN_IF: dict[str, Callable[[SessionValues], bool]] = {
    "workers": lambda session: may(session, "viewer"),
    "dead-letters": lambda session: may_somewhere(session, "operator"),
    "webhooks": lambda session: may_somewhere(session, "admin"),
}
"""Nouns whose pages show nothing to some readers, and who is led there."""
MENU_PARENTS = {"schedules": "tasks"}
"""Nouns whose pages stand under another one in the menu."""


def menu_of(session: SessionValues) -> list[list[MenuEntry]]:
    """The menu, without what shows nothing to this reader."""
    return [[each for each in group if each.noun not in SHOWN_IF or SHOWN_IF[each.noun](session)] for group in MENU]


def noun_of(path: str) -> str:
    """What a page is about: the first part of its address."""
    noun = path.split("/")[1] or "overview"
    return MENU_PARENTS.get(noun, noun)


def layout_values(visit: Visit) -> dict[str, Any]:
    seen = appearance_of(visit.request)
    path = visit.request.scope["path"]
    query = visit.request.scope["query_string"].decode("latin-1")
    return {
        "root": visit.prefix,
        "this_page": f"{path}?{query}" if query else path,
        "here": noun_of(path),
        "static": addresses(),
        "build": build(),
        "menu": menu_of(visit.session),
        "session": visit.session,
        "theme": seen.theme,
        "language": seen.language,
        "languages": translations.LANGUAGES,
        "_": translations.translator(seen.language),
    }
