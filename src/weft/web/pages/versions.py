"""Versions of a project's code: their list, one of them beside another, and the form to deploy the next."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from weft.operations import projects, spider_health, versions
from weft.operations.problems import RequestRefused
from weft.operations.versions import VersionChangesDocument, VersionDocument
from weft.web.forms import forward_upload, read_upload, translated
from weft.web.pages.projects import address
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may

SHOWN = 50
PROGRESS_NAME = re.compile("[0-9a-f]{16}")
"""As the form names its deploys."""
CHOICES = 100
"""Versions that one can be compared with."""
MESSAGES = {
    "deployed": N_("Version {version} is deployed: runs that are queued from now on execute it."),
    "used": N_("Version {version} is the current one: runs that are queued from now on execute it."),
    "deleted": N_("Version {version} is deleted."),
}
PROGRESS_TEXTS = N_("Meanwhile version {version} is the current one.")
FACT_TEXTS = {
    "format": N_("Format"),
    "settings": N_("Settings module"),
    "root": N_("Folder in the archive"),
    "requirements": N_("Requirements"),
    "lock": N_("Digest of the requirements"),
}
STAGE_TEXTS = {
    "received": N_("The archive has arrived"),
    "checking": N_("Unpacking and checking the archive"),
    "installing": N_("Installing its requirements"),
    "importing": N_("Importing the code in a sandbox"),
    "keeping": N_("Keeping the version"),
}
STEP_TEXTS = {
    "environment": N_("making an environment"),
    "collecting": N_("collecting {package} (package {number})"),
    "downloading": N_("downloading {file} {size}"),
    "building": N_("building {package}"),
    "packages": N_("installing {count} packages"),
    "installed": N_("looking at what was installed"),
}
"""What a deploy does within a stage."""
DEPLOY_SECONDS = 1.0
CHANGE_TEXTS = (409, 413, 415, 422)
"""What the API may answer that is told beside a field, with what was typed."""


async def listing(visit: Visit) -> WebPage:
    """The versions of a project, the newest by name first."""
    return await _listing(visit)


async def roll_back(visit: Visit) -> WebPage | Redirect:
    """Make the version current that was deployed before the current one, if that is still the one that was seen."""
    project, seen = visit.path("project"), visit.form.get("current", "")
    now = (await visit.call(spider_health.show, project=project)).version
    if seen and now != seen:
        return await _listing(visit, problem=translated(visit, PROGRESS_TEXTS, version=now))
    try:
        used = await visit.call(versions.rollback, project=project)
    except ApiError as refusal:
        if refusal.problem.status not in CHANGE_TEXTS:
            raise
        return await _listing(visit, problem=refusal.problem.detail, status=refusal.problem.status)
    return Redirect(_said(project, "used", used.version))


async def detail(visit: Visit) -> WebPage:
    """One version, and what differs between it and another."""
    return await _detail(visit)


async def act(visit: Visit) -> WebPage | Redirect:
    """Make a version the current one, or delete it."""
    project, version, verb = visit.path("project"), visit.path("version"), visit.form.get("act", "")
    try:
        if verb == "use":
            await visit.call(versions.use, project=project, version=version)
            return Redirect(_said(project, "used", version))
        if verb == "delete":
            await visit.call(versions.delete, project=project, version=version)
            return Redirect(_said(project, "deleted", version))
    except ApiError as refusal:
        if refusal.problem.status not in CHANGE_TEXTS:
            raise
        return await _detail(visit, refusal)
    return await _detail(visit)


async def form(visit: Visit) -> WebPage:
    """The form to deploy code with."""
    return await _form(visit, {})


async def deploy(visit: Visit) -> WebPage | Redirect:
    """Deploy the archive that was sent and show what it changes; where it is refused, what was typed is still there."""
    project = visit.path("project")
    if not may(visit.session, "developer", project):
        raise RequestRefused("not_allowed", f"to deploy to project {project} needs the role developer there")
    try:
        async with read_upload(visit, "archive") as file:
            if file is None:
                return await _form(visit, {"archive": N_("Choose the archive to deploy.")}, status=422)
            version = visit.form.get("version", "").strip()
            query = {"version": version} if version else {}
            if PROGRESS_NAME.fullmatch(name := visit.form.get("progress", "")):
                query["progress"] = name
            deployed = await forward_upload(visit, versions.deploy, file, query, project=project)
    except ApiError as refusal:
        if refusal.problem.status not in CHANGE_TEXTS:
            raise
        name = "version" if refusal.problem.field == "version" or refusal.problem.status == 409 else "archive"
        errors = {name: refusal.problem.detail}
        return await _form(visit, errors, traceback=refusal.problem.traceback or "", status=refusal.problem.status)
    except RequestRefused as refused:
        if refused.code not in ("too_large", "too_slow", "bad_request"):
            raise
        return await _form(visit, {"archive": str(refused)}, status=422)
    return Redirect(version_of(project, deployed.version) + "?said=deployed")


async def progress(visit: Visit) -> WebPage:
    """How far a deploy has come, and what has become of it."""
    project, deploy = visit.path("project"), visit.path("deploy")
    found = await visit.call(versions.progress, project=project, deploy=deploy)
    shown = {
        "project": project,
        "deploy": found,
        "stages": STAGE_TEXTS,
        "steps": STEP_TEXTS,
        "is_there": await _is_there(visit, project),
    }
    is_over = found.state in ("deployed", "failed")
    live = None if is_over else LiveRefresh(kinds=("version_",), every_seconds=DEPLOY_SECONDS)
    return WebPage("projects/deploying.html", shown, found, live=live)


def version_of(project: str, version: str) -> str:
    return f"{address(project)}/versions/{quote(version, safe='')}"


def _said(project: str, word: str, version: str) -> str:
    return f"{address(project)}/versions?" + urlencode({"said": word, "version": version})


async def _listing(visit: Visit, *, problem: str = "", status: int = 409) -> WebPage:
    project, after = visit.path("project"), visit.query.get("after", "")
    query = {"limit": str(SHOWN), "brief": "true"} | ({"after": after} if after else {})
    found = await visit.call(versions.list_, project=project, query=query)
    everything = f"{address(project)}/versions"
    shown = {
        "project": project,
        "versions": found.items,
        "newest": everything if after else "",
        "older": "" if found.next is None else f"{everything}?" + urlencode({"after": found.next}),
        "said": MESSAGES.get(visit.query.get("said", ""), ""),
        "version": visit.query.get("version", ""),
        "problem": problem,
        "current_one": next((each.version for each in found.items if each.is_current), ""),
        "may_deploy": may(visit.session, "developer", project),
    }
    live = None if problem or after else LiveRefresh(kinds=("version_",))
    return WebPage("projects/versions.html", shown, found, status=status if problem else 200, live=live)


async def _detail(visit: Visit, refusal: ApiError | None = None) -> WebPage:
    project, version = visit.path("project"), visit.path("version")
    found, others = await asyncio.gather(
        visit.call(versions.show, project=project, version=version),
        visit.call(versions.list_, project=project, query=versions.VersionQuery(limit=CHOICES, brief=True)),
    )
    names = [each.version for each in others.items if each.version != version]
    since = visit.query.get("since", "") or _earlier(found, others.items)
    changes, errors = await _changes(visit, since)
    shown = {
        "project": project,
        "version": found,
        "names": names if since in names or not since else [since, *names],
        "since": since,
        "changes": changes,
        "errors": errors,
        "facts": FACT_TEXTS,
        "said": MESSAGES.get(visit.query.get("said", ""), ""),
        "problem": "" if refusal is None else refusal.problem.detail,
        "may_deploy": may(visit.session, "developer", project),
    }
    status = 422 if errors else 200 if refusal is None else refusal.problem.status
    return WebPage("projects/version.html", shown, {"version": found, "changes": changes}, status=status)


def _earlier(version: VersionDocument, others: Sequence[VersionDocument]) -> str:
    """What a version is compared with unless somebody says: the current one, and that with the one before it."""
    if not version.is_current:
        return next((each.version for each in others if each.is_current), "")
    older = [
        (each.deployed_at or "", each) for each in others if (each.deployed_at or "") < (version.deployed_at or "")
    ]
    return max(older, key=lambda each: each[0])[1].version if older else ""


async def _changes(visit: Visit, since: str) -> tuple[VersionChangesDocument | None, dict[str, str]]:
    if not since:
        return None, {}
    project, version = visit.path("project"), visit.path("version")
    try:
        changes = await visit.call(versions.changes, project=project, version=version, query={"since": since})
    except ApiError as refusal:
        if refusal.problem.status != 404:
            raise
        return None, {"since": refusal.problem.detail}
    return changes, {}


async def _form(visit: Visit, errors: Mapping[str, str], *, traceback: str = "", status: int = 200) -> WebPage:
    project = visit.path("project")
    shown = {
        "project": project,
        "errors": {name: translated(visit, text) for name, text in errors.items()},
        "traceback": traceback,
        "typed": visit.form.get("version", ""),
        "progress": f"{address(project)}/deploys",
        "deploy": secrets.token_hex(8),
        "may_deploy": may(visit.session, "developer", project),
        "is_there": await _is_there(visit, project),
    }
    return WebPage("projects/deploy.html", shown, {"project": project, "errors": errors}, status=status)


async def _is_there(visit: Visit, project: str) -> bool:
    """A project begins with its first deploy; until then nothing leads to it."""
    try:
        await visit.call(projects.show, project=project)
    except ApiError as refusal:
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
    "/projects/{project}/deploys/{deploy}": {"GET": progress},
}
