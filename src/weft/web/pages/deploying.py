"""Versions of a project's code: their list, one of them beside another, and the form to deploy the next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from weft.api.problems import Refused
from weft.web.faults import say
from weft.web.inside import Refusal
from weft.web.pages.projects import address
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may
from weft.web.uploads import pass_on, uploaded
from weft.web.visit import Visit
from weft.web.words import N_

SHOWN = 50
CHOICES = 100
"""Versions that one can be compared with."""
SAID = {
    "deployed": N_("Version {version} is deployed: runs that are queued from now on execute it."),
    "used": N_("Version {version} is the current one: runs that are queued from now on execute it."),
    "deleted": N_("Version {version} is deleted."),
}
MEANWHILE = N_("Meanwhile version {version} is the current one.")
FACTS = {
    "format": N_("Format"),
    "settings": N_("Settings module"),
    "root": N_("Folder in the archive"),
    "requirements": N_("Requirements"),
    "lock": N_("Digest of the requirements"),
}
TELLS = (409, 413, 415, 422)
"""What the API may answer that is told beside a field, with what was typed."""


async def listing(visit: Visit) -> Page:
    """The versions of a project, the newest by name first."""
    return await _listing(visit)


async def roll_back(visit: Visit) -> Page | Onward:
    """Make the version current that was deployed before the current one, if that is still the one that was seen."""
    project, seen = visit.path("project"), visit.form.get("current", "")
    now = (await visit.ask("GET", f"/v1{address(project)}/standing")).document["version"]
    if seen and now != seen:
        return await _listing(visit, problem=say(visit, MEANWHILE, version=now))
    try:
        used = (await visit.ask("POST", f"/v1{address(project)}/rollback")).document
    except Refusal as refusal:
        if refusal.problem.status not in TELLS:
            raise
        return await _listing(visit, problem=refusal.problem.detail, status=refusal.problem.status)
    return Onward(_said(project, "used", used["version"]))


async def detail(visit: Visit) -> Page:
    """One version, and what differs between it and another."""
    return await _detail(visit)


async def act(visit: Visit) -> Page | Onward:
    """Make a version the current one, or delete it."""
    project, version, verb = visit.path("project"), visit.path("version"), visit.form.get("act", "")
    try:
        if verb == "use":
            await visit.ask("POST", f"/v1{one(project, version)}/use")
            return Onward(_said(project, "used", version))
        if verb == "delete":
            await visit.ask("DELETE", f"/v1{one(project, version)}")
            return Onward(_said(project, "deleted", version))
    except Refusal as refusal:
        if refusal.problem.status not in TELLS:
            raise
        return await _detail(visit, refusal)
    return await _detail(visit)


async def form(visit: Visit) -> Page:
    """The form to deploy code with."""
    return await _form(visit, {})


async def deploy(visit: Visit) -> Page | Onward:
    """Deploy the archive that was sent and show what it changes; where it is refused, what was typed is still there."""
    project = visit.path("project")
    if not may(visit.session, "developer", project):
        raise Refused("not_allowed", f"to deploy to project {project} needs the role developer there")
    try:
        async with uploaded(visit, "archive") as file:
            if file is None:
                return await _form(visit, {"archive": N_("Choose the archive to deploy.")}, status=422)
            version = visit.form.get("version", "").strip()
            query = {"version": version} if version else {}
            deployed = (await pass_on(visit, f"/v1{address(project)}/versions", file, query)).document
    except Refusal as refusal:
        if refusal.problem.status not in TELLS:
            raise
        name = "version" if refusal.problem.field == "version" or refusal.problem.status == 409 else "archive"
        errors = {name: refusal.problem.detail}
        return await _form(visit, errors, traceback=refusal.problem.traceback or "", status=refusal.problem.status)
    except Refused as refused:
        if refused.code not in ("too_large", "too_slow", "bad_request"):
            raise
        return await _form(visit, {"archive": str(refused)}, status=422)
    return Onward(one(project, deployed["version"]) + "?said=deployed")


def one(project: str, version: str) -> str:
    return f"{address(project)}/versions/{quote(version, safe='')}"


def _said(project: str, word: str, version: str) -> str:
    return f"{address(project)}/versions?" + urlencode({"said": word, "version": version})


async def _listing(visit: Visit, *, problem: str = "", status: int = 409) -> Page:
    project, after = visit.path("project"), visit.query.get("after", "")
    query = {"limit": str(SHOWN), "brief": "true"} | ({"after": after} if after else {})
    found = (await visit.ask("GET", f"/v1{address(project)}/versions", query=query)).document
    everything = f"{address(project)}/versions"
    shown = {
        "project": project,
        "versions": found["items"],
        "newest": everything if after else "",
        "older": "" if found["next"] is None else f"{everything}?" + urlencode({"after": found["next"]}),
        "said": SAID.get(visit.query.get("said", ""), ""),
        "version": visit.query.get("version", ""),
        "problem": problem,
        "current_one": next((each["version"] for each in found["items"] if each["is_current"]), ""),
        "may_deploy": may(visit.session, "developer", project),
    }
    live = None if problem or after else Live(kinds=("version_",))
    return Page("projects/versions.html", shown, found, status=status if problem else 200, live=live)


async def _detail(visit: Visit, refusal: Refusal | None = None) -> Page:
    project, version = visit.path("project"), visit.path("version")
    found, others = await asyncio.gather(
        visit.ask("GET", f"/v1{one(project, version)}"),
        visit.ask("GET", f"/v1{address(project)}/versions", query={"limit": str(CHOICES), "brief": "true"}),
    )
    names = [each["version"] for each in others.document["items"] if each["version"] != version]
    since = visit.query.get("since", "") or _earlier(found.document, others.document["items"])
    changes, errors = await _changes(visit, since)
    shown = {
        "project": project,
        "version": found.document,
        "names": names if since in names or not since else [since, *names],
        "since": since,
        "changes": changes,
        "errors": errors,
        "facts": FACTS,
        "said": SAID.get(visit.query.get("said", ""), ""),
        "problem": "" if refusal is None else refusal.problem.detail,
        "may_deploy": may(visit.session, "developer", project),
    }
    status = 422 if errors else 200 if refusal is None else refusal.problem.status
    return Page("projects/version.html", shown, {"version": found.document, "changes": changes}, status=status)


def _earlier(version: Mapping[str, Any], others: list[Mapping[str, Any]]) -> str:
    """What a version is compared with unless somebody says: the current one, and that with the one before it."""
    current = next((each["version"] for each in others if each["is_current"]), "")
    if not version["is_current"]:
        return str(current)
    older = [each for each in others if each["deployed_at"] < version["deployed_at"]]
    return str(max(older, key=lambda each: each["deployed_at"])["version"]) if older else ""


async def _changes(visit: Visit, since: str) -> tuple[Any, dict[str, str]]:
    if not since:
        return None, {}
    path = f"/v1{one(visit.path('project'), visit.path('version'))}/changes"
    try:
        return (await visit.ask("GET", path, query={"since": since})).document, {}
    except Refusal as refusal:
        if refusal.problem.status != 404:
            raise
        return None, {"since": refusal.problem.detail}


async def _form(visit: Visit, errors: Mapping[str, str], *, traceback: str = "", status: int = 200) -> Page:
    project = visit.path("project")
    shown = {
        "project": project,
        "errors": {name: say(visit, text) for name, text in errors.items()},
        "traceback": traceback,
        "typed": visit.form.get("version", ""),
        "may_deploy": may(visit.session, "developer", project),
        "is_there": await _is_there(visit, project),
    }
    return Page("projects/deploy.html", shown, {"project": project, "errors": errors}, status=status)


async def _is_there(visit: Visit, project: str) -> bool:
    """A project begins with its first deploy; until then nothing leads to it."""
    try:
        await visit.ask("GET", f"/v1{address(project)}")
    except Refusal as refusal:
        if refusal.problem.status not in (403, 404):
            raise
        return False
    return True


UPLOADS = frozenset({deploy})
"""They read what is sent themselves: it has a file."""

PAGES = {
    "/projects/{project}/versions": {"GET": listing, "POST": roll_back},
    "/projects/{project}/versions/{version}": {"GET": detail, "POST": act},
    "/projects/{project}/deploy": {"GET": form, "POST": deploy},
}
