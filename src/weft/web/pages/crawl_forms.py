"""The form for a new crawl."""

from __future__ import annotations

from typing import Any

from weft.web.faults import faults, say
from weft.web.inside import Refusal
from weft.web.rendering import Onward, Page
from weft.web.rights import may, may_somewhere, projects_of
from weft.web.visit import Visit
from weft.web.words import N_

WITHIN = (
    ("host", N_("The host where it begins")),
    ("domain", N_("Its domain, with all below it")),
    ("path", N_("The folder where it begins")),
    ("any", N_("Everything that is linked to")),
)
EMPTY = {
    "urls": "",
    "project": "",
    "name": "",
    "within": "host",
    "follow": "on",
    "pages": "10000",
    "depth": "20",
    "delay": "1",
    "allow": "",
    "deny": "",
    "contact": "",
    "sitemaps": "",
    "text": "",
    "markdown": "",
    "warc": "on",
}
CHECKED = ("follow", "sitemaps", "text", "markdown", "warc")
NUMBERS = {"pages": (0, 2**53), "depth": (0, 1000), "delay": (0, 86_400)}
BESIDE = ("contact", "allow", "deny", "name", "project", "within")
"""Fields that a refusal may be about; any other is about the addresses."""


async def new(visit: Visit) -> Page:
    """The form, with what an address of it may bring along."""
    typed = EMPTY | {name: visit.query[name] for name in ("urls", "project") if name in visit.query}
    return _form(visit, typed | {"project": typed["project"] or _first_project(visit)}, {})


async def begin(visit: Visit) -> Page | Onward:
    """Begin a crawl; what is wrong with it is told beside its field."""
    typed = {name: visit.form.get(name, "").strip() for name in EMPTY}
    if errors := _wrong(visit, typed):
        return _form(visit, typed, errors)
    body = {"project": typed["project"], "name": typed["name"], "spec": _spec(typed)}
    try:
        made = (await visit.ask("POST", "/v1/crawls", body=body)).document
    except Refusal as refusal:
        return _form(visit, typed, _beside(refusal))
    return Onward(f"/crawls/{made['id']}?said=begun")


def _spec(typed: dict[str, str]) -> dict[str, Any]:
    return {
        "urls": typed["urls"].split(),
        "follow": bool(typed["follow"]),
        "scope": {
            "within": typed["within"],
            "allow": typed["allow"].split(),
            "deny": typed["deny"].split(),
            "depth": int(typed["depth"]),
            "sitemaps": bool(typed["sitemaps"]),
        },
        "budget": {"pages": int(typed["pages"])},
        "politeness": {"delay_seconds": float(typed["delay"])},
        "fetching": {"contact": typed["contact"]},
        "keeping": {name: bool(typed[name]) for name in ("text", "markdown", "warc")},
    }


def _wrong(visit: Visit, typed: dict[str, str]) -> dict[str, str]:
    """What cannot even be asked for: numbers that are none."""
    errors = {}
    for name, (low, high) in NUMBERS.items():
        if not _is_number(typed[name], low, high, whole=name != "delay"):
            errors[name] = say(visit, N_("It must be a number from {low} to {high}."), low=low, high=high)
    return errors


def _is_number(text: str, low: int, high: int, *, whole: bool) -> bool:
    try:
        return low <= (int(text) if whole else float(text)) <= high
    except ValueError:
        return False


def _beside(refusal: Refusal) -> dict[str, str]:
    if refusal.problem.status in (403, 404):
        return {"project": refusal.problem.detail}
    return faults(refusal, *BESIDE, "urls")


def _form(visit: Visit, typed: dict[str, str], errors: dict[str, str]) -> Page:
    shown: dict[str, Any] = {"typed": typed, "errors": errors, "within": WITHIN}
    shown["may_begin"] = may_somewhere(visit.session, "developer")
    return Page("crawls/new.html", shown, {"typed": typed, "errors": errors}, status=422 if errors else 200)


def _first_project(visit: Visit) -> str:
    if may(visit.session, "developer"):
        return "default"
    return next(iter(projects_of(visit.session, "developer")), "default")


PAGES = {"/crawls/new": {"GET": new, "POST": begin}}
