"""Where the menu leads, and which noun a page belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.web.rights import may, may_somewhere
from weft.web.words import N_

Session = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the menu; its noun is the name of its icon as well."""

    noun: str
    name: str
    page: str


MENU = (
    (
        Entry("overview", N_("Overview"), "/"),
        Entry("runs", N_("Runs"), "/runs"),
        Entry("tasks", N_("Tasks"), "/tasks"),
        Entry("crawls", N_("Crawls"), "/crawls"),
        Entry("projects", N_("Projects"), "/projects"),
        Entry("datasets", N_("Datasets"), "/datasets"),
    ),
    (
        Entry("workers", N_("Workers"), "/workers"),
        Entry("letters", N_("Letters"), "/letters"),
        Entry("webhooks", N_("Webhooks"), "/webhooks"),
        Entry("settings", N_("Settings"), "/settings"),
        Entry("docs", N_("API"), "/docs"),
    ),
)


OFFERED: dict[str, Callable[[Session], bool]] = {
    "workers": lambda session: may(session, "viewer"),
    "letters": lambda session: may_somewhere(session, "operator"),
    "webhooks": lambda session: may_somewhere(session, "admin"),
}
"""Nouns whose pages show nothing to some readers, and who is led there."""
UNDER = {"schedules": "tasks"}
"""Nouns whose pages stand under another one in the menu."""


def menu_of(session: Session) -> list[list[Entry]]:
    """The menu, without what shows nothing to this reader."""
    return [[each for each in group if each.noun not in OFFERED or OFFERED[each.noun](session)] for group in MENU]


def noun_of(path: str) -> str:
    """What a page is about: the first part of its address."""
    noun = path.split("/")[1] or "overview"
    return UNDER.get(noun, noun)
