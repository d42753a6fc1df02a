"""Where the menu leads, and which noun a page belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from weft.web.words import N_


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


UNDER = {"schedules": "tasks"}
"""Nouns whose pages stand under another one in the menu."""


def noun_of(path: str) -> str:
    """What a page is about: the first part of its address."""
    noun = path.split("/")[1] or "overview"
    return UNDER.get(noun, noun)
