"""Projects: all of them, one with its spiders, versions and settings, and the form of those settings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from weft.access.model import NAME
from weft.errors import Invalid
from weft.web import dots
from weft.web.faults import say
from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may, may_somewhere
from weft.web.visit import Visit
from weft.web.words import N_

SHOWN_SPIDERS = 100
SHOWN_VERSIONS = 5
SAID = {
    "saved": N_("The settings are saved. They hold from now on."),
    "paused": N_("The tasks of this project are paused: nothing of them starts by itself."),
    "resumed": N_("The tasks of this project go on from now."),
}
NAMED = N_("A name has letters, digits, '.', '_' or '-', at most 100, and begins with a letter or digit.")
NUMBERS: Mapping[str, type] = {"weight": float, "max_running": int, "max_queued": int, "keep_days": float}
WHOLE = re.compile(r"[0-9]{1,9}")
NEWS = Live(kinds=("version_",), every_seconds=5.0)
"""Runs end all the time; what is summed up of them may be some seconds old."""


async def listing(visit: Visit) -> Page | Onward:
    """The projects by name. Whoever names a project to deploy to is led to its form."""
    errors = {}
    if (wanted := visit.query.get("deploy", "").strip()) and NAME.fullmatch(wanted):
        return Onward(f"{address(wanted)}/deploy")
    if "deploy" in visit.query:
        errors["deploy"] = say(visit, NAMED)
    after = visit.query.get("after", "")
    found = (await visit.ask("GET", "/v1/standings", query={"after": after} if after else {})).document
    shown = {
        "projects": found["items"],
        "errors": errors,
        "wanted": wanted,
        "may_deploy": may_somewhere(visit.session, "developer"),
        "newest": "/projects" if after else "",
        "older": "" if found["next"] is None else "/projects?" + urlencode({"after": found["next"]}),
    }
    return Page("projects/list.html", shown, found, status=422 if errors else 200, live=None if errors else NEWS)


async def detail(visit: Visit) -> Page:
    """One project: how its spiders do, what it runs, what holds for it."""
    project = visit.path("project")
    standing, settings, spiders, versions, tasks = await asyncio.gather(
        visit.ask("GET", f"/v1{address(project)}/standing"),
        visit.ask("GET", f"/v1{address(project)}"),
        _spiders(visit, project),
        visit.ask("GET", f"/v1{address(project)}/versions", query={"limit": str(SHOWN_VERSIONS), "brief": "true"}),
        visit.ask("GET", "/v1/tasks", query={"project": project, "limit": "1"}),
    )
    document = {
        "standing": standing.document,
        "settings": settings.document,
        "spiders": spiders,
        "versions": versions.document["items"],
    }
    rows = _rows(spiders, document["standing"]["by_spider"])
    after = visit.query.get("after", "")
    left = [each for each in rows if each["name"] > after]
    last = left[SHOWN_SPIDERS - 1]["name"] if len(left) > SHOWN_SPIDERS else ""
    shown = document | {
        "project": project,
        "rows": left[:SHOWN_SPIDERS],
        "graph": dots.graph_of(document["standing"]["by_spider"]),
        "size": dots,
        "newest": address(project) if after else "",
        "older": f"{address(project)}?" + urlencode({"after": last}) if last else "",
        "has_tasks": bool(tasks.document["items"]),
        "said": SAID.get(visit.query.get("said", ""), ""),
        "may": {role: may(visit.session, role, project) for role in ("operator", "developer", "admin")},
    }
    return Page("projects/detail.html", shown, document, live=NEWS)


async def act(visit: Visit) -> Onward:
    """Pause the tasks of a project, or let them go on."""
    project = visit.path("project")
    verb = visit.form.get("act", "")
    if verb not in ("pause", "resume"):
        raise Invalid("act", verb, "it must be pause or resume")
    await visit.ask("POST", f"/v1/tasks/{verb}", body={"project": project})
    return Onward(f"{address(project)}?said={verb}d")


async def settings_form(visit: Visit) -> Page:
    """What holds for all tasks of a project, to be changed."""
    found = await visit.ask("GET", f"/v1{address(visit.path('project'))}")
    return _settings(visit, found.document, _typed(found.document), {}, etag=found.headers.get("etag", ""))


async def save(visit: Visit) -> Page | Onward:
    project, form = visit.path("project"), visit.form
    wanted, errors = _wanted(form)
    if not errors:
        try:
            seen = {"if-match": form["etag"]} if form.get("etag") else {}
            await visit.ask("PUT", f"/v1{address(project)}", body=wanted, headers=seen)
            return Onward(f"{address(project)}?said=saved")
        except Refusal as refusal:
            if refusal.problem.status not in (409, 412, 422):
                raise
            errors = {_field(refusal.problem.field): refusal.problem.detail}
    found = await visit.ask("GET", f"/v1{address(project)}")
    return _settings(visit, found.document, form, errors, etag=form.get("etag", ""))


def address(project: str) -> str:
    return "/projects/" + quote(project, safe="")


async def _spiders(visit: Visit, project: str) -> list[dict[str, Any]]:
    """Those of the current version; none where there is none."""
    try:
        found = await visit.ask("GET", f"/v1{address(project)}/spiders")
    except Refusal as refusal:
        if refusal.problem.status != 404:
            raise
        return []
    return list(found.document["items"])


def _rows(spiders: Sequence[Mapping[str, Any]], standings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each spider of the code and each that has run, with how it did."""
    did, known = {each["spider"]: each for each in standings}, {each["name"]: each for each in spiders}
    return [
        {
            "name": name,
            "doc": known[name]["doc"].partition("\n")[0] if name in known else "",
            "is_deployed": name in known,
            "standing": did.get(name),
        }
        for name in sorted(known.keys() | did.keys())
    ]


