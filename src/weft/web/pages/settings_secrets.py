"""Secrets: what runs need and nobody may read. They go in here and never come out."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from weft.web.faults import faults, say
from weft.web.inside import Refusal
from weft.web.pages.settings import SECRETS, tabs_of
from weft.web.rendering import Onward, Page
from weft.web.rights import may, projects_of
from weft.web.visit import Visit
from weft.web.words import N_

SAID = {
    "set": N_("The secret is set. An earlier value is gone."),
    "deleted": N_("The secret is gone; runs that ask for it fail from now on."),
}


async def listing(visit: Visit) -> Page:
    """The names of a project's secrets, and the form that sets one."""
    return await _listing(visit, visit.query.get("project", "").strip(), {"name": ""}, {})


async def act(visit: Visit) -> Page | Onward:
    """Set or delete a secret."""
    project, name = visit.form.get("project", "").strip(), visit.form.get("name", "").strip()
    for field, typed in (("project", project), ("name", name)):
        if not typed:
            return await _listing(visit, project, {"name": name}, {field: say(visit, N_("It must not be empty."))})
    address = f"/v1/projects/{quote(project, safe='')}/secrets/{quote(name, safe='')}"
    word = "deleted" if visit.form.get("act") == "delete" else "set"
    try:
        if word == "deleted":
            await visit.ask("DELETE", address)
        else:
            await visit.ask("PUT", address, body={"value": visit.form.get("value", "")})
    except Refusal as refusal:
        return await _listing(visit, project, {"name": name}, faults(refusal, "value", "project", "name"))
    return Onward("/settings/secrets?" + urlencode({"project": project, "said": word}))


async def _listing(visit: Visit, asked: str, typed: dict[str, str], errors: dict[str, str]) -> Page:
    projects = await _projects(visit)
    project = asked or next(iter(projects), "")
    found: dict[str, Any] = {"items": [], "next": None}
    if project:
        try:
            found = (await visit.ask("GET", f"/v1/projects/{quote(project, safe='')}/secrets")).document
        except Refusal as refusal:
            errors = errors or faults(refusal, "project", also=frozenset({403, 404}))
    shown = {"secrets": found["items"], "project": project, "projects": projects, "typed": typed, "errors": errors}
    shown["said"] = SAID.get(visit.query.get("said", ""), "")
    status = 422 if errors else 200
    return Page("settings/secrets.html", shown | tabs_of(visit, SECRETS), found, status=status)


async def _projects(visit: Visit) -> list[str]:
    """Those whose secrets the reader may keep."""
    if not may(visit.session, "admin"):
        return projects_of(visit.session, "admin")
    return [each["name"] for each in (await visit.ask("GET", "/v1/projects")).document["items"]]


PAGES = {"/settings/secrets": {"GET": listing, "POST": act}}