def _settings(visit: Visit, document: Any, typed: Mapping[str, str], errors: Mapping[str, str], *, etag: str) -> Page:
    project = visit.path("project")
    told = {name: say(visit, text) for name, text in errors.items()}
    may_save = may(visit.session, "admin", project)
    typed = {name: typed.get(name, "") for name in (*NUMBERS, "min_isolation", "tags")}
    shown = {"project": project, "typed": typed, "errors": told, "etag": etag, "may_save": may_save}
    return Page("projects/settings.html", shown, document, status=422 if errors else 200)


def _typed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as they stand in the fields of the form."""
    values = {name: settings[name] for name in (*NUMBERS, "min_isolation")}
    typed = {
        name: "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    return typed | {"tags": "\n".join(f"{tag}={most}" for tag, most in sorted(settings["tags"].items()))}


def _wanted(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was typed as the API takes it, and what cannot be."""
    wanted: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, kind in NUMBERS.items():
        if text := form.get(name, "").strip():
            try:
                wanted[name] = kind(text)
            except ValueError:
                errors[name] = N_("This must be a number.") if kind is float else N_("This must be a whole number.")
    if level := form.get("min_isolation", ""):
        wanted["min_isolation"] = level
    tags = [line.partition("=") for line in form.get("tags", "").split("\n") if line.strip()]
    if all(equals and WHOLE.fullmatch(most.strip()) for _, equals, most in tags):
        wanted["tags"] = {tag.strip(): int(most) for tag, _, most in tags}
    else:
        errors["tags"] = N_("Each line must be a tag, '=' and a whole number.")
    return wanted, errors


def _field(named: str | None) -> str:
    """The field of the form that the API means."""
    name = (named or "").partition(".")[0]
    return "tags" if name in ("tag", "tags") else name if name in (*NUMBERS, "min_isolation") else "form"


PAGES = {
    "/projects": {"GET": listing},
    "/projects/{project}": {"GET": detail, "POST": act},
    "/projects/{project}/settings": {"GET": settings_form, "POST": save},
}
